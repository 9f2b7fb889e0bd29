"""Spans of the store as rows of `otel_traces`, the table that the OpenTelemetry Collector writes to ClickHouse.

Attributes are maps of text there: booleans and numbers are written out, lists and maps are JSON, bytes are base64.
"""

import base64
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList

from telemetry.store.attribute_values import ATTRIBUTES_TYPE
from telemetry.store.schema import ArrowTable

# pyarrow ships no types of its own.
_Array = Any
_compute: Any = pc

_TIMESTAMP: Final = pa.timestamp("ns", tz="UTC")
_ATTRIBUTES: Final = pa.map_(pa.string(), pa.string())
# The table's columns, in its order; columns of events and of links are parallel lists.
OTEL_TRACES_SCHEMA: Final[Any] = pa.schema(
    [
        ("Timestamp", _TIMESTAMP),
        ("TraceId", pa.string()),
        ("SpanId", pa.string()),
        ("ParentSpanId", pa.string()),
        ("TraceState", pa.string()),
        ("SpanName", pa.string()),
        ("SpanKind", pa.string()),
        ("ServiceName", pa.string()),
        ("ResourceAttributes", _ATTRIBUTES),
        ("ScopeName", pa.string()),
        ("ScopeVersion", pa.string()),
        ("SpanAttributes", _ATTRIBUTES),
        ("Duration", pa.uint64()),
        ("StatusCode", pa.string()),
        ("StatusMessage", pa.string()),
        ("Events.Timestamp", pa.list_(_TIMESTAMP)),
        ("Events.Name", pa.list_(pa.string())),
        ("Events.Attributes", pa.list_(_ATTRIBUTES)),
        ("Links.TraceId", pa.list_(pa.string())),
        ("Links.SpanId", pa.list_(pa.string())),
        ("Links.TraceState", pa.list_(pa.string())),
        ("Links.Attributes", pa.list_(_ATTRIBUTES)),
    ]
)


def otel_traces(spans: ArrowTable) -> ArrowTable:
    """Rows of the store's table `spans` as rows of `otel_traces`."""
    columns = {name: _one_chunk(spans.column(name)) for name in spans.schema.names}
    events, links = columns["events"], columns["links"]
    arrays: list[_Array] = [
        columns["timestamp_unix_ns"].cast(_TIMESTAMP),
        *(_text(columns[name]) for name in ("trace_id", "span_id", "parent_span_id", "trace_state")),
        *(_text(columns[name]) for name in ("span_name", "span_kind", "service_name")),
        _attributes(columns["resource_attributes"]),
        *(_text(columns[name]) for name in ("scope_name", "scope_version")),
        _attributes(columns["span_attributes"]),
        _compute.max_element_wise(columns["duration_ns"], 0).cast(pa.uint64()),
        *(_text(columns[name]) for name in ("status_code", "status_message")),
        _each(events, _field(events, "timestamp_unix_ns").cast(_TIMESTAMP)),
        _each(events, _text(_field(events, "name"))),
        _each(events, _attributes(_field(events, "attributes"))),
        *(_each(links, _text(_field(links, name))) for name in ("trace_id", "span_id", "trace_state")),
        _each(links, _attributes(_field(links, "attributes"))),
    ]
    return pa.Table.from_arrays(arrays, schema=OTEL_TRACES_SCHEMA)


def spans_of_otel_traces(table: ArrowTable, schema: Any) -> ArrowTable:
    """Rows of `otel_traces` as rows of the store's table `spans`. Values of attributes are texts there, and stay so."""
    columns = {name: _one_chunk(table.column(name)) for name in table.schema.names}
    arrays: list[_Array] = [
        columns["Timestamp"].cast(pa.int64()),
        *(columns[name] for name in ("TraceId", "SpanId", "ParentSpanId", "TraceState")),
        *(columns[name] for name in ("SpanName", "SpanKind", "ServiceName")),
        _pairs_of_texts(columns["ResourceAttributes"]),
        *(columns[name] for name in ("ScopeName", "ScopeVersion")),
        _pairs_of_texts(columns["SpanAttributes"]),
        columns["Duration"].cast(pa.int64()),
        *(columns[name] for name in ("StatusCode", "StatusMessage")),
        _structs(
            columns["Events.Timestamp"],
            schema.field("events").type,
            [
                _compute.list_flatten(columns["Events.Timestamp"]).cast(pa.int64()),
                _compute.list_flatten(columns["Events.Name"]),
                _pairs_of_texts(_compute.list_flatten(columns["Events.Attributes"])),
            ],
        ),
        _structs(
            columns["Links.TraceId"],
            schema.field("links").type,
            [
                *(_compute.list_flatten(columns[f"Links.{name}"]) for name in ("TraceId", "SpanId", "TraceState")),
                _pairs_of_texts(_compute.list_flatten(columns["Links.Attributes"])),
            ],
        ),
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _structs(lists: _Array, kind: Any, fields: list[_Array]) -> _Array:
    """Fields of the items of lists, one after another, as lists of structs of the same lengths."""
    structs = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(_offsets(lists), structs, kind)


def _pairs_of_texts(maps: _Array) -> _Array:
    """Maps of texts as the store's attributes."""
    pairs = [
        [{"key": key, "value": {"string_value": text}} for key, text in entries or ()] for entries in maps.to_pylist()
    ]
    return pa.array(pairs, ATTRIBUTES_TYPE)


def _one_chunk(column: _Array) -> _Array:
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _text(column: _Array) -> _Array:
    return _compute.fill_null(column, "")


def _field(lists: _Array, name: str) -> _Array:
    """A field of the structs in lists, one after another."""
    return _compute.struct_field(_compute.list_flatten(lists), name)


def _offsets(lists: _Array) -> _Array:
    lengths = _compute.fill_null(_compute.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), _compute.cumulative_sum(lengths).cast(pa.int32())])


def _each(lists: _Array, values: _Array) -> _Array:
    """Values of the items of lists, as lists of the same lengths; empty where there is no list."""
    return pa.ListArray.from_arrays(_offsets(lists), values)


def _attributes(lists: _Array) -> _Array:
    pairs = _compute.list_flatten(lists)
    keys = _text(_compute.struct_field(pairs, "key"))
    return pa.MapArray.from_arrays(_offsets(lists), keys, _texts(_compute.struct_field(pairs, "value")))


def _texts(values: _Array) -> _Array:
    """Typed values of attributes as text."""
    kinds = [_compute.struct_field(values, name) for name in ("string_value", "bool_value", "int_value")]
    double = _compute.struct_field(values, "double_value").cast(pa.string())
    written = [
        pa.array([None if content is None else write(content) for content in kind.to_pylist()], pa.string())
        for name, write in (("array_value", _array), ("kvlist_value", _pairs), ("bytes_value", _base64))
        if (kind := _compute.struct_field(values, name)).null_count < len(kind)
    ]
    return _text(_compute.coalesce(*(kind.cast(pa.string()) for kind in kinds), double, *written))


def _array(message: bytes) -> str:
    return _json([_plain(value) for value in ArrayValue.FromString(message).values])


def _pairs(message: bytes) -> str:
    return _json(_plain(AnyValue(kvlist_value=KeyValueList.FromString(message))))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _plain(value: AnyValue) -> object:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {pair.key: _plain(pair.value) for pair in value.kvlist_value.values}
        case "bytes_value":
            return _base64(value.bytes_value)
        case field:
            return getattr(value, field)
