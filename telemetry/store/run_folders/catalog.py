"""The list of all runs, of folders of runs and of several stores.

The folder of a run that has ended answers with its `summary.json`; of all others the stores are asked, or the sidecars
that own them.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.store.database import DATABASE_NAME
from telemetry.store.reader import StoreReader
from telemetry.store.remote import open_store
from telemetry.store.run_folders.entries import RunEntry, judged_anew
from telemetry.store.run_folders.kept_objectives import are_kept_otherwise, objectives_of
from telemetry.store.run_folders.notes import read_notes
from telemetry.store.run_folders.open_files import writer_in
from telemetry.store.run_folders.places import StorePlace, places_of
from telemetry.store.run_folders.stored import read_store
from telemetry.store.run_folders.summaries import BadSummaryError, read_summary

NOTHING_STORED: Final = "no turn is stored here: the run never began, or its turns went to another sidecar's store"

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class RunListing:
    """Runs, the newest first. They are judged by the `objectives`; None: each by its own."""

    entries: list[RunEntry]
    unread: list[str] = field(default_factory=list[str])
    unread_runs: int = 0
    outdated: set[str] = field(default_factory=set[str])
    objectives: tuple[Objective, ...] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything has been read."""
        return not self.unread and not self.unread_runs


class RunCatalog:
    """Lists runs; thread-safe. They are judged by the `objectives`; without, each by those that it was judged by
    before, else by the default set. `token` is for the sidecars among the places."""

    def __init__(
        self,
        given: Sequence[str],
        objectives: Sequence[Objective] | None,
        *,
        token: str | None = None,
        open_stores: int = 0,
        shared: Callable[[str], StoreReader] | None = None,
    ) -> None:
        self.given = tuple(given)
        self._objectives = None if objectives is None else tuple(objectives)
        self._open = (lambda store: open_store(store, token)) if shared is None else shared

    def close(self) -> None:
        """Nothing is held between two listings."""

    def entries(
        self, *, now_unix_ns: int | None = None, progress: Progress = lambda _done, _total: None
    ) -> list[RunEntry]:
        """Every run, the newest first. Raises ConfigError for a place that is not a folder; what is wrong with a single
        run is said in its entry."""
        now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
        places = places_of(self.given)
        entries: list[RunEntry] = []
        for number, place in enumerate(places):
            entries += _noted(place, self._read(place, now_unix_ns))
            progress(number + 1, len(places))
        return sorted(entries, key=lambda each: (each.listed_unix_ns, each.run_id, each.store), reverse=True)

    def listing(
        self,
        *,
        within_s: float | None = None,
        now_unix_ns: int | None = None,
        progress: Progress = lambda _done, _total: None,
    ) -> RunListing:
        """As `entries`, with what the runs are judged by."""
        return RunListing(self.entries(now_unix_ns=now_unix_ns, progress=progress), objectives=self._objectives)

    def _read(self, place: StorePlace, now_unix_ns: int) -> list[RunEntry]:
        summed, fault = None, None
        try:
            summed = read_summary(place)
        except (BadSummaryError, OSError) as error:
            fault = _reason(error)
        try:
            found = self._read_store(place, summed, now_unix_ns)
        except (StoreError, ConfigError, OSError) as error:
            # The row of a sidecar begins with its address already.
            fault = _reason(error).removeprefix(f"{place.store}: " if place.is_remote else "")
            found = [] if summed is None else [summed]
        if not found and (place.folder is not None or fault is not None):
            return [_unread(place, fault or NOTHING_STORED)]
        return found if fault is None else [msgspec.structs.replace(each, fault=fault) for each in found]

    def _read_store(self, place: StorePlace, summed: RunEntry | None, now_unix_ns: int) -> list[RunEntry]:
        """Every run of the store; of `summed` what its command said of it, unless that was by other objectives."""
        is_judged_anew = self._objectives is not None and are_kept_otherwise(place.folder, self._objectives)
        if not place.is_remote:
            if summed is not None and not is_judged_anew:
                return [summed]
            if not (Path(place.store) / DATABASE_NAME).exists():
                return [] if summed is None else [summed]
        objectives = objectives_of(place.folder) if self._objectives is None else self._objectives
        with contextlib.closing(self._open(place.store)) as reader:
            found = read_store(reader, place, objectives, now_unix_ns)
        return found if summed is None else [judged_anew(summed, each) for each in found]


def _noted(place: StorePlace, entries: list[RunEntry]) -> list[RunEntry]:
    notes = read_notes(place.notes_folder)
    return [msgspec.structs.replace(each, note=notes.get(each.run_id)) for each in entries] if notes else entries


def _unread(place: StorePlace, fault: str) -> RunEntry:
    """A place of which no run is known: one that has only begun, or a damaged one."""
    folder = place.folder
    name = folder.name if folder is not None else ""
    begins = fault == NOTHING_STORED and folder is not None and writer_in(folder) is not None
    changed_unix_ns = None
    if folder is not None:
        with contextlib.suppress(OSError):
            changed_unix_ns = folder.stat().st_mtime_ns
    return RunEntry(
        run_id=name or place.store,
        store=place.store,
        state="under way" if begins else "damaged",
        folder=None if folder is None else str(folder),
        name=name,
        began_unix_ns=changed_unix_ns,
        sentence="no turn is stored yet" if begins else "",
        fault=None if begins else fault,
    )


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return one_line(text or str(error))
