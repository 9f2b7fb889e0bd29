"""Converts OTLP attribute values, in protobuf or JSON, to plain Python values."""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from telemetry.model.errors import TelemetryError

DEPTH_MAX: Final = 32
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}")
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class OtlpDecodeError(TelemetryError):
    """A request does not match its content type; none of it was stored."""


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


def from_json(pairs: object, depth: int = 0) -> dict[str, object]:
    """Convert OTLP/JSON attributes: `[{"key": …, "value": {"stringValue": …}}, …]`. Raises OtlpDecodeError."""
    found: dict[str, object] = {}
    for pair in objects(pairs, "attributes"):
        key = pair.get("key", "")
        if not isinstance(key, str):
            raise OtlpDecodeError("attributes: a key is not a string")
        found[key] = value_from_json(pair.get("value"), depth)
    return found


def value_from_json(value: object, depth: int = 0) -> object:
    """Convert one OTLP/JSON value. Raises OtlpDecodeError."""
    _check(depth)
    if value is None:
        return None
    fields = mapping(value, "an attribute's value")
    for kind, content in fields.items():
        match kind:
            case "stringValue":
                return _expect(content, str, kind)
            case "boolValue":
                return _expect(content, bool, kind)
            case "intValue":
                return integer(content, kind, _INT64_MIN, _INT64_MAX)
            case "doubleValue":
                return number(content, kind)
            case "bytesValue":
                return _bytes(content)
            case "arrayValue":
                return [value_from_json(item, depth + 1) for item in items(mapping(content, kind).get("values"), kind)]
            case "kvlistValue":
                return from_json(mapping(content, kind).get("values"), depth + 1)
            case _:
                continue  # a kind of value from a newer protocol version
    return None


def mapping(value: object, what: str) -> dict[str, Any]:
    """Return a JSON object, empty if it is absent. Raises OtlpDecodeError for another type."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise OtlpDecodeError(f"{what}: expected an object")
    return value  # pyright: ignore[reportUnknownVariableType] - keys in JSON are strings


def items(value: object, what: str) -> list[Any]:
    """Return a JSON array, empty if it is absent. Raises OtlpDecodeError for another type."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise OtlpDecodeError(f"{what}: expected an array")
    return value  # pyright: ignore[reportUnknownVariableType] - its items are checked when they are read


def objects(value: object, what: str) -> list[dict[str, Any]]:
    """Return a JSON array of objects. Raises OtlpDecodeError for another type."""
    return [mapping(item, what) for item in items(value, what)]


def text(value: object, what: str) -> str:
    """Return a JSON string, empty if it is absent. Raises OtlpDecodeError for another type."""
    return "" if value is None else _expect(value, str, what)


def integer(value: object, what: str, minimum: int, maximum: int) -> int:
    """Return a JSON integer; proto3 writes 64-bit integers as decimal strings. Raises OtlpDecodeError."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number_ = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number_ = value
    else:
        raise OtlpDecodeError(f"{what}: expected an integer")
    if not minimum <= number_ <= maximum:
        raise OtlpDecodeError(f"{what}: {number_} is out of range")
    return number_


def number(value: object, what: str) -> float:
    """Return a JSON number; proto3 writes NaN and infinities as strings. Raises OtlpDecodeError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise OtlpDecodeError(f"{what}: expected a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise OtlpDecodeError(f"{what}: expected a number") from None


def _expect(value: object, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise OtlpDecodeError(f"{what}: expected {kind.__name__}")
    return value


def _bytes(content: object) -> bytes:
    try:
        return base64.b64decode(_expect(content, str, "bytesValue"), validate=True)
    except binascii.Error as error:
        raise OtlpDecodeError("bytesValue: expected base64") from error


def _check(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise OtlpDecodeError(f"attributes: nested more than {DEPTH_MAX} levels deep")
