"""The turns of each run in each segment of a store, and of those the turns that a filter means.

A segment never changes: what it holds is read once, or taken from its roll-up. Of a filter that asks for more than a
run and a cohort, and at the ends of its time, the turns are read.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from telemetry.model.errors import StoreError
from telemetry.model.semconv import RAMP, Source
from telemetry.store.answers import Filter
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.manifest import SEGMENTS_FOLDER, Segment
from telemetry.store.queries import ASKED, Condition, is_all_within, judged, may_be_within
from telemetry.store.rollups import files
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.rollup import Rollup
from telemetry.store.rollups.statements import LISTED, SILENT
from telemetry.store.rollups.windows import can_hold

_TURNS: Final = "turns"
_PROCESSES: Final = "process"
_VALUE: Final = "value_"
_PARTS: Final = frozenset({_TURNS, _PROCESSES, files.SEQUENCES, *(_VALUE + name for name in LISTED)})
# What a filter may ask for and still be answered of whole segments.
_BY_SEGMENT: Final = ("run_id", "cohort", "since_unix_ns", "until_unix_ns")
_STEADY: Final = f"phase_kind IS DISTINCT FROM '{RAMP}'"
_STATEMENT: Final = f"""
    SELECT file, run_id, cohort, process_id, count(*) FILTER ({ASKED} AND {_STEADY}) AS total,
           count(*) FILTER ({ASKED} AND {_STEADY} AND outcome = 'invalid') AS invalid,
           max(ended_unix_ns) AS last_unix_ns,
           {", ".join(f"array_agg(DISTINCT {name}) FILTER (WHERE {name} IS NOT NULL) AS {name}" for name in LISTED)}
    FROM one_by_one WHERE source = 'client' GROUP BY file, run_id, cohort, process_id
    """
# The numbers that arrived, as ranges without a hole.
_NUMBERS: Final = """
    SELECT file, run_id, process_id, min(sequence) AS first, max(sequence) AS last FROM (
        SELECT file, run_id, process_id, sequence,
               sequence - row_number() OVER (PARTITION BY file, run_id, process_id ORDER BY sequence) AS island
        FROM (SELECT DISTINCT file, run_id, process_id, sequence FROM one_by_one
              WHERE sequence IS NOT NULL AND process_id <> ''))
    GROUP BY file, run_id, process_id, island
    """


@dataclass(frozen=True, slots=True)
class CountedTurns:
    """Turns that were asked something and are of no ramp."""

    total: int = 0
    invalid: int = 0

    @property
    def valid(self) -> int:
        """Those that say something about the service."""
        return self.total - self.invalid

    def __add__(self, other: "CountedTurns") -> "CountedTurns":
        return CountedTurns(self.total + other.total, self.invalid + other.invalid)


@dataclass(frozen=True, slots=True)
class SegmentNumbers:
    """The sequence numbers that a process gave turns of a run in one segment, as ranges `[first, last]`."""

    run_id: str
    process_id: str
    ranges: Ints


@dataclass(frozen=True, slots=True)
class SegmentTurns:
    """Turns of callers in one segment, of one run and cohort, and of one process.

    From a roll-up, what is known of them comes in several rows: turns without a `process_id`, each value that occurs in
    other dimensions, processes without turns, and the `numbers` of one process, of either source.
    """

    file: str
    run_id: str
    cohort: str | None
    process_id: str
    turns: CountedTurns
    last_unix_ns: int
    values: Mapping[str, tuple[str, ...]]
    is_rolled_up: bool
    numbers: SegmentNumbers | None


def turns_of_callers(connection: StoreConnection) -> Iterator[SegmentTurns]:
    """Those of every segment of the store."""
    return (each for each in _turns_of_segments(connection) if each.numbers is None)


def numbers_of_segments(connection: StoreConnection) -> list[SegmentNumbers]:
    """The sequence numbers of every segment of the store."""
    rolled_up: dict[str, list[Row]] = {}
    for each in _turns_of_segments(connection):
        if each.is_rolled_up:
            rolled_up.setdefault(each.file, []).extend([] if each.numbers is None else [{"numbers": each.numbers}])
    return connection.read_of_each_segment(
        "numbers of runs", "turns", _NUMBERS, lambda _folder, segment: rolled_up.get(segment.file), _read_numbers
    )


def _turns_of_segments(connection: StoreConnection) -> list[SegmentTurns]:
    return connection.read_of_each_segment("turns of runs", "turns", _STATEMENT, _rolled_up, _read)


def turns_by_run(connection: StoreConnection, f: Filter, source: Source) -> dict[str, CountedTurns]:
    """By run, the turns of a source that a filter means."""
    if source == "service" or not is_by_segment(f):
        return counted_by_run(connection, "turns", f, source)
    whole, cut = _segments_of(connection, f)
    found: defaultdict[str, CountedTurns] = defaultdict(CountedTurns)
    for row in turns_of_callers(connection):
        if row.file in whole and row.turns.total and f.run_id in (None, row.run_id) and f.cohort in (None, row.cohort):
            found[row.run_id] += row.turns
    if cut:
        connection.view("turns_of_cut_segments", "turns", cut)
        for run_id, turns in counted_by_run(connection, "turns_of_cut_segments", f, source).items():
            found[run_id] += turns
    return dict(found)


def values_of_turns(connection: StoreConnection, f: Filter, source: Source) -> dict[str, tuple[str, ...]]:
    """The values of each dimension that a page may be narrowed by, among the turns of a source of the filter's run and
    time, whatever else it asks for; of a segment that the time begins or ends in, those of all its turns."""
    names = ("cohort", *LISTED)
    found: dict[str, set[str]] = {name: set() for name in names}
    if source == "service":
        meant = Filter(f.run_id, since_unix_ns=f.since_unix_ns, until_unix_ns=f.until_unix_ns)
        where = judged(meant) & Condition("source = ?", (source,))
        lists = ", ".join(f"array_agg(DISTINCT {name}) AS {name}" for name in names)
        (row,) = rows(connection, f"SELECT {lists} FROM turns WHERE {where.sql}", list(where.values))
        for name in names:
            found[name].update(row[name] or ())
    else:
        whole, cut = _segments_of(connection, f)
        near = whole | {segment.file for segment in cut}
        for of_segment in turns_of_callers(connection):
            if of_segment.file in near and f.run_id in (None, of_segment.run_id):
                found["cohort"].add(of_segment.cohort or "")
                for name, values in of_segment.values.items():
                    found[name].update(values)
    return {name: tuple(sorted(value for value in values if value)) for name, values in found.items()}


def is_by_segment(f: Filter) -> bool:
    """Whether a filter asks for no more than a run, a cohort and a time."""
    return all(getattr(f, name) is None for name in f.__dataclass_fields__ if name not in _BY_SEGMENT)


def _segments_of(connection: StoreConnection, f: Filter) -> tuple[set[str], list[Segment]]:
    """The files of the segments whose turns all began within the filter's time, and the segments of which only some
    did, or may have; none that cannot hold its run."""
    whole, cut = set[str](), list[Segment]()
    for segment in connection.segments("turns"):
        first, last = segment.first_unix_ns, segment.last_unix_ns
        if not can_hold(segment, f.run_id):
            continue
        if first is None or last is None:
            cut.append(segment)
        elif is_all_within(f, first, last):
            whole.add(segment.file)
        elif may_be_within(f, first, last):
            cut.append(segment)
    return whole, cut


def counted_by_run(connection: StoreConnection, view: str, f: Filter, source: Source) -> dict[str, CountedTurns]:
    """As `turns_by_run`, of the turns of a view or a table."""
    where = judged(f) & Condition(f"{ASKED} AND source = ?", (source,))
    statement = f"""
        SELECT run_id, count(*) AS total, count(*) FILTER (outcome = 'invalid') AS invalid
        FROM {view} WHERE {where.sql} GROUP BY run_id
        """
    found = rows(connection, statement, list(where.values))
    return {row["run_id"]: CountedTurns(row["total"], row["invalid"]) for row in found}


def _read(row: Row) -> SegmentTurns:
    return SegmentTurns(
        Path(row["file"]).name,
        row["run_id"] or "",
        row["cohort"],
        row["process_id"] or "",
        CountedTurns(row["total"], row["invalid"]),
        row["last_unix_ns"] or 0,
        {name: tuple(row[name]) for name in LISTED if row[name]},
        "numbers" in row,
        row.get("numbers"),
    )


def _read_numbers(row: Row) -> SegmentNumbers:
    if "numbers" in row:
        return row["numbers"]
    ranges = np.array([[row["first"], row["last"]]], dtype=np.int64)
    return SegmentNumbers(row["run_id"] or "", row["process_id"], ranges)


def _rolled_up(directory: Path, segment: Segment) -> list[Row] | None:
    """The rows of `_STATEMENT` from a segment's roll-up."""
    try:
        file = files.read(directory / SEGMENTS_FOLDER, segment)
        return None if file is None else list(_rows_of(segment, file.rollup(parts=_PARTS)))
    except StoreError:
        return None


def _rows_of(segment: Segment, rollup: Rollup) -> Iterator[Row]:
    nothing: Row = {
        "file": segment.file,
        "source": "client",
        "cohort": None,
        "process_id": "",
        "total": 0,
        "invalid": 0,
    }
    nothing |= {"last_unix_ns": None, "numbers": None, **dict.fromkeys(LISTED)}
    for key, cell in rollup.cells.items():
        first = key.labels[0] or ""
        row = nothing | {"run_id": key.run_id, "cohort": key.cohort, "last_unix_ns": cell.last}
        if key.part == _PROCESSES:
            row["process_id"] = first
        elif key.part != _TURNS:
            row[key.part.removeprefix(_VALUE)] = [first]
        elif not first.startswith(SILENT) and key.phase_kind != RAMP:
            row["total"], row["invalid"] = cell.n, cell.n if key.labels[1:2] == ("invalid",) else 0
        yield row
    for (run_id, process_id), ranges in rollup.sequences.items():
        yield nothing | {"run_id": run_id, "numbers": SegmentNumbers(run_id, process_id, ranges)}
