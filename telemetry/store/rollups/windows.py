"""A stretch of time, or the turns of some values, from roll-ups: slots, or combinations of values, as they are, and of
what they do not tell the turns one by one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.store.answers import Filter
from telemetry.store.manifest import Segment
from telemetry.store.queries import is_all_within
from telemetry.store.rollups.by_value import is_narrowed, of_values
from telemetry.store.rollups.database import Database
from telemetry.store.rollups.files import RollupFile
from telemetry.store.rollups.making import FEWEST_ROWS, in_batches, known_columns
from telemetry.store.rollups.pairs import OPEN_COLUMNS, pair
from telemetry.store.rollups.partials import unpaired
from telemetry.store.rollups.rollup import Key, Rollup, RollupCell, without_faster
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.slot_tree import taken
from telemetry.store.rollups.small_segments import SmallSegments
from telemetry.store.rollups.staged import NEEDED, complete
from telemetry.store.rollups.summed_tables import summed
from telemetry.store.row_groups import ranges
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_checks import SegmentChecks

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# How far apart the two sides of a response may be recorded.
_APART_NS: Final = 60_000_000_000
_OPEN: Final = tuple(name for name in OPEN_COLUMNS if name in NEEDED)
_OF_COUNTERPART: Final = ("source", "trace_id", "response_id", "started_unix_ns")
_EVER: Final = 2**62
# Row groups whose turns are compared with those of the client together: about 10 MB of keys.
_GROUPS_AT_ONCE: Final = 8

Stretch = tuple[int, int]  # [begin, end), Unix ns


class SegmentRollups(Protocol):
    """What is known of a segment that has a roll-up: None of one that has none that can be read."""

    def of_run(self, segment: Segment, run_id: str | None) -> Rollup | None:
        """The roll-up of all of its turns, or of one run if one is named."""
        ...

    def of_small(self, segments: Sequence[Segment]) -> Rollup:
        """The roll-up of small segments together, of all runs, their turns still open."""
        ...

    def file(self, segment: Segment) -> RollupFile | None:
        """The file, for the slots."""
        ...

    def has_values(self, segment: Segment) -> bool:
        """Whether `narrowed` tells the turns of a segment."""
        ...

    def narrowed(self, segment: Segment, f: Filter) -> "NarrowedSegment | None":
        """The client's turns with the values that a filter asks for, at all times, of its run if it names one; None
        where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class NarrowedSegment:
    """The rows of the cells of the client's turns with some values, and the turns that are open."""

    cells: ArrowTable
    open_turns: ArrowTable | None


