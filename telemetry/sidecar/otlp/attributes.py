"""Reads the attributes of OTLP messages: as Python values, and in the form that the store keeps."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from telemetry.model.errors import TelemetryError

DEPTH_MAX: Final = 32
ARRAY, KVLIST = "array_value", "kvlist_value"
_NESTED: Final = frozenset({ARRAY, KVLIST})
# Of each attribute, one after the other: its key, the field of its value that is set (None where none is), and what
# that holds: of arrays and lists of pairs the serialized message, of a value without a field whether there is one.
StoredPairs = Sequence[Any]


class OtlpDecodeError(TelemetryError):
    """Raised if a request does not match its content type; none of it was stored."""


class NestedTooDeeply(Exception):  # noqa: N818 - reads as what happened
    """Raised for a value that is nested too deeply; the attribute or the point that holds it is left out."""


def from_protobuf(pairs: Iterable[KeyValue], depth: int = 0) -> dict[str, object]:
    """Convert the attributes of a protobuf message; for a repeated key, the last value. Raises NestedTooDeeply."""
    return {pair.key: value_from_protobuf(pair.value, depth) for pair in pairs}


def value_from_protobuf(value: AnyValue, depth: int = 0) -> object:
    """Convert one value to str, bool, int, float, bytes, list, dict or None. Raises NestedTooDeeply."""
    if depth > DEPTH_MAX:
        raise NestedTooDeeply
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [value_from_protobuf(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            return from_protobuf(value.kvlist_value.values, depth + 1)
        case kind:
            return getattr(value, kind)


def stored_pairs(pairs: Collection[KeyValue]) -> StoredPairs:
    """The attributes of a message as the store keeps them, in their order. Raises NestedTooDeeply."""
    if not pairs:
        return ()
    stored: list[object] = []
    for pair in pairs:
        value = pair.value
        kind = value.WhichOneof("value")
        if kind is None:
            stored += (pair.key, None, pair.HasField("value"))
        elif kind in _NESTED:
            content = getattr(value, kind).SerializeToString()
            # Each level has the number of one of these fields.
            if content.count(b"\x2a") + content.count(b"\x32") >= DEPTH_MAX:
                value_from_protobuf(value)
            stored += (pair.key, kind, content)
        else:
            stored += (pair.key, kind, getattr(value, kind))
    return stored
