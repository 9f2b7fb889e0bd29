"""The attributes of a span in the store: pairs of a key and a typed value, with conversions from and to Python values.

A value has one field for each type of OTLP, of which at most one is not null. Arrays and lists of pairs are kept as the
serialized OTLP messages `ArrayValue` and `KeyValueList`, so that the type does not contain itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from telemetry.model.foreign_text import one_line, several_lines

ArrowType = Any

VALUE_TYPE: Final[ArrowType] = pa.struct(
    [
        ("string_value", pa.string()),
        ("bool_value", pa.bool_()),
        ("int_value", pa.int64()),
        ("double_value", pa.float64()),
        ("array_value", pa.binary()),
        ("kvlist_value", pa.binary()),
        ("bytes_value", pa.binary()),
    ]
)
ATTRIBUTES_TYPE: Final[ArrowType] = pa.list_(pa.struct([("key", pa.string()), ("value", VALUE_TYPE)]))
TEXT_MAX_CHARS: Final = 2**16
_INT64: Final = range(-(2**63), 2**63)


def stored_attributes(attributes: Mapping[str, object]) -> list[dict[str, Any]]:
    """Convert attributes to the store's column. An integer beyond 64 bits becomes its decimal text, and a value of a
    type that OTLP does not have becomes its text."""
    return [{"key": key, "value": _stored(value)} for key, value in attributes.items()]


def read_attributes(pairs: Iterable[Mapping[str, Any]] | None) -> dict[str, object]:
    """Read attributes from the store's column; control characters in names and texts are written out, and of a repeated
    key the last value is returned."""
    return {one_line(pair["key"]): _read(pair["value"]) for pair in pairs or ()}


def _stored(value: object) -> dict[str, object] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        items = ArrayValue(values=[_message(item) for item in cast("list[object]", value)])
        return {"array_value": items.SerializeToString()}
    if isinstance(value, Mapping):
        return {"kvlist_value": _pairs(cast("Mapping[str, object]", value)).SerializeToString()}
    field, content = _scalar(value)
    return {field: content}


def _scalar(value: object) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "bool_value", value
    if isinstance(value, int) and value in _INT64:
        return "int_value", value
    if isinstance(value, float):
        return "double_value", value
    if isinstance(value, bytes):
        return "bytes_value", value
    return "string_value", str(value)


def _message(value: object) -> AnyValue:
    if value is None:
        return AnyValue()
    if isinstance(value, (list, tuple)):
        return AnyValue(array_value=ArrayValue(values=[_message(item) for item in cast("list[object]", value)]))
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=_pairs(cast("Mapping[str, object]", value)))
    field, content = _scalar(value)
    return AnyValue(**{field: content})


def _pairs(values: Mapping[str, object]) -> KeyValueList:
    return KeyValueList(values=[KeyValue(key=key, value=_message(value)) for key, value in values.items()])


def _read(value: Mapping[str, Any] | None) -> object:
    for field, content in (value or {}).items():
        if content is None:
            continue
        match field:
            case "string_value":
                return several_lines(content, TEXT_MAX_CHARS)
            case "array_value":
                return [_read_message(item) for item in ArrayValue.FromString(content).values]
            case "kvlist_value":
                return _read_pairs(KeyValueList.FromString(content).values)
            case _:
                return content
    return None


def _read_message(value: AnyValue) -> object:
    match value.WhichOneof("value"):
        case None:
            return None
        case "string_value":
            return several_lines(value.string_value, TEXT_MAX_CHARS)
        case "array_value":
            return [_read_message(item) for item in value.array_value.values]
        case "kvlist_value":
            return _read_pairs(value.kvlist_value.values)
        case field:
            return getattr(value, field)


def _read_pairs(pairs: Iterable[KeyValue]) -> dict[str, object]:
    return {one_line(pair.key): _read_message(pair.value) for pair in pairs}
