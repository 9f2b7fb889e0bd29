"""The runs of a store that is written to, as they were read: one whose files are the same is not read again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.store import manifest
from telemetry.store.answers import RunRecord
from telemetry.store.manifest import StoreManifest
from telemetry.store.run_folders.entries import RunEntry

# What belongs to a run and does not name it began that near to its turns: the two sides of a turn, clocks that differ.
_APART_NS: Final = 3_600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class _ReadRun:
    run: RunRecord
    files: frozenset[str]
    entry: RunEntry


class KnownRuns:
    """What was read of the runs of one store. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, _ReadRun] = {}
        self._manifest = StoreManifest()

    def look(self, store: Path) -> None:
        """See what the store consists of, before its runs are read. Raises StoreError."""
        self._manifest = manifest.load(store)

    def entry(self, run: RunRecord) -> RunEntry | None:
        """What was read of a run, if nothing that can belong to it has come or gone since."""
        known = self._known.get(run.run_id)
        if known is None or known.run != run or known.files != self._files_of(run):
            return None
        return known.entry

    def keep(self, run: RunRecord, entry: RunEntry) -> None:
        """Keep what was read of a run that has ended."""
        self._known[run.run_id] = _ReadRun(run, self._files_of(run), entry)

    def keep_only(self, run_ids: set[str]) -> None:
        """Forget the runs that are gone."""
        self._known = {run_id: known for run_id, known in self._known.items() if run_id in run_ids}

    def _files_of(self, run: RunRecord) -> frozenset[str]:
        return frozenset(
            segment.file
            for segment in self._manifest.segments
            if (segment.run_ids is not None and run.run_id in segment.run_ids)
            or (
                segment.first_unix_ns is not None
                and segment.last_unix_ns is not None
                and segment.first_unix_ns <= run.last_unix_ns + _APART_NS
                and segment.last_unix_ns >= run.first_unix_ns - _APART_NS
            )
        )
