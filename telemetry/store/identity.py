"""The identity of a row of the store: computed for whole tables, the same for new rows and for stored ones."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.store.point_rows import NUMBER_KINDS
from telemetry.store.schema import TIME_COLUMNS, ArrowTable, Table

# pyarrow ships no types of its own.
_Column = Any
_compute: Any = pc

# The identity of a row: the columns that `keys` needs of a table.
KEY_COLUMNS: Final[Mapping[Table, tuple[str, ...]]] = {
    "turns": ("trace_id", "span_id", "run_id", "call_id", "turn_index", "source"),
    "spans": ("trace_id", "span_id"),
    "points": ("name", "unix_ns", "service", "attributes", "kind"),
}
_KIND: Final = "kind"
_SEPARATOR: Final = b"\0"
# Of each table; an identity takes some 100 bytes.
RECENT_MAX: Final = 500_000
_PERIOD_NS: Final = 10_000_000_000


def keys(table: Table, content: ArrowTable) -> list[bytes]:
    """The identity of each row: its ids; for a turn without ids its position in the call; for a point its name,
    process, time and kind."""
    columns = [_binary(content.column(name)) for name in KEY_COLUMNS[table] if name != _KIND]
    if table == "points":
        columns[3] = _digests_in_one_order(columns[3])
        columns.append(_kinds(content))
        combined = _concatenated(columns)
    elif table == "spans":
        combined = _concatenated(columns)
    else:
        combined = _concatenated(columns[:2])
        without_ids = _compute.equal(combined, pa.scalar(_SEPARATOR, pa.binary()))
        if _compute.any(without_ids).as_py():
            combined = _compute.if_else(without_ids, _concatenated(columns[2:]), combined)
    row_keys: list[bytes] = combined.to_numpy(zero_copy_only=False).tolist()
    return row_keys


class RecentIdentities:
    """The identities of all stored rows of a table with a time of `since_ns` or later, at most some `RECENT_MAX`; for
    older rows the table itself is searched."""

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self._by_period: dict[int, set[bytes]] = {}
        self._count = 0

    def among(self, rows: Iterable[tuple[bytes, int]]) -> set[bytes]:
        """Return which of these rows, given with their times, are known."""
        return {key for key, moment in rows if key in self._by_period.get(moment // _PERIOD_NS, ())}

    def add(self, rows: Iterable[tuple[bytes, int]]) -> None:
        """Add further rows; the oldest ones are dropped for them."""
        for key, moment in rows:
            if moment >= self.since_ns:
                self._by_period.setdefault(moment // _PERIOD_NS, set()).add(key)
                self._count += 1
        while self._count > RECENT_MAX:
            oldest = min(self._by_period)
            self._count -= len(self._by_period.pop(oldest))
            self.since_ns = (oldest + 1) * _PERIOD_NS


def moments(table: Table, content: ArrowTable) -> list[int]:
    """The time of each row in nanoseconds since 1970; 0 if it is unknown."""
    unix_ns: list[int] = _compute.fill_null(_flat(content.column(TIME_COLUMNS[table])), 0).to_pylist()
    return unix_ns


def _concatenated(columns: list[_Column]) -> _Column:
    return _compute.binary_join_element_wise(*columns, pa.scalar(_SEPARATOR, pa.binary()))


def _binary(column: _Column) -> _Column:
    flat = _flat(column)
    if pa.types.is_integer(flat.type):
        flat = flat.cast(pa.string())
    return _compute.fill_null(flat.cast(pa.binary()), b"")


def _flat(column: _Column) -> _Column:
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    # Without rows, older versions of pyarrow leave an array of no chunks.
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _kinds(points: ArrowTable) -> _Column:
    """The kinds of points, empty for numbers."""
    kinds = _binary(points.column(_KIND))
    numbers = _compute.is_in(kinds, pa.array([kind.encode() for kind in NUMBER_KINDS], pa.binary()))
    return _compute.if_else(numbers, pa.scalar(b"", pa.binary()), kinds)


def _digests_in_one_order(attributes: _Column) -> _Column:
    """Digests of JSON objects that do not depend on the order of keys: two senders' orders are one point."""
    encoded = attributes.dictionary_encode()  # few are distinct
    digests = [_digest(_sorted_json(text)) for text in encoded.dictionary.to_pylist()]
    return pa.array(digests, pa.binary()).take(encoded.indices)


def _sorted_json(text: bytes) -> bytes:
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError:
        return text


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()
