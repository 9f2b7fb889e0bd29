"""The runs of a store that is written to, as they were read: one that no new row concerns is not read again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.store import manifest
from telemetry.store.answers import RunRecord
from telemetry.store.manifest import TABLES, Segment, StoreManifest
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_sources import RunSources
from telemetry.store.run_spans import RunSpan

# What belongs to a run and does not name it began that near to its turns: the two sides of a turn, clocks that differ.
_APART_NS: Final = 3_600 * 1_000_000_000


class _StoreMoment:
    """What a store consisted of, to tell what has come since."""

    def __init__(self, store: StoreManifest) -> None:
        self._removed = store.removed
        self._files = {each.file for each in store.segments}
        self._rows = {table: _rows(store.of(table)) for table in TABLES}
        self._stored_unix_ns = {
            table: max((each.stored_unix_ns for each in store.of(table)), default=0) for table in TABLES
        }

    def held(self, segment: Segment) -> bool:
        """Whether every row of a segment was there already: it is one of then, or was merged from rows of then."""
        is_merged = segment.level > 0 and segment.stored_unix_ns <= self._stored_unix_ns[segment.table]
        return is_merged or segment.file in self._files

    def only_grew_to(self, store: StoreManifest) -> bool:
        """Whether rows have only come since, none gone by retention or repair; and all of them to segments that were
        not `held`: where the clock was set back, newer rows were stored earlier."""
        for table in TABLES:
            came = _rows(store.of(table)) - self._rows[table]
            if not 0 <= came <= _rows(each for each in store.of(table) if not self.held(each)):
                return False
        return store.removed == self._removed


@dataclass(frozen=True, slots=True)
class _ReadRun:
    run: RunRecord
    files: frozenset[str]
    moment: _StoreMoment
    declared: Sequence[RunSpan]
    entry: RunEntry


class KnownRuns:
    """What was read of the runs of one store. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, _ReadRun] = {}  # in the order in which they were read
        self._going_on: set[str] = set()
        self._manifest = StoreManifest()
        self._moment = _StoreMoment(self._manifest)
        self._sources: RunSources | None = None

    def look(self, store: Path) -> None:
        """See what the store consists of, before its runs are read. Raises StoreError."""
        self._manifest = manifest.load(store)
        self._moment = _StoreMoment(self._manifest)
        self._sources = None

    def look_at(self, sources: RunSources) -> None:
        """See which rows belong to which run. Without that, segments count that name a run, or may hold any."""
        self._sources = sources

    def entry(self, run: RunRecord) -> RunEntry | None:
        """What was read of a run, if no row that can belong to it has come or gone since."""
        known = self._known.get(run.run_id)
        if known is None or known.run != run:
            return None
        if self._sources is not None and list(known.declared) != list(self._sources.declared(run.run_id)):
            return None
        segments = self._segments_of(run)
        if known.files != _files(segments):
            # Merged files hold the rows of those that they replaced.
            came = [each for each in segments if each.file not in known.files and not known.moment.held(each)]
            if any(self._may_concern(each, run.run_id) for each in came):
                return None
            if not known.moment.only_grew_to(self._manifest):
                return None
        return known.entry

    def _may_concern(self, segment: Segment, run_id: str) -> bool:
        if self._sources is not None:
            return self._sources.may_concern(segment, run_id)
        return segment.table != "spans" and (segment.run_ids is None or run_id in segment.run_ids)

    def changed(self, store: Path) -> frozenset[str]:
        """The runs that were read, and of which rows have come or gone by now, as far as the manifest tells. Raises
        StoreError."""
        self.look(store)
        return frozenset(run_id for run_id, known in self._known.items() if self.entry(known.run) is None)

    def latest(self, run: RunRecord) -> RunEntry | None:
        """What was read of a run that has ended and says the same of itself as then, also if other rows of its time
        have come since; None of one that goes on."""
        known = self._known.get(run.run_id)
        return None if known is None or known.run != run else known.entry

    def in_turn(self, runs: Sequence[RunRecord]) -> list[tuple[RunRecord, bool]]:
        """In which order to read runs, and whether each of them may wait. Those that go on or have changed may not;
        then come those that were never read, in the given order, then the one that was read longest ago."""
        read_before = {run_id: place for place, run_id in enumerate(self._known)}
        place_of = {
            run.run_id: (True, read_before.get(run.run_id, -1)) if self._may_wait(run) else (False, 0) for run in runs
        }
        ordered = sorted(runs, key=lambda run: place_of[run.run_id])
        return [(run, place_of[run.run_id][0]) for run in ordered]

    def _may_wait(self, run: RunRecord) -> bool:
        is_changed = run.run_id in self._known and self._known[run.run_id].run != run
        return not is_changed and run.run_id not in self._going_on

    def keep_read(self, run: RunRecord, entry: RunEntry) -> None:
        """Keep what was read of a run that has ended; of one that goes on, that it does."""
        self._known.pop(run.run_id, None)  # so that it is the last one now
        self._going_on.discard(run.run_id)
        if entry.state == "under way":
            self._going_on.add(run.run_id)
        else:
            self.keep(run, entry)

    def keep(self, run: RunRecord, entry: RunEntry) -> None:
        """Keep what `entry` gave: it is how the run is at this look, too."""
        declared = () if self._sources is None else tuple(self._sources.declared(run.run_id))
        self._known[run.run_id] = _ReadRun(run, _files(self._segments_of(run)), self._moment, declared, entry)

    def keep_only(self, run_ids: set[str]) -> None:
        """Forget the runs that are gone."""
        self._known = {run_id: known for run_id, known in self._known.items() if run_id in run_ids}
        self._going_on &= run_ids

    def _segments_of(self, run: RunRecord) -> list[Segment]:
        return [
            segment
            for segment in self._manifest.segments
            if (segment.run_ids is not None and run.run_id in segment.run_ids)
            or (
                segment.first_unix_ns is not None
                and segment.last_unix_ns is not None
                and segment.first_unix_ns <= run.last_unix_ns + _APART_NS
                and segment.last_unix_ns >= run.first_unix_ns - _APART_NS
            )
        ]


def _files(segments: Iterable[Segment]) -> frozenset[str]:
    return frozenset(each.file for each in segments)


def _rows(segments: Iterable[Segment]) -> int:
    return sum(each.rows for each in segments)
