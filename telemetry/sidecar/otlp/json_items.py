"""What the spans and the metrics of OTLP/JSON have in common, written into protobuf: ids, moments and attributes."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

from telemetry.sidecar.otlp import json_values as values
from telemetry.sidecar.otlp.attributes import DEPTH_MAX, MESSAGES_MAX, NestedTooDeeply, OtlpDecodeError

UINT32_MAX: Final = 2**32 - 1
UINT64_MAX: Final = 2**64 - 1
INT32: Final = (-(2**31), 2**31 - 1)
INT64: Final = (-(2**63), 2**63 - 1)
_HEX: Final = re.compile(r"([0-9a-f]{2})*")
# An id that is not hex becomes bytes of a length that no id has, and is then refused as any other.
_NO_ID: Final = b"\0"
# An attribute of an event is the deepest one in its item, and has three messages around it.
_MESSAGES_MAX: Final = MESSAGES_MAX - 3


def id_octets(value: object, what: str) -> bytes:
    """The octets of a trace or span id, which is hex. Raises OtlpDecodeError for another type."""
    text = values.text(value, what).lower()
    return bytes.fromhex(text) if _HEX.fullmatch(text) else _NO_ID


def enum(value: object, what: str, names: Any) -> Any:
    """A number, as OTLP/JSON has it, or a name, as protobuf's JSON form has it; a name of a newer version is 0.

    Raises OtlpDecodeError.
    """
    if isinstance(value, str) and not value.lstrip("-").isdecimal():
        return names.Value(value) if value in names.keys() else 0  # noqa: SIM118 - it is no mapping
    return 0 if value is None else values.integer(value, what, *INT32)


def moment(value: object, what: str) -> int:
    """Nanoseconds since 1970, 0 if absent. One that cannot be read becomes a moment that cannot be stored, and its item
    is then refused as any other: what came with it is not."""
    try:
        return 0 if value is None else values.integer(value, what, 0, UINT64_MAX)
    except OtlpDecodeError:
        return UINT64_MAX


def attributes(message: Any, pairs: object) -> None:
    """Add the attributes to a repeated KeyValue. Raises OtlpDecodeError for values of another type than they say."""
    for key, value in _pairs(pairs):
        added = message.add(key=key)
        try:
            _value(added.value, value, 0, 0)
        except NestedTooDeeply:
            # It is left out with those that were sent in protobuf, and counted there.
            added.value.CopyFrom(_TOO_DEEP)


def _pairs(pairs: object) -> Iterator[tuple[str, object]]:
    for pair in values.objects(pairs, "attributes"):
        key = pair.get("key", "")
        if not isinstance(key, str):
            raise OtlpDecodeError("attributes: a key is not a string")
        yield key, pair.get("value")


def _value(message: AnyValue, value: object, depth: int, messages: int) -> None:
    """Set a value to the first kind that it states and that this version knows. It is in so many others, and in so many
    messages of its attribute. Raises NestedTooDeeply."""
    if depth > DEPTH_MAX or messages > _MESSAGES_MAX:
        raise NestedTooDeeply
    for kind, content in values.mapping(value, "an attribute's value").items():
        match kind:
            case "stringValue":
                message.string_value = values.text_of(content, kind)
            case "boolValue":
                message.bool_value = values.flag(content, kind)
            case "intValue":
                message.int_value = values.integer(content, kind, *INT64)
            case "doubleValue":
                message.double_value = values.number(content, kind)
            case "bytesValue":
                message.bytes_value = _bytes(content)
            case "arrayValue":
                message.array_value.SetInParent()
                for item in values.items(values.mapping(content, kind).get("values"), kind):
                    _value(message.array_value.values.add(), item, depth + 1, messages + 2)
            case "kvlistValue":
                message.kvlist_value.SetInParent()
                for key, inner in _pairs(values.mapping(content, kind).get("values")):
                    _value(message.kvlist_value.values.add(key=key).value, inner, depth + 1, messages + 3)
            case _:
                continue  # a kind of value from a newer protocol version
        return


def _bytes(content: object) -> bytes:
    try:
        return base64.b64decode(values.text_of(content, "bytesValue"), validate=True)
    except binascii.Error as error:
        raise OtlpDecodeError("bytesValue: expected base64") from error


def _too_deep() -> AnyValue:
    value = AnyValue(int_value=0)
    for _ in range(DEPTH_MAX + 1):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    return value


_TOO_DEEP: Final = _too_deep()
