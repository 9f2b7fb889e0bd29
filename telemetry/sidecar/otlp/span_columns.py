"""The columns of the store's spans table from a record batch of OTLP spans."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.model.spans import SPAN_KINDS, STATUS_CODES
from telemetry.sidecar.otlp.arrow_messages import ArrowArray, RecordBatch, compute
from telemetry.store.attribute_values import ATTRIBUTES_TYPE, VALUE_TYPE
from telemetry.store.schema import EVENTS_TYPE, LINKS_TYPE, SCHEMAS, ArrowTable

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_HEX: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
_KINDS: Final = pa.array(SPAN_KINDS)
_STATUS_CODES: Final = pa.array(STATUS_CODES)
# What stands for the trace id of a span that could not be read: of a length that no id has.
UNREADABLE_ID: Final = bytes(3)
# Numbers from here on do not fit the store's 64 bits with a sign.
_UNSIGNED_LIMIT: Final = np.uint64(2**63)


def spans_columns(spans: RecordBatch, attributes: ArrowArray, origin: dict[str, ArrowArray]) -> ArrowTable:
    """Spans as a table of the store, each whole. `attributes` are those to store, `origin` has the columns that come
    from the span's resource and scope. The spans have passed `fault_of_spans`."""
    starts, ends = _numbers(spans["start_time_unix_nano"]), _numbers(spans["end_time_unix_nano"])
    status = spans["status"]
    columns = {
        **origin,
        "timestamp_unix_ns": pa.array(starts.view(np.int64)),
        "trace_id": hex_text(spans["trace_id"]),
        "span_id": hex_text(spans["span_id"]),
        "parent_span_id": hex_text(spans["parent_span_id"], empty_is_null=True),
        "trace_state": spans["trace_state"],
        "span_name": spans["name"],
        "span_kind": _named(spans["kind"], _KINDS),
        "span_attributes": attributes,
        "duration_ns": pa.array((ends - starts).view(np.int64)),
        "status_code": _named(compute.struct_field(status, "code"), _STATUS_CODES),
        "status_message": compute.struct_field(status, "message").fill_null(""),
        "events": _events(spans["events"]),
        "links": _links(spans["links"]),
    }
    schema = SCHEMAS["spans"]
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def fault_masks(spans: RecordBatch) -> dict[str, Mask]:
    """What can be wrong with a span, as a sentence that follows its name, and which spans it is wrong with."""
    starts, ends = (_numbers(spans[name]) for name in ("start_time_unix_nano", "end_time_unix_nano"))
    events = spans["events"]
    beyond = any_of_list(events, _numbers(events.values.field(0)) >= _UNSIGNED_LIMIT)
    return {
        "a field of it, of its resource or its scope has another type than OTLP/JSON gives it": lengths(
            spans["trace_id"]
        )
        == len(UNREADABLE_ID),
        "its trace id is not 32 hex digits, or is all zeros": ~_is_id(spans["trace_id"], 16),
        "its span id is not 16 hex digits, or is all zeros": ~_is_id(spans["span_id"], 8),
        "its parent span id is not 16 hex digits": ~np.isin(lengths(spans["parent_span_id"]), (0, 8)),
        "a time of it cannot be read, or is too large to store (63 bits)": np.logical_or.reduce(
            [starts >= _UNSIGNED_LIMIT, ends >= _UNSIGNED_LIMIT, beyond]
        ),
        "its start time is missing or 0": starts == 0,
    }


def lengths(column: ArrowArray) -> Places:
    """How long each text, each bytes, or each list of a column is."""
    offsets = offsets_of(column)
    return (offsets[1:] - offsets[:-1]).astype(np.int64)


def stored_attributes(lists: ArrowArray) -> ArrowArray:
    """Lists of KeyValue with the store's type; nothing is copied."""
    pairs = lists.values
    values = pairs.field(1)
    children = [values.field(place) for place in range(7)]
    typed = pa.Array.from_buffers(VALUE_TYPE, len(values), [values.buffers()[0]], children=children)
    fields = list(ATTRIBUTES_TYPE.value_type)
    stored = pa.StructArray.from_arrays([pairs.field(0), typed], fields=fields)
    return pa.ListArray.from_arrays(lists.offsets, stored, type=ATTRIBUTES_TYPE)


def hex_text(column: ArrowArray, *, empty_is_null: bool = False) -> ArrowArray:
    """Bytes as hex digits."""
    offsets = offsets_of(column)
    data = column.buffers()[2]
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.zeros(0, np.uint8)
    moved = np.ascontiguousarray((offsets - offsets[0]) * 2)
    bitmap = None
    if empty_is_null:
        bitmap = pa.py_buffer(np.packbits(offsets[1:] > offsets[:-1], bitorder="little"))
    buffers = [bitmap, pa.py_buffer(moved), pa.py_buffer(_HEX[raw])]
    return pa.Array.from_buffers(pa.string(), len(column), buffers)


def offsets_of(column: ArrowArray) -> npt.NDArray[np.int32]:
    """Where each text, each bytes, or each list of a column begins, and where the last ends."""
    buffer = column.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32)[column.offset : column.offset + len(column) + 1]


def _numbers(column: ArrowArray) -> Any:
    return column.to_numpy(zero_copy_only=False)


def any_of_list(lists: ArrowArray, of_items: Mask) -> Mask:
    """For each list whether it has an item of which the mask is true."""
    if not of_items.any():
        return np.zeros(len(lists), np.bool_)
    before = np.concatenate([[0], np.cumsum(of_items)])
    offsets = offsets_of(lists)
    return before[offsets[1:]] > before[offsets[:-1]]


def _is_id(column: ArrowArray, size_bytes: int) -> Mask:
    right = np.asarray(lengths(column) == size_bytes, np.bool_)
    if right.all() and len(column):
        offsets = offsets_of(column)
        raw = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        return np.asarray(raw.reshape(-1, size_bytes).any(axis=1), np.bool_)
    return np.asarray(right & np.array([any(value) for value in column.to_pylist()], np.bool_), np.bool_)


def _named(numbers: ArrowArray, names: ArrowArray) -> ArrowArray:
    # Numbers of a newer version of OTLP, and none, are what 0 stands for: unspecified, unset.
    found = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return names.take(pa.array(np.where((found >= 0) & (found < len(names)), found, 0)))


def _events(events: ArrowArray) -> ArrowArray:
    items = events.values
    columns = [items.field(0).view(pa.int64()), items.field(1), stored_attributes(items.field(2))]
    return _list_of_structs(events, columns, EVENTS_TYPE)


def _links(links: ArrowArray) -> ArrowArray:
    items = links.values
    columns = [
        hex_text(items.field(0)),
        hex_text(items.field(1)),
        items.field(2),
        stored_attributes(items.field(3)),
    ]
    return _list_of_structs(links, columns, LINKS_TYPE)


def _list_of_structs(lists: ArrowArray, columns: list[ArrowArray], kind: Any) -> ArrowArray:
    items = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(lists.offsets, items, type=kind)
