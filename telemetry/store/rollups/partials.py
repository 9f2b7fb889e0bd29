"""The roll-up of the turns in one table.

The same functions serve for a segment whose roll-up is kept and for turns that are rolled up when they are asked for.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, values are bound

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from telemetry.store.rollups import statements
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.database import Database, fetched, parquet
from telemetry.store.rollups.distributions import histograms
from telemetry.store.rollups.over_time import over_time
from telemetry.store.rollups.pairs import OPEN_COLUMNS, pair
from telemetry.store.rollups.rollup import SLOWEST, Key, Rollup, RollupCell, union_of_ranges, without_faster
from telemetry.store.rollups.rows import cells_of_rows, gathered, key_of
from telemetry.store.rollups.slots import NO_SLOTS
from telemetry.store.rollups.staged import NEEDED, Staged, TurnLabels, complete, stage
from telemetry.store.schema import TURN_FIELDS, ArrowTable, turn_from_row

_STAGED: Final = "staged"
_UNCOPIED: Final = "uncopied"
_COPIED_ROWS: Final = 1_024
pc: Any = pyarrow.compute  # pyarrow ships no types of its own

OF_OTHERS: Final = (*(name for name in OPEN_COLUMNS if name in NEEDED), "process_id", "sequence")


def partial(database: Database, turns: ArrowTable, labels: TurnLabels = NO_SLOTS) -> Rollup:
    """As `unpaired`, with its client and service turns brought together; the others stay open."""
    return pair(database, unpaired(database, turns, labels), is_last=False)


def unpaired(database: Database, turns: ArrowTable, labels: TurnLabels = NO_SLOTS) -> Rollup:
    """The roll-up of a table of turns (the columns `staged.NEEDED`), all of them open.

    The text of the slowest turns is not yet there (`with_slowest_turns`).
    """
    staged = stage(database, turns, labels)
    with _named(database, staged.table):
        cells = cells_of_rows(_with_groups(database, staged, statements.counted(staged)))
        cells |= _wide(database, staged)
        cells |= _slowest(database, staged)
        sequences = _sequences(database)
    cells |= gathered(histograms(staged))
    cells |= gathered(over_time(staged))
    return Rollup(cells, sequences, staged.table.select(OPEN_COLUMNS))


def of_others(database: Database, turns: ArrowTable) -> Rollup:
    """What is asked of the turns of other runs (the columns OF_OTHERS): which numbers arrived, and the turns of
    services, all of them open."""
    turns = complete(turns)
    with _named(database, turns):
        sequences = _sequences(database)
    services = turns.filter(pc.equal(turns.column("source"), "service"))
    for name in OPEN_COLUMNS:
        if name not in services.column_names:
            services = services.append_column(name, pa.nulls(services.num_rows, pa.string()))
    return Rollup({}, sequences, services.select(OPEN_COLUMNS))


@contextlib.contextmanager
def _named(database: Database, table: ArrowTable) -> Generator[None]:
    """Let statements name a table `staged`. One of few rows is copied: that takes less time than to begin to scan a
    table of Arrow some twenty times."""
    if table.num_rows > _COPIED_ROWS:
        database.register(_STAGED, table)
        try:
            yield
        finally:
            database.unregister(_STAGED)
        return
    database.register(_UNCOPIED, table)
    try:
        database.execute(f"CREATE OR REPLACE TEMP TABLE {_STAGED} AS SELECT * FROM {_UNCOPIED}")
        yield
    finally:
        database.unregister(_UNCOPIED)
        database.execute(f"DROP TABLE IF EXISTS {_STAGED}")


def _with_groups(database: Database, staged: Staged, statement: str) -> list[dict[str, object]]:
    return [staged.groups[row.pop("grp")] | row for row in fetched(database, statement)]


def _wide(database: Database, staged: Staged) -> dict[Key, RollupCell]:
    found: dict[Key, RollupCell] = {}
    for row in fetched(database, statements.wide()):
        group = staged.groups[row["grp"]]
        found[key_of("span", group, ())] = RollupCell(first=row["first"], last=row["last"])
        for column, value in row.items():
            what, _, name = column.partition("_")
            if what == "n" and value:
                found[key_of("count", group, (name,))] = RollupCell(n=value)
            elif what == "most" and value is not None:
                found[key_of("most", group, (name,))] = RollupCell(most=value)
    return found


def _slowest(database: Database, staged: Staged) -> dict[Key, RollupCell]:
    return without_faster(
        {
            key_of(SLOWEST, staged.groups[row["grp"]], (row["trace_id"], row["span_id"])): RollupCell(
                n=1, first=row["first"], most=row["most"]
            )
            for row in fetched(database, statements.slowest())
        }
    )


def _sequences(database: Database) -> dict[tuple[str, str], Ints]:
    ranges: dict[tuple[str, str], list[Ints]] = {}
    for row in fetched(database, statements.sequences()):
        one = np.array([[row["first"], row["last"]]], dtype=np.int64)
        ranges.setdefault((row["run_id"], row["process_id"]), []).append(one)
    return {process: union_of_ranges(found) for process, found in ranges.items()}


def lacking_text(rollup: Rollup) -> dict[Key, RollupCell]:
    """The cells of a roll-up's slowest turns that are without the turn's text."""
    return {key: cell for key, cell in rollup.cells.items() if key.part == SLOWEST and cell.text is None}


def with_slowest_turns(database: Database, rollup: Rollup, paths: Sequence[Path]) -> Rollup:
    """The roll-up with each of its slowest turns as JSON, read from the files that it was made of."""
    slow = lacking_text(rollup)
    identities = ", ".join("(?, ?)" for _ in slow)
    moments = ", ".join(sorted({str(cell.first) for cell in slow.values()}))
    texts: dict[tuple[str, str], str] = {}
    if slow and paths:
        with_columns = f"(SELECT * FROM no_turns UNION ALL BY NAME SELECT * FROM {parquet(paths)})"
        statement = f"""
            SELECT {", ".join(TURN_FIELDS)} FROM {with_columns}
            WHERE started_unix_ns IN ({moments}) AND source = 'client' AND (trace_id, span_id) IN ({identities})
            """
        for row in fetched(database, statement, [part for key in slow for part in key.labels]):
            # A row that a newer version wrote may be no turn to this one: it stays without text.
            with contextlib.suppress(msgspec.ValidationError):
                texts[row["trace_id"], row["span_id"]] = msgspec.json.encode(turn_from_row(row)).decode()
    for key, cell in slow.items():
        cell.text_at, cell.text = cell.first, texts.get((key.labels[0] or "", key.labels[1] or ""))
    return rollup
