"""The roll-ups of a store, read and added up for questions: kept in memory while their segments are the same.

What has no roll-up of its own, or one that cannot be read, is rolled up here; the figures are the same.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa

from telemetry.model.errors import StoreError
from telemetry.store.answers import Filter
from telemetry.store.manifest import SEGMENTS_FOLDER, Segment
from telemetry.store.queries import source_of
from telemetry.store.rollups import files
from telemetry.store.rollups.by_value import is_narrowed, may_ask, narrowed, narrowed_open
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.files import RollupFile
from telemetry.store.rollups.growing_sums import GrowingSums
from telemetry.store.rollups.making import (
    in_batches,
    of_service,
    roll_up_file,
    roll_up_tables,
    tables_of_file,
)
from telemetry.store.rollups.pairs import pair
from telemetry.store.rollups.partials import OF_OTHERS, of_others
from telemetry.store.rollups.rollup import Rollup, added
from telemetry.store.rollups.small_segments import SmallSegments
from telemetry.store.rollups.staged import complete
from telemetry.store.rollups.view import RolledUp
from telemetry.store.rollups.windows import NarrowedSegment, WindowSums, can_hold, is_small
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_checks import SegmentChecks

_log = logging.getLogger(__name__)

# A run of fewer turns than that (of both sides) is read turn by turn in about half a second; its figures are exact.
FEWEST_TURNS: Final = 30_000
# Rolling up takes somewhat longer than reading: a run of up to so many times FEWEST_TURNS is still read turn by turn
# while more turns than this share of its own would have to be rolled up first.
_TIMES_READ: Final = 4
_SHARE_MADE: Final = 1 / 2
# How much less it takes to look through turns of other runs than to roll turns up.
_OF_OTHERS_SOONER: Final = 4
# More turns without a roll-up than that are not rolled up for a question.
_MOST_ROWS_MADE: Final = 2_000_000
# In place of a run, of segments that hold none of its turns.
_OF_OTHER_RUNS: Final = ""
_KEPT_SUMS: Final = 6
# Of so many filters by value, those that were asked last, the sums are kept: a few MB each.
KEPT_VALUES: Final = 12
# Of the rows of cells by combination of values, which are read from files again where they are more.
_KEPT_BYTES: Final = 256 << 20
# Of so many runs, those that were asked last, the roll-ups of segments are kept.
KEPT_RUNS: Final = 4


class RollupLibrary:
    """Answers questions from roll-ups. Not thread-safe: its reader asks one question at a time."""

    def __init__(self, directory: Path, checks: SegmentChecks, *, fewest_turns: int = FEWEST_TURNS) -> None:
        self._folder = directory / SEGMENTS_FOLDER
        self._checks = checks
        self._fewest_turns = fewest_turns
        self._opened: Database | None = None
        self._known: dict[tuple[str, str | None], Rollup] = {}  # of segments that are not small, by file and run
        self._small = SmallSegments(self._folder)  # of segments that are
        self._asked_runs: OrderedDict[str, None] = OrderedDict()
        self._growing: dict[tuple[str | None, bool], GrowingSums] = {}  # by run, and whether pairs are apart
        self._pairs = GrowingSums()  # of all runs: those of one run are among them
        self._open_turns: dict[str, ArrowTable] = {}  # by file
        self._values: dict[tuple[str, str | None], ArrowTable] = {}  # by file and run
        self._narrowed: OrderedDict[Filter, GrowingSums] = OrderedDict()  # by run and values
        self._sums: OrderedDict[Hashable, Rollup] = OrderedDict()  # with closed pairs
        self._unreadable: set[str] = set()
        self._readable: set[str] = set()
        self._with_values: set[str] = set()
        self._asked_services: set[str] = set()
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
            self._opened = open_database()
        return self._opened

    def of(self, segments: Sequence[Segment], f: Filter) -> RolledUp | None:
        """The filter's turns, rolled up, of a store with these segments of turns; None where they are to be read one by
        one: few, or a stretch of time or some values of a view by service and day.

        Raises UnsoundSegmentsError, OSError, pyarrow.ArrowException and duckdb.Error when a segment cannot be read.
        """
        if not may_ask(f):
            return None
        if source_of(f) == "service":
            return None if is_narrowed(f) else self._of_service(segments, f)
        # A stretch of time of a large run, too: what is lost, and what has no counterpart, is asked of all of the run.
        turns = sum(segment.rows for segment in segments if can_hold(segment, f.run_id))
        if turns <= self._fewest_turns:
            return None
        is_read_sooner = self._rows_to_make(segments, f.run_id) > _SHARE_MADE * turns
        if is_read_sooner and turns <= _TIMES_READ * self._fewest_turns:
            return None
        key = (f, _files(segments))
        if self._answered is None or self._answered[0] != key:
            self._answered = key, self._rolled_up(segments, f)
        return self._answered[1]

    def _of_service(self, segments: Sequence[Segment], f: Filter) -> RolledUp | None:
        """A view by service and day. Files of roll-ups add up the turns of callers only, so its turns are rolled up
        when they are asked for again, each segment once."""
        if f.since_unix_ns is not None or f.until_unix_ns is not None or f.run_id is None:
            return None
        mine = [segment for segment in segments if can_hold(segment, f.run_id)]
        if sum(segment.rows for segment in mine) <= self._fewest_turns:
            return None
        self._forget_all_but(segments, f.run_id)
        new = [segment for segment in mine if (segment.file, f.run_id) not in self._known]
        rows = sum(segment.rows for segment in new)
        # Who looks once is answered sooner from the turns themselves.
        is_first = f.run_id not in self._asked_services
        self._asked_services.add(f.run_id)
        if rows > _MOST_ROWS_MADE or (is_first and rows > self._fewest_turns):
            return None
        self._checks.verify(new)
        for segment in new:
            tables = of_service(tables_of_file(self._path(segment)), f.run_id)
            self._known[segment.file, f.run_id] = roll_up_tables(self._database, tables)
        key = ("service", f.run_id, *_files(mine))
        everything = self._kept(
            key, lambda: pair(self._database, added(self._known[each.file, f.run_id] for each in mine), is_last=True)
        )
        return RolledUp(f, everything, everything)

    def _rolled_up(self, segments: Sequence[Segment], f: Filter) -> RolledUp | None:
        everything = self._whole(segments, f.run_id)
        if everything is None:
            return None
        is_of_all_times = f.since_unix_ns is None and f.until_unix_ns is None
        if is_of_all_times and not is_narrowed(f):
            return RolledUp(f, everything, everything)
        windows = WindowSums(self._folder, self._database, self._checks, self, self._small)
        if is_narrowed(f) and windows.rows_to_read(segments, f) > _MOST_ROWS_MADE:
            return None
        if is_of_all_times:
            meant = replace(f, cohort=None, target=None, phase=None)  # cells tell these by their keys
            return RolledUp(f, self._of_values(windows, segments, meant), everything)
        return RolledUp(f, windows.rollup(segments, f), everything)

    def _of_values(self, windows: WindowSums, segments: Sequence[Segment], f: Filter) -> Rollup:
        """All turns of some values, of a run if one is named."""
        growing = self._narrowed.setdefault(f, GrowingSums())
        self._narrowed.move_to_end(f)
        while len(self._narrowed) > KEPT_VALUES:
            self._narrowed.popitem(last=False)
        return self._kept(
            ("values", f, *_files(segments)),
            lambda: growing.of(self._database, segments, lambda some: windows.open_rollup(some, f)).total(
                self._database
            ),
        )

    def _whole(self, segments: Sequence[Segment], run_id: str | None) -> Rollup | None:
        """Everything of the store, or of a run; None where too much would have to be rolled up first."""
        self._forget_all_but(segments, run_id)
        if self._rows_to_make(segments, run_id) > _MOST_ROWS_MADE:
            return None
        return self._kept(("whole", run_id, *_files(segments)), lambda: self._total(segments, run_id))

    def _total(self, segments: Sequence[Segment], run_id: str | None) -> Rollup:
        while True:
            # Of a large segment without a roll-up no more is read than is asked of the turns of other runs.
            is_apart = self._are_rolled_up(segments)
            growing = self._growing.setdefault((run_id, is_apart), GrowingSums())
            if not is_apart:
                found = growing.of(self._database, segments, lambda some: self._added(some, run_id))
                return self._small.with_text(self._database, found.total(self._database))
            cells = growing.of(self._database, segments, lambda some: _without_open(self._added(some, run_id)))
            # The two sides of responses are brought together once for all runs.
            pairs = self._kept(
                ("pairs", *_files(segments)),
                lambda: self._pairs.of(self._database, segments, self._left_open).total(self._database),
            )
            if self._are_rolled_up(segments):
                found = added([cells.total(self._database), pairs])
                return self._small.with_text(self._database, found)
            # A roll-up was damaged in the meantime.
            self._growing, self._pairs, self._sums = {}, GrowingSums(), OrderedDict()

    def _are_rolled_up(self, segments: Sequence[Segment]) -> bool:
        return all(is_small(segment) or self._is_ready(segment) for segment in segments)

    def _left_open(self, segments: Sequence[Segment]) -> Rollup:
        """The open turns of segments that are rolled up."""
        small = [segment for segment in segments if is_small(segment)]
        found = [self._open_of(segment) for segment in segments if segment not in small]
        if small:
            found.append(self.of_small(small).open_turns)
        known = [each for each in found if each is not None]
        return Rollup(open_turns=pa.concat_tables(known) if known else None)

    def _open_of(self, segment: Segment) -> ArrowTable | None:
        if (segment.file, None) in self._known:
            return self._known[segment.file, None].open_turns
        if segment.file not in self._open_turns and (file := self.file(segment)) is not None:
            self._open_turns[segment.file] = file.open_turns()
        return self._open_turns.get(segment.file)

    def _forget_all_but(self, segments: Sequence[Segment], run_id: str | None) -> None:
        """Keep what is known of these segments: of all of their turns, of this run and of those asked before it."""
        if run_id is not None:
            self._asked_runs[run_id] = None
            self._asked_runs.move_to_end(run_id)
            while len(self._asked_runs) > KEPT_RUNS:
                self._asked_runs.popitem(last=False)
        files, runs = set(_files(segments)), {None, _OF_OTHER_RUNS, *self._asked_runs}
        named = {segment.rollup for segment in segments if segment.rollup is not None}
        self._readable &= named
        self._unreadable &= named
        self._with_values &= named
        self._known = {key: rollup for key, rollup in self._known.items() if key[0] in files and key[1] in runs}
        self._growing = {key: growing for key, growing in self._growing.items() if key[0] in runs}
        self._open_turns = {file: turns for file, turns in self._open_turns.items() if file in files}
        self._values = {key: rows for key, rows in self._values.items() if key[0] in files}
        self._small.keep_only(files)

    def _rows_to_make(self, segments: Sequence[Segment], run_id: str | None) -> int:
        return sum(
            segment.rows if can_hold(segment, run_id) else segment.rows // _OF_OTHERS_SOONER
            for segment in segments
            if not self._is_ready(segment)
        )

    def _is_ready(self, segment: Segment) -> bool:
        return (segment.file, None) in self._known or self._has_file(segment)

    def _has_file(self, segment: Segment) -> bool:
        """Whether a segment has a roll-up that can be read. Without that, its turns may be too many to be rolled up
        for a question."""
        if segment.rollup is not None and segment.rollup not in self._readable:
            self.file(segment)
        return segment.rollup in self._readable

    def outdated_rows(self, segments: Sequence[Segment]) -> int:
        """How many turns are in segments with a roll-up that cannot be read: of another version, or damaged."""
        return sum(each.rows for each in segments if each.rollup is not None and not self._has_file(each))

    def _added(self, segments: Sequence[Segment], run_id: str | None) -> Rollup:
        """The sum of some segments' roll-ups, their turns still open."""
        small = [segment for segment in segments if is_small(segment)]
        large = [segment for segment in segments if segment not in small]
        foreign = [each for each in large if not self._is_ready(each) and not can_hold(each, run_id)]
        sums = [self._of_one(segment, run_id) for segment in large if segment not in foreign]
        if small:
            sums.append(self.of_small(small))
        if foreign:
            sums.append(self._of_foreign(foreign))
        return added(sums)

    def of_small(self, segments: Sequence[Segment]) -> Rollup:
        """The roll-up of small segments together, of all runs, their turns still open."""
        self._checks.verify(segments)
        return self._small.rollup(self._database, segments)

    def _of_one(self, segment: Segment, run_id: str | None) -> Rollup:
        found = self.of_run(segment, run_id)
        if found is None:
            self._checks.verify([segment])
            found = self._known[segment.file, None] = roll_up_file(self._database, self._path(segment))
        return found

    def of_run(self, segment: Segment, run_id: str | None) -> Rollup | None:
        """The roll-up of all turns of a segment, or of one run if one is named; None without a file of it."""
        of_run = run_id if can_hold(segment, run_id) else _OF_OTHER_RUNS
        for key in ((segment.file, of_run), (segment.file, None)):
            if key in self._known:
                return self._known[key]
        file = self.file(segment)
        if file is None:
            return None
        found = file.of_other_runs() if of_run == _OF_OTHER_RUNS else file.rollup(of_run)
        self._known[segment.file, of_run] = found = Rollup(found.cells, found.sequences, self._open_of(segment))
        return found

    def has_values(self, segment: Segment) -> bool:
        """Whether a segment has a file that tells its turns by their values."""
        return self._has_file(segment) and segment.rollup in self._with_values

    def narrowed(self, segment: Segment, f: Filter) -> NarrowedSegment | None:
        """The client's turns of a segment with the values that a filter asks for, of its run if it names one; None
        without a file that tells them."""
        values = self._values_of(segment, f.run_id)
        if values is None:
            return None
        open_turns = self._open_of(segment)
        return NarrowedSegment(narrowed(values, f), None if open_turns is None else narrowed_open(open_turns, f))

    def _values_of(self, segment: Segment, run_id: str | None) -> ArrowTable | None:
        """Kept of one run: who asks for some values of it asks for others next, and reading them takes longest."""
        self._values = {key: rows for key, rows in self._values.items() if key[1] == run_id}
        if (known := self._values.get((segment.file, run_id))) is not None:
            return known
        file = self.file(segment)
        found = None if file is None else file.values(run_id)
        if found is not None and sum(rows.nbytes for rows in (found, *self._values.values())) <= _KEPT_BYTES:
            self._values[segment.file, run_id] = found
        return found

    def file(self, segment: Segment) -> RollupFile | None:
        """The file of a segment's roll-up; None of one that has none that can be read."""
        if segment.rollup is None or segment.rollup in self._unreadable:
            return None
        try:
            found = files.read(self._folder, segment)
        except StoreError as error:
            self._unreadable.add(segment.rollup)
            self._readable.discard(segment.rollup)
            _log.warning("%s: %s; its turns are rolled up anew", segment.rollup, error)
            return None
        self._readable.add(segment.rollup)
        if found is not None and found.has_values:
            self._with_values.add(segment.rollup)
        return found

    def _of_foreign(self, segments: Sequence[Segment]) -> Rollup:
        self._checks.verify(segments)
        tables = chain.from_iterable(tables_of_file(self._path(segment), OF_OTHERS) for segment in segments)
        return added(of_others(self._database, table) for table in in_batches(complete(table) for table in tables))

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


def _without_open(rollup: Rollup) -> Rollup:
    return Rollup(rollup.cells, rollup.sequences)


def _files(segments: Iterable[Segment]) -> tuple[str, ...]:
    return tuple(segment.file for segment in segments)
