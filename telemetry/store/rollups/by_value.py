"""Cells of turns told apart by the values of the other dimensions, so that a page that is narrowed by them reads sums.

A combination of values stands in a cell's key where otherwise the slot stands. A segment has such cells where they are
far fewer than its turns.
"""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.store.answers import Filter
from telemetry.store.rollups.rollup import OTHER_DIMENSIONS
from telemetry.store.schema import ArrowTable

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# Of more combinations, and where fewer turns belong to one on average, the turns are read when they are asked for.
MOST_COMBINATIONS: Final = 256
TURNS_OF_ONE: Final = 250
_BETWEEN: Final = "\x1f"


class ValueLabels:
    """Names turns by their combination of values; an empty one and none are the same."""

    def names_in(self, turns: ArrowTable) -> Any:
        """The combination of each turn, as text."""
        # Of a value with the separator in it, `may_ask` keeps questions away.
        columns = [pc.replace_substring(_values(turns, name), _BETWEEN, " ") for name in OTHER_DIMENSIONS]
        return pc.binary_join_element_wise(*columns, _BETWEEN)


VALUES: Final = ValueLabels()


def is_narrowed(f: Filter) -> bool:
    """Whether a filter asks for values of the other dimensions."""
    return any(asked is not None for asked in _asked(f))


def may_ask(f: Filter) -> bool:
    """Whether the names of combinations tell the values that a filter asks for."""
    return not any(asked == "" or _BETWEEN in (asked or "") for asked in _asked(f))


def is_asked(name: str, f: Filter) -> bool:
    """Whether a filter means the turns of a combination."""
    return all(asked in (None, value) for asked, value in zip(_asked(f), name.split(_BETWEEN), strict=True))


def of_values(turns: ArrowTable, f: Filter) -> Any:
    """Where turns have the values that a filter asks for."""
    found: Any = pa.repeat(pa.scalar(True), turns.num_rows)
    for name, asked in zip(OTHER_DIMENSIONS, _asked(f), strict=True):
        if asked is not None:
            found = pc.and_(found, pc.equal(_values(turns, name), asked))
    return found


def narrowed(cells: ArrowTable, f: Filter) -> ArrowTable:
    """The rows of cells of the combinations that a filter asks for."""
    names = [name for name in pc.unique(cells.column("slot")).to_pylist() if is_asked(name, f)]
    return cells.filter(pc.is_in(cells.column("slot"), pa.array(names, pa.string())))


def narrowed_open(open_turns: ArrowTable, f: Filter) -> ArrowTable:
    """The open turns of the client with the values that a filter asks for, and those of the service."""
    is_of_client = pc.equal(open_turns.column("source"), "client")
    return open_turns.filter(pc.or_(pc.invert(is_of_client), of_values(open_turns, f)))


def are_few(path: Path, turns_of_one: int) -> bool:
    """Whether a combination of values in a segment has so many turns of the client on average, and there are few."""
    with pq.ParquetFile(path) as file:
        known = set(file.schema_arrow.names)
        turns = file.read(columns=[name for name in ("source", *OTHER_DIMENSIONS) if name in known])
    of_client = turns.filter(pc.equal(turns.column("source"), "client"))
    combinations = pc.count_distinct(VALUES.names_in(of_client)).as_py()
    return combinations <= MOST_COMBINATIONS and combinations * turns_of_one <= of_client.num_rows


def _asked(f: Filter) -> tuple[str | None, ...]:
    return tuple(getattr(f, name) for name in OTHER_DIMENSIONS)


def _values(turns: ArrowTable, name: str) -> Any:
    if name not in turns.column_names:
        return pa.chunked_array([pa.repeat(pa.scalar("", pa.string()), turns.num_rows)])
    return turns.column(name).cast(pa.string()).fill_null("")