class WindowSums:
    """Adds up the turns of a stretch of time. Not thread-safe."""

    def __init__(
        self, folder: Path, database: Database, checks: SegmentChecks, rollups: SegmentRollups, small: SmallSegments
    ) -> None:
        self._folder = folder
        self._database = database
        self._checks = checks
        self._rollups = rollups
        self._small = small

    def rollup(self, segments: Sequence[Segment], f: Filter) -> Rollup:
        """The roll-up of the turns of the filter's time and values, its pairs closed; of its run, if it names one.

        Raises UnsoundSegmentsError, OSError, pyarrow.ArrowException and duckdb.Error when a segment cannot be read.
        """
        paired = pair(self._database, self.open_rollup(segments, f), is_last=True)
        # Arrow keeps what it freed for its next use: nearly 100 MB, which the next window may not need.
        pa.default_memory_pool().release_unused()
        return paired

    def open_rollup(self, segments: Sequence[Segment], f: Filter) -> Rollup:
        """As `rollup`, its turns still open."""
        cells: list[Iterable[tuple[Key, RollupCell]]] = []
        tables: list[ArrowTable] = []
        open_turns: list[ArrowTable] = []
        left: list[_LeftOver] = []
        read: list[Path] = []
        small: list[Segment] = []
        whole: list[Segment] = []
        for segment in segments:
            if not _is_near(segment, f):
                continue
            if is_small(segment) and _is_whole(segment, f):
                whole.append(segment)
                continue
            found = self._taken(segment, f)
            cells += found.cells
            tables += found.tables
            open_turns += [] if found.open_turns is None else [_not_left_over(found.open_turns, found.left_over)]
            if found.left_over:
                self._checks.verify([segment])
                if not found.is_rolled_up and is_small(segment):
                    small.append(segment)
                    continue
                read.append(self._folder / segment.file)
                left.append(_LeftOver(segment, found.left_over, found.is_rolled_up))
        cells.append(summed(tables).items())
        for part in chain(self._of_whole(whole, f), self._left_over(left, small, f)):
            cells.append(part.cells.items())
            open_turns += [] if part.open_turns is None else [part.open_turns]
        together = Rollup(without_faster(gathered(chain.from_iterable(cells))))
        together = self._small.with_text(self._database, together, read)
        together.open_turns = pa.concat_tables(open_turns) if open_turns else None
        return together

    def rows_to_read(self, segments: Sequence[Segment], f: Filter) -> int:
        """About how many turns are read one by one where a filter asks for some values; those of small segments left
        out."""
        return sum(
            _rows_within(segment, f)
            for segment in segments
            if _is_near(segment, f)
            and segment.rows >= FEWEST_ROWS
            and not (_is_inside(segment, f) and self._rollups.has_values(segment))
        )

    def _taken(self, segment: Segment, f: Filter) -> "_Taken":
        """What of a segment its roll-up tells."""
        everything = (_whole_of(segment),)
        known = self._rollups.of_run(segment, f.run_id)
        if known is None:
            return _Taken((), None, everything, is_rolled_up=False)
        # Of responses that were met nothing is known here: their clients may be read one by one.
        open_turns = None if known.open_turns is None else _of_window(known.open_turns, f)
        if is_narrowed(f):
            narrowed = self._rollups.narrowed(segment, f) if _is_inside(segment, f) else None
            if narrowed is None:
                return _Taken((), open_turns, everything, is_rolled_up=True)
            return _Taken((), narrowed.open_turns, (), is_rolled_up=True, tables=[narrowed.cells])
        if _is_inside(segment, f):
            return _Taken([known.cells.items()], open_turns, (), is_rolled_up=True)
        file = self._rollups.file(segment)
        if file is None:
            return _Taken((), None, everything, is_rolled_up=False)
        found = taken(file.families, f.since_unix_ns, f.until_unix_ns)
        return _Taken([file.members(found.members, f.run_id)], open_turns, found.left_over, is_rolled_up=True)

    def _of_whole(self, segments: Sequence[Segment], f: Filter) -> Iterator[Rollup]:
        """The roll-up of small segments whose turns are all meant: the sum of all of the run is made of it, too."""
        if segments:
            found = self._rollups.of_small(segments)
            open_turns = None if found.open_turns is None else _of_window(found.open_turns, f)
            yield Rollup(found.cells, {}, open_turns)

    def _left_over(self, left: Sequence["_LeftOver"], small: Sequence[Segment], f: Filter) -> Iterator[Rollup]:
        """The roll-ups, with open turns, of what is left over of segments: read turn by turn, but small ones."""
        tables = (table for each in left for table in self._turns(each, f))
        for table in in_batches(chain(tables, self._of_small(small, f))):
            if table.num_rows:  # the statements take as long without a turn
                yield unpaired(self._database, table)

    def _of_small(self, segments: Sequence[Segment], f: Filter) -> Iterator[ArrowTable]:
        """The client's turns of the filter's time, of segments that can hold its run, and all of the service's."""
        mine = self._small.turns([segment for segment in segments if can_hold(segment, f.run_id)])
        yield mine.filter(_is_meant(mine, [(f.since_unix_ns or -_EVER, f.until_unix_ns or _EVER)], f))
        every = self._small.turns(segments)
        yield every.filter(pc.equal(every.column("source"), "service"))

    def _turns(self, left: "_LeftOver", f: Filter) -> Iterator[ArrowTable]:
        clients: list[ArrowTable] = []
        with pq.ParquetFile(self._folder / left.segment.file) as file:
            if can_hold(left.segment, f.run_id):
                clients.extend(_clients(file, left, f))
                yield from clients
            if not left.is_rolled_up:
                yield from _services(file, left, None)
            elif clients:
                # The other turns of services have their counterparts, or are among the open turns of the roll-up.
                yield from _services(file, left, pa.concat_tables([table.select(_OF_COUNTERPART) for table in clients]))


@dataclass(frozen=True, slots=True)
class _Taken:
    """What is known of a segment without reading its turns, and the stretches whose turns are left over."""

    cells: Sequence[Iterable[tuple[Key, RollupCell]]]
    open_turns: ArrowTable | None
    left_over: Sequence[Stretch]
    is_rolled_up: bool
    tables: Sequence[ArrowTable] = ()  # of further cells


@dataclass(frozen=True, slots=True)
class _LeftOver:
    """What of a segment is read turn by turn; `is_rolled_up` where a roll-up tells of the rest of it."""

    segment: Segment
    stretches: Sequence[Stretch]
    is_rolled_up: bool


def _clients(file: Any, left: _LeftOver, f: Filter) -> Iterator[ArrowTable]:
    """The client's turns of a segment's file that began within the filter's time and one of the stretches."""
    stretches = [
        (max(begin, f.since_unix_ns or begin), min(end, f.until_unix_ns or end)) for begin, end in left.stretches
    ]
    names = known_columns(file, NEEDED)
    for number in _groups(file, left.segment, stretches):
        table = file.read_row_group(number, columns=names)
        yield complete(table.filter(_is_meant(table, stretches, f)))


