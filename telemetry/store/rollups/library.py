"""The roll-ups of a store, read and added up for questions: kept in memory while their segments are the same.

What has no roll-up of its own, or one that cannot be read, is rolled up here; the figures are the same.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store.answers import Filter
from telemetry.store.manifest import SEGMENTS_FOLDER, Segment
from telemetry.store.rollups import files
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.making import BATCH_ROWS, FEWEST_ROWS, roll_up_file, roll_up_tables, tables_of_file
from telemetry.store.rollups.pairs import pair
from telemetry.store.rollups.partials import with_slowest_turns
from telemetry.store.rollups.rollup import Rollup, added
from telemetry.store.rollups.staged import complete
from telemetry.store.rollups.view import RolledUp
from telemetry.store.row_groups import ranges
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_checks import SegmentChecks

_log = logging.getLogger(__name__)
pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# A run of fewer turns than that (of both sides) is read turn by turn in about half a second; its figures are exact.
FEWEST_TURNS: Final = 60_000
# Rolling up takes several times as long as reading: a run of up to so many times FEWEST_TURNS is still read turn by
# turn while more than this share of FEWEST_TURNS would have to be rolled up first.
_TIMES_READ: Final = 4
_SHARE_MADE: Final = 1 / 8
# More turns without a roll-up than that are not rolled up for a question.
_MOST_ROWS_MADE: Final = 2_000_000
# Segments of so many rows seldom change: the sum of their roll-ups is kept apart from that of the others.
_SETTLED_ROWS: Final = 500_000
# How far apart the two sides of a response may be recorded.
_SIDES_APART_NS: Final = 60_000_000_000
_KEPT_SUMS: Final = 12


class RollupLibrary:
    """Answers questions from roll-ups. Not thread-safe: its reader asks one question at a time."""

    def __init__(self, directory: Path, checks: SegmentChecks, *, fewest_turns: int = FEWEST_TURNS) -> None:
        self._folder = directory / SEGMENTS_FOLDER
        self._checks = checks
        self._fewest_turns = fewest_turns
        self._opened: Database | None = None
        self._known: dict[str, Rollup] = {}  # of segments that are not small
        self._turns: dict[str, ArrowTable] = {}  # of segments that are
        self._sums: OrderedDict[Hashable, Rollup] = OrderedDict()
        self._unreadable: set[str] = set()
        # A page asks several questions about one filter.
        self._answered: tuple[Hashable, RolledUp | None] | None = None

    def close(self) -> None:
        """Release DuckDB."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _database(self) -> Database:
        """Opened when it is first needed, which most readers never do: that costs more than many a question."""
        if self._opened is None:
            self._opened = open_database(threads=2)
        return self._opened

    def of(self, segments: Sequence[Segment], f: Filter) -> RolledUp | None:
        """The filter's turns, rolled up, of a store with these segments of turns; None where they are to be read one by
        one: few, or told apart by what roll-ups do not.

        Raises UnsoundSegmentsError, OSError, pyarrow.ArrowException and duckdb.Error when a segment cannot be read.
        """
        if any((f.noise_profile, f.length_class, f.channel_profile, f.route)):
            return None
        # A stretch of time of a large run, too: what is lost, and what has no counterpart, is asked of all of the run.
        run = Filter(run_id=f.run_id)
        turns = sum(segment.rows for segment in segments if _concerns(segment, run))
        if turns <= self._fewest_turns:
            return None
        is_read_sooner = self._rows_to_make(segments) > _SHARE_MADE * self._fewest_turns
        if is_read_sooner and turns <= _TIMES_READ * self._fewest_turns:
            return None
        key = (f, _files(segments))
        if self._answered is None or self._answered[0] != key:
            self._answered = key, self._rolled_up(segments, f)
        return self._answered[1]

    def _rolled_up(self, segments: Sequence[Segment], f: Filter) -> RolledUp | None:
        everything = self.whole(segments)
        if everything is None:
            return None
        if f.since_unix_ns is None and f.until_unix_ns is None:
            return RolledUp(f, everything, everything)
        return RolledUp(f, self._within(segments, f), everything)

    def whole(self, segments: Sequence[Segment]) -> Rollup | None:
        """Everything of the store; None where too much would have to be rolled up first."""
        current = {segment.file for segment in segments}
        self._known = {file: rollup for file, rollup in self._known.items() if file in current}
        self._turns = {file: table for file, table in self._turns.items() if file in current}
        if self._rows_to_make(segments) > _MOST_ROWS_MADE:
            return None
        return self._kept(
            ("whole", *_files(segments)), lambda: pair(self._database, self._added(segments), is_last=True)
        )

    def _rows_to_make(self, segments: Sequence[Segment]) -> int:
        return sum(segment.rows for segment in segments if not self._is_ready(segment))

    def _is_ready(self, segment: Segment) -> bool:
        return segment.file in self._known or (segment.rollup is not None and segment.rollup not in self._unreadable)

    def _added(self, segments: Sequence[Segment]) -> Rollup:
        """The sum of some segments' roll-ups, their pairs brought together as far as both sides are there."""
        small = [segment for segment in segments if segment.rollup is None and segment.rows < FEWEST_ROWS]
        others = [segment for segment in segments if segment not in small]
        settled = [segment for segment in others if segment.rows >= _SETTLED_ROWS]
        changing = [segment for segment in others if segment.rows < _SETTLED_ROWS]
        sums = [
            self._kept((how.__name__, *_files(some)), lambda how=how, some=some: how(some))
            for how, some in ((self._of_large, settled), (self._of_large, changing), (self._of_small, small))
            if some
        ]
        return pair(self._database, added(sums), is_last=False)

    def _of_large(self, segments: Sequence[Segment]) -> Rollup:
        return pair(self._database, added(self._of_one(segment) for segment in segments), is_last=False)

    def _of_one(self, segment: Segment) -> Rollup:
        if segment.file not in self._known:
            self._known[segment.file] = self._read(segment) or self._rolled_up_here(segment)
        return self._known[segment.file]

    def _rolled_up_here(self, segment: Segment) -> Rollup:
        self._checks.verify([segment])
        return roll_up_file(self._database, self._path(segment))

    def _read(self, segment: Segment) -> Rollup | None:
        try:
            return files.read(self._folder, segment)
        except StoreError as error:
            if segment.rollup is not None and segment.rollup not in self._unreadable:
                self._unreadable.add(segment.rollup)
                _log.warning("%s; its turns are rolled up anew", error)
            return None

    def _of_small(self, segments: Sequence[Segment]) -> Rollup:
        self._checks.verify(segments)
        for segment in segments:
            if segment.file not in self._turns:
                self._turns[segment.file] = pa.concat_tables(tables_of_file(self._path(segment)))
        tables = (complete(self._turns[segment.file]) for segment in segments)
        found = roll_up_tables(self._database, _batches(tables))
        return with_slowest_turns(self._database, found, [self._path(segment) for segment in segments])

    def _within(self, segments: Sequence[Segment], f: Filter) -> Rollup:
        """The sum of what the filter's stretch of time holds: segments that lie in it as a whole, and of those on its
        edges the turns that began in it."""
        concerned = [segment for segment in segments if _concerns(segment, f)]
        inside = [segment for segment in concerned if _is_inside(segment, f)]
        parts = [self._added(inside)] if inside else []
        edges = [segment for segment in concerned if segment not in inside]
        self._checks.verify(edges)
        for segment in edges:
            cut = roll_up_tables(self._database, _batches(self._of_time(segment, f)))
            parts.append(with_slowest_turns(self._database, cut, [self._path(segment)]))
        return pair(self._database, pair(self._database, added(parts), is_last=False), is_last=True)

    def _of_time(self, segment: Segment, f: Filter) -> Iterator[ArrowTable]:
        """The client's turns that began within the filter's time, and the service's of about then."""
        since, until = f.since_unix_ns, f.until_unix_ns
        metadata = pq.read_metadata(self._path(segment))
        outside = frozenset(
            number
            for number, (first, last) in enumerate(ranges(metadata, segment))
            if (since is not None and last < since - _SIDES_APART_NS)
            or (until is not None and first >= until + _SIDES_APART_NS)
        )
        for table in tables_of_file(self._path(segment), outside):
            started = table.column("started_unix_ns")
            is_kept = pc.not_equal(table.column("source"), "client")
            within = pc.is_valid(started)
            if since is not None:
                within = pc.and_(within, pc.greater_equal(started, since))
            if until is not None:
                within = pc.and_(within, pc.less(started, until))
            yield complete(table.filter(pc.or_(is_kept, within)))

    def _path(self, segment: Segment) -> Path:
        return self._folder / segment.file

    def _kept(self, key: Hashable, make: Callable[[], Rollup]) -> Rollup:
        """A sum that was made before, or is made now."""
        if key not in self._sums:
            self._sums[key] = make()
            while len(self._sums) > _KEPT_SUMS:
                self._sums.popitem(last=False)
        self._sums.move_to_end(key)
        return self._sums[key]


def _files(segments: Iterable[Segment]) -> tuple[str, ...]:
    return tuple(segment.file for segment in segments)


def _concerns(segment: Segment, f: Filter) -> bool:
    """Whether a segment can hold turns of the filter."""
    if segment.first_unix_ns is None or segment.last_unix_ns is None:
        return False
    return (
        (f.run_id is None or segment.run_ids is None or f.run_id in segment.run_ids)
        and (f.since_unix_ns is None or segment.last_unix_ns >= f.since_unix_ns)
        and (f.until_unix_ns is None or segment.first_unix_ns < f.until_unix_ns)
    )


def _is_inside(segment: Segment, f: Filter) -> bool:
    """Whether all turns of a segment began within the filter's time."""
    return (f.since_unix_ns is None or (segment.first_unix_ns or 0) >= f.since_unix_ns) and (
        f.until_unix_ns is None or (segment.last_unix_ns or 0) < f.until_unix_ns
    )


def _batches(tables: Iterable[ArrowTable]) -> Iterator[ArrowTable]:
    """The rows of the tables in others of some BATCH_ROWS rows."""
    waiting: list[ArrowTable] = []
    for table in tables:
        waiting.append(table)
        if sum(each.num_rows for each in waiting) >= BATCH_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
