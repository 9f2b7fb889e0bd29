"""The list of all runs, of folders of runs, stores and sidecars, and the run that a name refers to.

The folder of an ended run answers with its `summary.json`; for all others the stores are queried, or the sidecars that
own them, each once.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import State
from telemetry.store.answers import calibrated_bound_ms
from telemetry.store.questions.run_figures import ListedRun
from telemetry.store.reader import is_address, open_store
from telemetry.store.run_folders.changes import read_notes, writer_in
from telemetry.store.run_folders.entries import EntryState, RunEntry, missing_turns, rejudged
from telemetry.store.run_folders.places import (
    StorePlace,
    are_kept_otherwise,
    begun_runs,
    is_store,
    objectives_of,
    places_of,
)
from telemetry.store.run_folders.summaries import BadSummaryError, read_summary

NOTHING_STORED: Final = "no turn is stored here: the run never began, or its turns went to another sidecar's store"
SEPARATOR: Final = "#"
_MOST_NAMED: Final = 5
_STATES: Final[dict[State, EntryState]] = {
    "met": "met",
    "missed": "missed",
    "undecided": "undecided",
    "not_judged": "not judged",
}
_UNDER_WAY: Final[tuple[EntryState, str]] = ("under way", "the run is under way")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RunListing:
    """Runs, the newest first. They are judged by the `objectives`; with None, each by its own."""

    entries: list[RunEntry]
    objectives: tuple[Objective, ...] | None = None


class RunCatalog:
    """Lists runs; thread-safe. They are judged by the `objectives`; without, each by those that it was judged by
    before, else by the default set. `token` is for the sidecars among the places."""

    def __init__(
        self,
        given: Sequence[str],
        objectives: Sequence[Objective] | None,
        *,
        token: str | None = None,
    ) -> None:
        self.given = tuple(given)
        self._objectives = None if objectives is None else tuple(objectives)
        self._token = token

    def listing(self) -> RunListing:
        """All runs as `entries` gives them, with what they are judged by."""
        return RunListing(self.entries(), self._objectives)

    def entries(
        self, *, now_unix_ns: int | None = None, progress: Progress = lambda _done, _total: None
    ) -> list[RunEntry]:
        """Every run, the newest first. Raises ConfigError for a place that is not a folder; the fault of a single run
        is in its entry."""
        places = places_of(self.given)
        asked = _AskedStores(self._token, time.time_ns() if now_unix_ns is None else now_unix_ns)
        entries: list[RunEntry] = []
        for number, place in enumerate(places):
            entries += _noted(place, self._read(place, asked))
            progress(number + 1, len(places))
        merged = self._merged(entries)
        return sorted(merged, key=lambda entry: (entry.listed_unix_ns, entry.run_id, entry.store), reverse=True)

    def _read(self, place: StorePlace, asked: "_AskedStores") -> list[RunEntry]:
        summed, fault = None, None
        try:
            summed = read_summary(place)
        except (BadSummaryError, OSError) as error:
            fault = _reason(error)
        try:
            entries = self._read_store(place, summed, asked)
        except (StoreError, ConfigError, OSError) as error:
            # The row of a sidecar begins with its address already.
            fault = _reason(error).removeprefix(f"{place.store}: " if place.is_remote else "")
            entries = [] if summed is None else [summed]
        if not entries and (place.folder is not None or fault is not None):
            return [_unread(place, fault or NOTHING_STORED)]
        return entries if fault is None else [msgspec.structs.replace(entry, fault=fault) for entry in entries]

    def _read_store(self, place: StorePlace, summed: RunEntry | None, asked: "_AskedStores") -> list[RunEntry]:
        """Every run of the place; `summed`, from the command's summary, is used unless it was judged by other
        objectives."""
        begun = None if place.folder is None else begun_runs(place.folder)
        is_rejudged = self._rejudges(place.folder)
        if summed is not None and not is_rejudged and not set(begun or ()) - {summed.run_id}:
            return [summed]
        if not place.is_remote and not is_store(Path(place.store)):
            return [] if summed is None else [rejudged(summed, None) if is_rejudged else summed]
        objectives = objectives_of(place.folder) if self._objectives is None else self._objectives
        entries = [_entry(place, run) for run in asked.runs(place.store, objectives)]
        if place.is_remote and begun is not None:
            entries = [entry for entry in entries if entry.run_id in begun]
        if summed is None:
            return entries
        others = [entry for entry in entries if entry.run_id != summed.run_id and entry.run_id in (begun or ())]
        own = next((entry for entry in entries if entry.run_id == summed.run_id), None)
        return [rejudged(summed, own) if is_rejudged else summed, *others]

    def _rejudges(self, folder: Path | None) -> bool:
        """Return whether the run of a folder was judged by other objectives than those that are given."""
        return self._objectives is not None and are_kept_otherwise(folder, self._objectives)

    def _merged(self, entries: Sequence[RunEntry]) -> list[RunEntry]:
        """One entry per run: from its folder, with the store of its turns, and the verdict by the given objectives."""
        shared = {entry.run_id: entry for entry in entries if entry.folder is None}
        merged: list[RunEntry] = []
        taken: set[str] = set()
        for entry in entries:
            stored = None if entry.folder is None else shared.get(entry.run_id)
            if entry.folder is None or stored is None or (not is_address(entry.store) and is_store(Path(entry.store))):
                merged.append(entry)
                continue
            taken.add(entry.run_id)
            if entry.state == "damaged":
                merged.append(msgspec.structs.replace(stored, folder=entry.folder, name=entry.name, note=entry.note))
                continue
            judged = rejudged(entry, stored) if self._rejudges(Path(entry.folder)) else entry
            merged.append(msgspec.structs.replace(judged, store=stored.store, note=entry.note or stored.note))
        return [entry for entry in merged if entry.folder is not None or entry.run_id not in taken]


class _AskedStores:
    """The stores queried for one list of runs: a sidecar that several run folders name is queried once."""

    def __init__(self, token: str | None, now_unix_ns: int) -> None:
        self._token = token
        self._now_unix_ns = now_unix_ns
        self._answers: dict[tuple[str, tuple[Objective, ...]], list[ListedRun] | StoreError] = {}

    def runs(self, store: str, objectives: tuple[Objective, ...]) -> list[ListedRun]:
        """The runs of a store, judged by the objectives. Raises StoreError."""
        key = store, objectives
        if key not in self._answers:
            try:
                # Whether a run goes on is decided by the clock of who reads the store.
                with open_store(store, self._token) as reader:
                    self._answers[key] = reader.run_list(objectives, None if is_address(store) else self._now_unix_ns)
            except StoreError as error:
                self._answers[key] = error
        answer = self._answers[key]
        if isinstance(answer, StoreError):
            raise answer
        return answer


def _entry(place: StorePlace, listed: ListedRun) -> RunEntry:
    run, loss = listed.run, listed.loss
    verdict = listed.verdict
    state, sentence = _UNDER_WAY if verdict is None else (_STATES[verdict.state], verdict.sentence)
    return RunEntry(
        run_id=run.run_id,
        store=place.store,
        folder=None if place.folder is None else str(place.folder),
        name="" if place.folder is None else place.folder.name,
        state=state,
        began_unix_ns=run.first_unix_ns,
        target=run.target,
        protocol=run.protocol,
        source="client" if run.service is None else "service",
        users=_whole(run.declared.get("users")),
        scenario=run.declared.get("scenario"),
        profile=run.declared.get("profile"),
        turns=listed.turns,
        invalid=listed.invalid,
        p50_ns=listed.p50,
        p95_ns=listed.p95,
        p99_ns=listed.p99,
        sentence=sentence,
        is_generator_limited=listed.is_generator_limited,
        cohorts=listed.cohorts,
        missing_turns=None if loss is None else missing_turns(loss.emitted, loss.missing),
        calibrated_to_ms=calibrated_bound_ms(run.calibrated_to_ms),
        stored_unix_ns=run.stored_unix_ns,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _noted(place: StorePlace, entries: list[RunEntry]) -> list[RunEntry]:
    notes = read_notes(place.notes_folder)
    return [msgspec.structs.replace(entry, note=notes.get(entry.run_id)) for entry in entries] if notes else entries


def _unread(place: StorePlace, fault: str) -> RunEntry:
    """A place without a known run: it has only begun, or is damaged."""
    folder = place.folder
    name = folder.name if folder is not None else ""
    begun = [] if folder is None else begun_runs(folder)
    begins = fault == NOTHING_STORED and folder is not None and writer_in(folder) is not None
    changed_unix_ns = None
    if folder is not None:
        with contextlib.suppress(OSError):
            changed_unix_ns = folder.stat().st_mtime_ns
    return RunEntry(
        run_id=begun[-1] if begun else name or place.store,
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


def find_run(
    text: str, listed: Callable[[], Sequence[RunEntry]], open_catalog: Callable[[str], RunCatalog]
) -> RunEntry:
    """The one run that a text refers to: by its folder, its id, a prefix of one, `STORE#RUN`, or a sidecar's address.
    `listed` are the runs to choose from by name; `open_catalog` lists another place.

    A place with one run refers to that run; of a store with several the newest is never guessed. Raises ConfigError.
    """
    if (text and Path(text).is_dir()) or (is_address(text) and SEPARATOR not in text):
        return _only(text, open_catalog(text).entries(), f"give {text}{SEPARATOR}RUN")
    if SEPARATOR in text:
        store, _, run_id = text.rpartition(SEPARATOR)
        inside = open_catalog(store).entries()
        return _only(text, _named(run_id, inside), f"known are {_names(inside)}")
    known = listed()
    matches = _named(text, known)
    return _only(text, matches, f"known are {_names(known)}" if known else "there are no runs here")


def _named(text: str, known: Sequence[RunEntry]) -> list[RunEntry]:
    exact = [entry for entry in known if text in (entry.run_id, entry.name)]
    return exact or [
        entry for entry in known if text and (entry.run_id.startswith(text) or entry.name.startswith(text))
    ]


def _only(text: str, matches: Sequence[RunEntry], advice: str) -> RunEntry:
    if not matches:
        raise ConfigError(text, [f"is no run: {advice}"])
    if len(matches) > 1:
        raise ConfigError(text, [f"is {len(matches):,} runs ({_names(matches)}): {advice}"])
    return matches[0]


def _names(known: Sequence[RunEntry]) -> str:
    names = [entry.name or entry.run_id for entry in known[:_MOST_NAMED]]
    return ", ".join([*names, f"{len(known) - _MOST_NAMED:,} more"] if known[_MOST_NAMED:] else names) or "none"