def _services(file: Any, left: _LeftOver, clients: ArrowTable | None) -> Iterator[ArrowTable]:
    """The service's turns of about then; of given turns of the client only those that may be counterparts."""
    around = [(begin - _APART_NS, end + _APART_NS) for begin, end in left.stretches]
    keys, names = known_columns(file, _OF_COUNTERPART), known_columns(file, _OPEN)
    groups = _groups(file, left.segment, around)
    for first in range(0, len(groups), _GROUPS_AT_ONCE):
        some = groups[first : first + _GROUPS_AT_ONCE]
        table = complete(file.read_row_groups(some, columns=keys), _OF_COUNTERPART)
        is_meant = pc.equal(table.column("source"), "service")
        if clients is not None:
            is_meant = pc.and_(is_meant, _may_be_counterparts(table, clients))
        begin = 0
        for number in some:
            rows = file.metadata.row_group(number).num_rows
            is_of_group = is_meant.slice(begin, rows)
            begin += rows
            if pc.any(is_of_group).as_py():
                yield complete(file.read_row_group(number, columns=names).filter(is_of_group))


def _may_be_counterparts(services: ArrowTable, clients: ArrowTable) -> Any:
    """Where a turn of a service is of the same trace as one of the client, and of the same response if both name
    it."""
    traces, responses = services.column("trace_id"), services.column("response_id")
    unnamed = clients.filter(pc.is_null(clients.column("response_id"))).column("trace_id")
    of_response = pc.or_(pc.is_null(responses), pc.is_in(responses, clients.column("response_id")))
    of_response = pc.or_(of_response, pc.is_in(traces, unnamed))
    return pc.and_(pc.is_in(traces, clients.column("trace_id")), of_response)


def _groups(file: Any, segment: Segment, stretches: Sequence[Stretch]) -> list[int]:
    """The row groups of a segment that can hold turns of some stretches of time."""
    return [
        number
        for number, (first, last) in enumerate(ranges(file.metadata, segment))
        if any(first < end and last >= begin for begin, end in stretches)
    ]


def can_hold(segment: Segment, run_id: str | None) -> bool:
    """Whether a segment can hold turns of a run; of None any segment."""
    return run_id is None or segment.run_ids is None or run_id in segment.run_ids


def is_small(segment: Segment) -> bool:
    """Whether a segment has too few turns for a roll-up of its own."""
    return segment.rollup is None and segment.rows < FEWEST_ROWS


def _whole_of(segment: Segment) -> Stretch:
    """All of a segment's time."""
    if segment.first_unix_ns is None or segment.last_unix_ns is None:
        return -_EVER, _EVER
    return segment.first_unix_ns, segment.last_unix_ns + 1


def _is_near(segment: Segment, f: Filter) -> bool:
    """Whether a segment can hold turns of the filter's time, or their counterparts."""
    if f.since_unix_ns is None and f.until_unix_ns is None:
        return True
    if segment.first_unix_ns is None or segment.last_unix_ns is None:
        return False
    return (f.since_unix_ns is None or segment.last_unix_ns >= f.since_unix_ns - _APART_NS) and (
        f.until_unix_ns is None or segment.first_unix_ns < f.until_unix_ns + _APART_NS
    )


def _is_inside(segment: Segment, f: Filter) -> bool:
    """Whether all turns of a segment began within the filter's time."""
    return is_all_within(f, segment.first_unix_ns or 0, segment.last_unix_ns or 0)


def _is_whole(segment: Segment, f: Filter) -> bool:
    """Whether a filter means all turns of a segment, but for their runs, which the keys of cells tell."""
    return not is_narrowed(f) and _is_inside(segment, f)


def _rows_within(segment: Segment, f: Filter) -> int:
    """About how many turns of a segment began within the filter's time."""
    first, end = _whole_of(segment)
    within_ns = min(end, f.until_unix_ns or _EVER) - max(first, f.since_unix_ns or -_EVER)
    return segment.rows * max(0, within_ns) // (end - first)


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


def _is_meant(turns: ArrowTable, stretches: Sequence[Stretch], f: Filter) -> Any:
    """Where turns are of the client, began within one of some stretches, and have the values that a filter asks for."""
    found = _is_of(turns, "client", stretches)
    return pc.and_(found, of_values(turns, f)) if is_narrowed(f) else found


def _is_of(turns: ArrowTable, source: str, stretches: Sequence[Stretch]) -> Any:
    """Where turns are of a source and began within one of some stretches."""
    started = turns.column("started_unix_ns")
    found = pa.chunked_array([np.zeros(turns.num_rows, dtype=np.bool_)])
    for begin, end in stretches:
        within = pc.and_(pc.greater_equal(started, begin), pc.less(started, end)).fill_null(False)
        found = pc.or_(found, within)
    return pc.and_(found, pc.equal(turns.column("source"), source))
