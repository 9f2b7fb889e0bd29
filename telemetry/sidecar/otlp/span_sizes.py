"""How many bytes spans take that hold what their columns say, and nothing else.

A span that takes another number of bytes holds something that is not read: an unknown field, a value that was set
twice, numbers that are longer than they need to be. Lists of pairs within attributes are not looked into.
"""

from typing import Any, Final

import numpy as np

from telemetry.sidecar.otlp.arrow_messages import ArrowArray, RecordBatch, compute
from telemetry.sidecar.otlp.span_columns import Places, lengths, offsets_of

_VARINTS: Final = np.array([2 ** (7 * n) for n in range(1, 10)], np.uint64)
_BOOL, _INT, _DOUBLE = 1, 2, 3
_TEXTS: Final = (0, 4, 5, 6)


def span_sizes(spans: RecordBatch, of_attributes: Places) -> Places:
    """The size of each span, in bytes; `of_attributes` has the sizes of its attributes' values (`value_sizes`)."""
    found = _pairs(spans["attributes"], of_attributes)
    for name in ("trace_id", "span_id", "trace_state", "parent_span_id", "name"):
        found += _text(spans[name])
    for name in ("kind", "dropped_attributes", "dropped_events", "dropped_links"):
        found += _number(spans[name])
    for name in ("start_time_unix_nano", "end_time_unix_nano"):
        found += 9 * _is_set(spans[name])
    found += 6 * _is_set(spans["flags"])
    found += _events(spans["events"]) + _links(spans["links"])
    status = spans["status"]
    content = _text(compute.struct_field(status, "message")) + _number(compute.struct_field(status, "code"))
    return found + _field(content) * status.is_valid().to_numpy(zero_copy_only=False)


def value_sizes(values: ArrowArray) -> Places:
    """The size of each AnyValue of a struct array."""
    found = np.zeros(len(values), np.int64)
    for place in _TEXTS:
        child = values.field(place)
        if child.null_count < len(child):
            found += _field(lengths(child)) * _valid(child)
    for place, size in ((_BOOL, 2), (_DOUBLE, 9)):
        child = values.field(place)
        if child.null_count < len(child):
            found += size * _valid(child)
    integers = values.field(_INT)
    if integers.null_count < len(integers):
        numbers = integers.fill_null(0).to_numpy(zero_copy_only=False)
        found += (1 + _varint(numbers.view(np.uint64))) * _valid(integers)
    return found


def array_sizes(items: ArrowArray) -> Places:
    """The size of each ArrayValue with these items."""
    return _sums(_field(value_sizes(items.values)), items)


def _pairs(lists: ArrowArray, of_values: Places) -> Places:
    """What lists of attributes add to their messages."""
    pairs = lists.values
    keys = lengths(pairs.field(0))
    content = _field(keys) * (keys > 0) + _field(of_values) * _valid(pairs.field(1))
    return _sums(_field(content), lists)


def _events(events: ArrowArray) -> Places:
    items = events.values
    if not len(items):
        return np.zeros(len(events), np.int64)
    of_pairs = _pairs(items.field(2), value_sizes(items.field(2).values.field(1)))
    content = 9 * _is_set(items.field(0)) + _text(items.field(1)) + of_pairs + _number(items.field(3))
    return _sums(_field(content), events)


def _links(links: ArrowArray) -> Places:
    items = links.values
    if not len(items):
        return np.zeros(len(links), np.int64)
    content = _pairs(items.field(3), value_sizes(items.field(3).values.field(1)))
    for place in (0, 1, 2):
        content += _text(items.field(place))
    content += _number(items.field(4)) + 5 * _is_set(items.field(5))
    return _sums(_field(content), links)


def _field(content: Places) -> Places:
    """A field of bytes with its number and its length."""
    found = content + 2
    if len(content) and content.max() >= 1 << 7:
        found += content >= 1 << 7
        found += content >= 1 << 14
        found += content >= 1 << 21
    return found


def _text(column: ArrowArray) -> Places:
    size = lengths(column)
    return _field(size) * (size > 0)


def _number(column: ArrowArray) -> Places:
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    if not numbers.any():
        return np.zeros(len(numbers), np.int64)
    return (1 + _varint(numbers.astype(np.int64).view(np.uint64))) * (numbers != 0)


def _varint(numbers: Any) -> Places:
    return 1 + np.searchsorted(_VARINTS, numbers, side="right").astype(np.int64)


def _is_set(column: ArrowArray) -> Any:
    return column.fill_null(0).to_numpy(zero_copy_only=False) != 0


def _valid(column: ArrowArray) -> Any:
    return True if not column.null_count else column.is_valid().to_numpy(zero_copy_only=False)


def _sums(of_items: Places, lists: ArrowArray) -> Places:
    before = np.concatenate([[0], np.cumsum(of_items)])
    offsets = offsets_of(lists)
    return before[offsets[1:]] - before[offsets[:-1]]
