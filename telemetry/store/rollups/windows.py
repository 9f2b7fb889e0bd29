"""A stretch of time from roll-ups: slots that lie in it as they are, and of those on its edges the turns that began in
it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.store.answers import Filter
from telemetry.store.manifest import Segment
from telemetry.store.rollups.database import Database
from telemetry.store.rollups.files import RollupFile
from telemetry.store.rollups.making import in_batches
from telemetry.store.rollups.pairs import OPEN_COLUMNS, pair
from telemetry.store.rollups.partials import unpaired, with_slowest_turns
from telemetry.store.rollups.rollup import Key, Rollup, RollupCell, without_faster
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.slot_tree import taken
from telemetry.store.rollups.staged import NEEDED, complete
from telemetry.store.row_groups import ranges
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_checks import SegmentChecks

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# How far apart the two sides of a response may be recorded.
SIDES_APART_NS: Final = 60_000_000_000
_OPEN: Final = tuple(name for name in OPEN_COLUMNS if name in NEEDED)
_EVER: Final = 2**62

Stretch = tuple[int, int]  # [begin, end), Unix ns


class SegmentRollups(Protocol):
    """What is known of a segment that has a roll-up: None of one that has none that can be read."""

    def of_run(self, segment: Segment, run_id: str | None) -> Rollup | None:
        """The roll-up of all of its turns, or of one run if one is named."""
        ...

    def file(self, segment: Segment) -> RollupFile | None:
        """The file, for the slots."""
        ...


class WindowSums:
    """Adds up the turns of a stretch of time. Not thread-safe."""

    def __init__(self, folder: Path, database: Database, checks: SegmentChecks, rollups: SegmentRollups) -> None:
        self._folder = folder
        self._database = database
        self._checks = checks
        self._rollups = rollups

    def rollup(self, segments: Sequence[Segment], f: Filter) -> Rollup:
        """The roll-up of the turns of the filter's time, its pairs closed; of its run, if it names one.

        Raises UnsoundSegmentsError, OSError, pyarrow.ArrowException and duckdb.Error when a segment cannot be read.
        """
        cells: list[Iterable[tuple[Key, RollupCell]]] = []
        open_turns: list[ArrowTable] = []
        tables: list[Iterable[ArrowTable]] = []
        read: list[Path] = []
        for segment in segments:
            if not _is_near(segment, f):
                continue
            known = self._rollups.of_run(segment, f.run_id)
            left_over: Sequence[Stretch] = [(segment.first_unix_ns or 0, (segment.last_unix_ns or 0) + 1)]
            if known is not None and _is_inside(segment, f):
                left_over = ()
                cells.append(known.cells.items())
            elif known is not None and (file := self._rollups.file(segment)) is not None:
                found = taken(file.families, f.since_unix_ns, f.until_unix_ns)
                left_over = found.left_over
                cells.append(file.members(found.members, f.run_id))
            else:
                known = None
            if known is not None and known.open_turns is not None:
                open_turns.append(_not_left_over(_of_window(known.open_turns, f), left_over))
            if left_over:
                self._checks.verify([segment])
                read.append(self._folder / segment.file)
                tables.append(self._turns(segment, f, left_over))
        for table in in_batches(chain.from_iterable(tables)):
            part = unpaired(self._database, table)
            cells.append(part.cells.items())
            open_turns += [] if part.open_turns is None else [part.open_turns]
        together = Rollup(without_faster(gathered(chain.from_iterable(cells))))
        together = with_slowest_turns(self._database, together, read)
        together.open_turns = pa.concat_tables(open_turns) if open_turns else None
        return pair(self._database, together, is_last=True)

    def _turns(self, segment: Segment, f: Filter, left_over: Sequence[Stretch]) -> Iterator[ArrowTable]:
        """The client's turns of a segment that began within the filter's time and one of the stretches, and the
        service's turns of about then."""
        stretches = [
            (max(begin, f.since_unix_ns or begin), min(end, f.until_unix_ns or end)) for begin, end in left_over
        ]
        with pq.ParquetFile(self._folder / segment.file) as file:
            moments = list(ranges(file.metadata, segment))

            def read(apart_ns: int, names: Sequence[str]) -> Iterator[ArrowTable]:
                known = [name for name in names if name in file.schema_arrow.names]
                for number, (first, last) in enumerate(moments):
                    if any(first < end + apart_ns and last >= begin - apart_ns for begin, end in stretches):
                        yield complete(file.read_row_group(number, columns=known))

            for table in read(0, NEEDED):
                yield table.filter(_is_of(table, "client", stretches))
            for table in read(SIDES_APART_NS, _OPEN):
                yield table.filter(pc.equal(table.column("source"), "service"))


def _is_near(segment: Segment, f: Filter) -> bool:
    """Whether a segment can hold turns of the filter's time, or their counterparts."""
    if segment.first_unix_ns is None or segment.last_unix_ns is None:
        return False
    return (f.since_unix_ns is None or segment.last_unix_ns >= f.since_unix_ns - SIDES_APART_NS) and (
        f.until_unix_ns is None or segment.first_unix_ns < f.until_unix_ns + SIDES_APART_NS
    )


def _is_inside(segment: Segment, f: Filter) -> bool:
    """Whether all turns of a segment began within the filter's time."""
    return (f.since_unix_ns is None or (segment.first_unix_ns or 0) >= f.since_unix_ns) and (
        f.until_unix_ns is None or (segment.last_unix_ns or 0) < f.until_unix_ns
    )


def _of_window(open_turns: ArrowTable, f: Filter) -> ArrowTable:
    """The client's turns of the filter's run and time, and all of the service's."""
    stretch = (f.since_unix_ns or -_EVER, f.until_unix_ns or _EVER)
    is_meant = _is_of(open_turns, "client", [stretch])
    if f.run_id is not None:
        is_meant = pc.and_(is_meant, pc.equal(open_turns.column("run_id"), f.run_id).fill_null(False))
    return open_turns.filter(pc.or_(is_meant, pc.equal(open_turns.column("source"), "service")))


def _not_left_over(open_turns: ArrowTable, left_over: Sequence[Stretch]) -> ArrowTable:
    """Without the client's turns that are read one by one."""
    return open_turns.filter(pc.invert(_is_of(open_turns, "client", left_over))) if left_over else open_turns


def _is_of(turns: ArrowTable, source: str, stretches: Sequence[Stretch]) -> Any:
    """Where turns are of a source and began within one of some stretches."""
    started = turns.column("started_unix_ns")
    found = pa.chunked_array([np.zeros(turns.num_rows, dtype=np.bool_)])
    for begin, end in stretches:
        within = pc.and_(pc.greater_equal(started, begin), pc.less(started, end)).fill_null(False)
        found = pc.or_(found, within)
    return pc.and_(found, pc.equal(turns.column("source"), source))
