"""The runs of a store, read from the store itself: for folders without a summary, and stores that runs share."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import State
from telemetry.store.answers import RunRecord, calibrated_bound_ms
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore
from telemetry.store.run_folders.entries import EntryState, RunEntry, missing_turns
from telemetry.store.run_folders.known_runs import KnownRuns
from telemetry.store.run_folders.places import StorePlace

STATES: Final[dict[State, EntryState]] = {
    "met": "met",
    "missed": "missed",
    "undecided": "undecided",
    "not_judged": "not judged",
}
_UNDER_WAY: Final[tuple[EntryState, str]] = ("under way", "the run is under way")


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """Runs of a store, the newest first. `unread` is how many others there are that have not been read yet; of
    `outdated`, rows may have come or gone since they were read."""

    entries: list[RunEntry]
    unread: int = 0
    outdated: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether every run has been read as it is."""
        return not self.unread and not self.outdated


def read_store(
    reader: StoreReader | RemoteStore,
    place: StorePlace,
    objectives: Sequence[Objective],
    now_unix_ns: int | None = None,
    *,
    known: KnownRuns | None = None,
    left_out: str | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> StoredRuns:
    """The runs of a store; those that are `known` are not read again, and `left_out` is not read at all. Once the time
    `is_over`, only what goes on or has changed is, and one more. Raises StoreError."""
    now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
    known = KnownRuns() if known is None else known
    faults: dict[str, None] = {}

    def read(run: RunRecord) -> RunEntry:
        entry, its_faults = _entry(reader, place, run, objectives, now_unix_ns)
        faults.update(dict.fromkeys(its_faults))
        return entry

    if not isinstance(reader, StoreReader):  # which files a run is in, its sidecar does not say
        runs = _listed(reader.runs(), left_out)
        return StoredRuns(_with_faults([read(run) for run in runs], faults))
    known.look(reader.directory)
    listed = reader.runs_and_sources()
    runs = _listed(listed.runs, left_out)
    known.look_at(listed.sources)
    # Of each answer by itself: others may ask the same reader, whose last question is then theirs.
    faults.update(dict.fromkeys(listed.faults))
    if not faults:
        found = _read_in_turn(runs, known, read, is_over)
        if not faults:
            return found
    # What is left is read, and nothing else shown, now or when the segments are whole again.
    known.keep_only(set())
    return StoredRuns(_with_faults([read(run) for run in runs], faults))


def _with_faults(entries: list[RunEntry], faults: Collection[str]) -> list[RunEntry]:
    if not faults:
        return entries
    fault = f"damaged segments are left out: {'; '.join(map(one_line, faults))}"
    return [msgspec.structs.replace(each, fault=fault) for each in entries]


def _read_in_turn(
    runs: Sequence[RunRecord], known: KnownRuns, read: Callable[[RunRecord], RunEntry], is_over: Callable[[], bool]
) -> StoredRuns:
    found: dict[str, RunEntry] = {}
    for run in runs:
        if (entry := known.entry(run)) is not None:
            known.keep(run, entry)
            found[run.run_id] = entry
    outdated: set[str] = set()
    is_first = True
    for run, may_wait in known.in_turn([run for run in runs if run.run_id not in found]):
        if may_wait and not is_first and is_over():
            if (latest := known.latest(run)) is not None:
                found[run.run_id] = latest
                outdated.add(run.run_id)
            continue
        is_first = is_first and not may_wait
        found[run.run_id] = read(run)
        known.keep_read(run, found[run.run_id])
    known.keep_only({run.run_id for run in runs})
    entries = [found[run.run_id] for run in runs if run.run_id in found]
    return StoredRuns(entries, unread=len(runs) - len(entries), outdated=frozenset(outdated))


def _listed(runs: Sequence[RunRecord], left_out: str | None) -> list[RunRecord]:
    return [run for run in runs if (run.turns or run.declared) and run.run_id != left_out]


def _entry(
    reader: StoreReader | RemoteStore,
    place: StorePlace,
    run: RunRecord,
    objectives: Sequence[Objective],
    now_unix_ns: int,
) -> tuple[RunEntry, tuple[str, ...]]:
    """A run, and the faults of the store that its figures were read with."""
    # Whether a run goes on is decided by the clock of who reads the store.
    figures = reader.run_figures(run.run_id, objectives, now_unix_ns if isinstance(reader, StoreReader) else None)
    totals, verdict, loss = figures.totals, figures.verdict, figures.loss
    state, sentence = _UNDER_WAY if verdict is None else (STATES[verdict.state], verdict.sentence)
    entry = RunEntry(
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
        turns=totals.turns,
        invalid=totals.invalid,
        p50_ns=totals.p50,
        p95_ns=totals.p95,
        p99_ns=totals.p99,
        sentence=sentence,
        is_generator_limited=figures.is_generator_limited,
        cohorts=totals.cohorts,
        missing_turns=None if loss is None else missing_turns(loss.emitted, loss.missing),
        calibrated_to_ms=calibrated_bound_ms(run.calibrated_to_ms),
        stored_unix_ns=run.stored_unix_ns,
    )
    return entry, figures.faults


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
