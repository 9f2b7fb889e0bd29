"""Spans of OTLP as rows of the store, and the reasons why a span is refused.

The content of one span is limited. A span beyond the limits is refused by name and not cut: a row is complete, or it
does not exist.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.turn_spans import SPAN_KINDS, STATUS_CODES
from telemetry.sidecar.otlp.attributes import StoredPairs, stored_pairs
from telemetry.store.attribute_values import ATTRIBUTES_TYPE, VALUE_TYPE
from telemetry.store.schema import EVENTS_TYPE, LINKS_TYPE, SCHEMAS, ArrowTable

# Of one span: attributes, events and links each; and of an event, a link and a resource: attributes.
PARTS_MAX: Final = 1000
# Of all spans of one request together, where each span repeats the attributes of its resource.
REQUEST_PARTS_MAX: Final = 1_000_000
# Names of spans, events, scopes and attributes, and trace states; texts of attributes are as long as a span may be.
NAME_BYTES_MAX: Final = 4096
TOO_MANY_PARTS: Final = (
    f"the spans of the request have more than {REQUEST_PARTS_MAX} attributes, events and links together; "
    "send smaller batches"
)
# The placeholder for the trace id of a span that could not be read: of a length that no id has.
UNREADABLE_ID: Final = bytes(3)
_INT64_LIMIT: Final = 2**63
_NAME_SURELY_FITS: Final = NAME_BYTES_MAX // 4
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_SERVICE_NAME: Final = "service.name"
_TOO_MANY_ATTRIBUTES: Final = f"an event, a link or the resource of it has more than {PARTS_MAX} attributes"
_LONG_NAME: Final = f"a name of it is longer than {NAME_BYTES_MAX} bytes"
_VALUE_FIELDS: Final = {field.name: place for place, field in enumerate(VALUE_TYPE)}
_NO_FIELD: Final = -1

SpanRow = tuple[Any, ...]


class Origin:
    """A resource in the form that its spans repeat, and its fault."""

    def __init__(self, resource: Resource) -> None:
        self.parts = len(resource.attributes)
        self.fault = _TOO_MANY_ATTRIBUTES if self.parts > PARTS_MAX else None
        self.attributes = () if self.fault else stored_pairs(resource.attributes)
        if any(map(_is_long, self.attributes[::3])):
            self.fault = _LONG_NAME
        named = [pair.value.string_value for pair in resource.attributes if pair.key == _SERVICE_NAME]
        self.service = named[-1] if named else ""


class Scope(NamedTuple):
    """An instrumentation scope."""

    name: str
    version: str
    is_long: bool

    @classmethod
    def of(cls, scope: InstrumentationScope) -> "Scope":
        """The scope of a message."""
        return cls(scope.name, scope.version, _is_long(scope.name) or _is_long(scope.version))


def examined(span: Span, origin: Origin, scope: Scope) -> tuple[int, str | None]:
    """Return the number of attributes, events and links of a span, including those of its events, links and resource,
    and why it is refused, as a sentence that follows its name."""
    events, links, attribute_count = span.events, span.links, len(span.attributes)
    item_sizes = [len(item.attributes) for item in (*events, *links)]
    parts = attribute_count + origin.parts + len(item_sizes) + sum(item_sizes)
    if (fault := _invalid(span)) is not None:
        return parts, fault
    for name, count in (("attributes", attribute_count), ("events", len(events)), ("links", len(links))):
        if count > PARTS_MAX:
            return parts, f"it has more than {PARTS_MAX} {name}"
    if origin.fault == _TOO_MANY_ATTRIBUTES or (item_sizes and max(item_sizes) > PARTS_MAX):
        return parts, _TOO_MANY_ATTRIBUTES
    is_long = origin.fault is not None or scope.is_long
    if is_long or (span.ByteSize() > NAME_BYTES_MAX and any(map(_is_long, _names(span)))):
        return parts, _LONG_NAME
    return parts, None


def _invalid(span: Span) -> str | None:
    trace_id, span_id = span.trace_id, span.span_id
    if len(trace_id) == len(UNREADABLE_ID):
        return "a field of it, of its resource or its scope has another type than OTLP/JSON gives it"
    if len(trace_id) != 16 or trace_id == _NO_TRACE:
        return "its trace id is not 32 hex digits, or is all zeros"
    if len(span_id) != 8 or span_id == _NO_SPAN:
        return "its span id is not 16 hex digits, or is all zeros"
    if len(span.parent_span_id) not in (0, 8):
        return "its parent span id is not 16 hex digits"
    start = span.start_time_unix_nano
    if max([start, span.end_time_unix_nano, *[event.time_unix_nano for event in span.events]]) >= _INT64_LIMIT:
        return "a time of it cannot be read, or is too large to store (63 bits)"
    return "its start time is missing or 0" if start == 0 else None


def _names(span: Span) -> Iterator[str]:
    yield span.name
    yield span.trace_state
    yield from (event.name for event in span.events)
    yield from (link.trace_state for link in span.links)
    for item in (span, *span.events, *span.links):
        yield from (pair.key for pair in item.attributes)


def _is_long(name: str) -> bool:
    return len(name) > _NAME_SURELY_FITS and len(name.encode()) > NAME_BYTES_MAX


def span_row(span: Span, origin: Origin, scope: Scope, attributes: StoredPairs) -> SpanRow:
    """The row of an accepted span with these attributes. Raises NestedTooDeeply."""
    start, kind, status = span.start_time_unix_nano, span.kind, span.status
    code = status.code
    return (
        start,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex() or None,
        span.trace_state,
        span.name,
        # Numbers of a newer version of OTLP are read as 0: unspecified, unset.
        SPAN_KINDS[kind if 0 <= kind < len(SPAN_KINDS) else 0],
        origin,
        scope.name,
        scope.version,
        attributes,
        span.end_time_unix_nano - start,
        STATUS_CODES[code if 0 <= code < len(STATUS_CODES) else 0],
        status.message,
        [(event.time_unix_nano, event.name, stored_pairs(event.attributes)) for event in span.events],
        [
            (link.trace_id.hex(), link.span_id.hex(), link.trace_state, stored_pairs(link.attributes))
            for link in span.links
        ],
    )


def spans_table(rows: Sequence[SpanRow]) -> ArrowTable:
    """Rows of spans as a table of the store's schema."""
    schema = SCHEMAS["spans"]
    if not rows:
        return pa.Table.from_batches([], schema=schema)
    columns = dict(zip([name for name in schema.names if name != "service_name"], zip(*rows, strict=True), strict=True))
    origins: tuple[Origin, ...] = columns.pop("resource_attributes")
    place_of = {origin: place for place, origin in enumerate(dict.fromkeys(origins))}
    origin_indices = pa.array([place_of[origin] for origin in origins], pa.int32())
    columns |= {
        "resource_attributes": _pairs_column([origin.attributes for origin in place_of]).take(origin_indices),
        "service_name": pa.array([origin.service for origin in origins], pa.string()),
        "span_attributes": _pairs_column(columns["span_attributes"]),
        "events": _items_column(columns["events"], EVENTS_TYPE),
        "links": _items_column(columns["links"], LINKS_TYPE),
    }
    arrays = [
        column if isinstance(column := columns[field.name], pa.Array) else pa.array(column, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _items_column(lists: Sequence[Sequence[tuple[Any, ...]]], kind: Any) -> Any:
    """A column of events or links: tuples of their fields, the attributes last."""
    fields = list(kind.value_type)
    columns = [*zip(*chain.from_iterable(lists), strict=True)] or [()] * len(fields)
    arrays = [pa.array(column, field.type) for column, field in zip(columns[:-1], fields, strict=False)]
    items = pa.StructArray.from_arrays([*arrays, _pairs_column(columns[-1])], fields=fields)
    return pa.ListArray.from_arrays(_offsets(lists), items, type=kind)


def _pairs_column(lists: Sequence[StoredPairs]) -> Any:
    """A column of attributes as the store keeps them: one field per value type, of which one is set."""
    flat = [*chain.from_iterable(lists)]
    keys, kinds, contents = flat[::3], flat[1::3], flat[2::3]
    field_of = np.array([_VALUE_FIELDS.get(kind, _NO_FIELD) for kind in kinds], np.int8)
    children: list[Any] = []
    for place, field in enumerate(VALUE_TYPE):
        is_set = field_of == place
        if not is_set.any():
            children.append(pa.nulls(len(keys), field.type))
            continue
        typed = pa.array([*compress(contents, is_set)], field.type)
        children.append(typed.take(pa.array(np.cumsum(is_set) - 1, mask=~is_set)))
    is_absent = np.array(
        [kind is None and not content for kind, content in zip(kinds, contents, strict=True)], np.bool_
    )
    values = pa.StructArray.from_arrays(children, fields=list(VALUE_TYPE), mask=pa.array(is_absent))
    pairs = pa.StructArray.from_arrays([pa.array(keys, pa.string()), values], fields=list(ATTRIBUTES_TYPE.value_type))
    return pa.ListArray.from_arrays(_offsets(lists, 3), pairs, type=ATTRIBUTES_TYPE)


def _offsets(lists: Iterable[Sequence[Any]], entries_per_item: int = 1) -> Any:
    """Return the offset of each list, and the end of the last; an item takes `entries_per_item` entries of its list."""
    return pa.array(np.cumsum([0, *map(len, lists)], dtype=np.int64) // entries_per_item, pa.int32())
