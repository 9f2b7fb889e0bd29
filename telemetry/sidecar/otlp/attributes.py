"""Converts OTLP attribute values to plain Python values."""

from collections.abc import Iterable
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from telemetry.model.errors import TelemetryError

DEPTH_MAX: Final = 32
# Protobuf's parsers and serializers end at 100 messages within one another, those around an attribute included.
MESSAGES_MAX: Final = 90


class OtlpDecodeError(TelemetryError):
    """A request does not match its content type; none of it was stored."""


class NestedTooDeeply(Exception):  # noqa: N818 - reads as what happened
    """A value is nested so deeply that the attribute, or the point, that holds it is left out."""


def from_protobuf(pairs: Iterable[KeyValue], depth: int = 0) -> dict[str, object]:
    """Convert the attributes of a protobuf message. Raises OtlpDecodeError if they are nested too deeply."""
    return {pair.key: value_from_protobuf(pair.value, depth) for pair in pairs}


def value_from_protobuf(value: AnyValue, depth: int = 0) -> object:
    """Convert one value to str, bool, int, float, bytes, list, dict or None."""
    _check(depth)
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bytes_value":
            return value.bytes_value
        case "array_value":
            return [value_from_protobuf(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            return from_protobuf(value.kvlist_value.values, depth + 1)
        case _:
            return None


def _check(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise OtlpDecodeError(f"attributes: nested more than {DEPTH_MAX} levels deep")
