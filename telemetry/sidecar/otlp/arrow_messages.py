"""Reads serialized OTLP messages into Arrow record batches, whatever the bytes hold: they are read, or refused.

ptars is quick because it trusts more than a receiver may: it recurses into nested groups without a limit, panics on a
length near 2^64, and of a value that is set twice it keeps both. Messages long enough to nest that deep are read by
Google's parser first, and those with such values are written anew by it.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
from google.protobuf.message import DecodeError, Message

from telemetry.sidecar.otlp.attributes import DEPTH_MAX, OtlpDecodeError
from telemetry.sidecar.otlp.descriptors import reader

RecordBatch = Any
ArrowArray = Any
Bits = npt.NDArray[np.uint8]
# Arrow makes its functions when it is imported; no type checker knows them.
compute: Final[Any] = pyarrow.compute

# The bits of `kinds`, in the order of the fields of AnyValue.
STRING, BOOL, INT, DOUBLE, ARRAY, KVLIST, BYTES = (1 << place for place in range(7))
# Some 80,000 nested groups are the end of the process; each takes a byte at least.
_UNCHECKED_BYTES_MAX: Final = 16 << 10
_array_values: Final = reader("ArrayValue")
_key_value_lists: Final = reader("KeyValueList")


class MalformedMessageError(ValueError):
    """Bytes are not the message that they should be."""


def check_message(kind: type[Message], payload: bytes) -> None:
    """Raise MalformedMessageError when a long message cannot be handed to `record_batch`."""
    if len(payload) > _UNCHECKED_BYTES_MAX:
        try:
            kind.FromString(payload)
        except DecodeError as error:
            raise MalformedMessageError(str(error)) from error


def record_batch(messages: Any, payloads: Sequence[bytes]) -> RecordBatch:
    """One row for each message. Raises MalformedMessageError when one of them is malformed."""
    try:
        return messages.list_to_record_batch(payloads if isinstance(payloads, list) else list(payloads))
    except ValueError as error:
        raise MalformedMessageError(str(error)) from error
    except BaseException as error:
        # A panic of the library; it has no importable type, and is no Exception.
        if type(error).__name__ == "PanicException":
            raise MalformedMessageError("a length is out of range") from error
        raise


def kinds(values: ArrowArray) -> Bits:
    """For each AnyValue of a struct array which of its fields are set, as bits."""
    found: Bits = np.zeros(len(values), np.uint8)
    for place in range(7):
        child = values.field(place)
        if child.null_count < len(child):
            found |= _is_valid(child) << np.uint8(place)
    return found


def _is_valid(array: ArrowArray) -> Bits:
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.ones(len(array), np.uint8)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)]


def doubled(bits: Bits) -> npt.NDArray[np.bool_]:
    """Which values have more than one field set: of these the last counts, and which it was is not known any more."""
    return (bits & (bits - np.uint8(1))) != 0


def check_nested(arrays: ArrowArray, pairs: ArrowArray) -> ArrowArray:
    """Read nested values to their end; gives the items of `arrays` as lists of AnyValue.

    Raises MalformedMessageError, and OtlpDecodeError when they are nested too deeply.
    """
    items = _lists(_array_values, arrays)
    below, members = items.values, _lists(_key_value_lists, pairs).values.field(1)
    for _ in range(DEPTH_MAX):
        arrays = pa.concat_arrays([below.field(4).drop_null(), members.field(4).drop_null()])
        pairs = pa.concat_arrays([below.field(5).drop_null(), members.field(5).drop_null()])
        below = _lists(_array_values, arrays).values
        members = _lists(_key_value_lists, pairs).values.field(1)
        if not len(below) and not len(members):
            return items
    raise OtlpDecodeError(f"attributes: nested more than {DEPTH_MAX} levels deep")


def _lists(messages: Any, payloads: ArrowArray) -> ArrowArray:
    if not len(payloads):
        return _NOTHING[messages]
    return record_batch(messages, payloads.to_pylist()).column(0)


_NOTHING: Final = {messages: record_batch(messages, []).column(0) for messages in (_array_values, _key_value_lists)}
