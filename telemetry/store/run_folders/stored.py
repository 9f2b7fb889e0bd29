"""The runs of a store, read from the store itself: for folders without a summary, and stores that runs share."""

from collections.abc import Sequence
from typing import Final

from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import State
from telemetry.store.answers import RunRecord, calibrated_bound_ms
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore
from telemetry.store.run_folders.entries import EntryState, RunEntry, missing_turns
from telemetry.store.run_folders.places import StorePlace

STATES: Final[dict[State, EntryState]] = {
    "met": "met",
    "missed": "missed",
    "undecided": "undecided",
    "not_judged": "not judged",
}
_UNDER_WAY: Final[tuple[EntryState, str]] = ("under way", "the run is under way")


def read_store(
    reader: StoreReader, place: StorePlace, objectives: Sequence[Objective], now_unix_ns: int
) -> list[RunEntry]:
    """The runs of a store. Raises StoreError."""
    runs = [run for run in reader.runs() if run.turns or run.declared]
    return [_entry(reader, place, run, objectives, now_unix_ns) for run in runs]


def _entry(
    reader: StoreReader,
    place: StorePlace,
    run: RunRecord,
    objectives: Sequence[Objective],
    now_unix_ns: int,
) -> RunEntry:
    # Whether a run goes on is decided by the clock of who reads the store.
    figures = reader.run_figures(run.run_id, objectives, None if isinstance(reader, RemoteStore) else now_unix_ns)
    totals, verdict, loss = figures.totals, figures.verdict, figures.loss
    state, sentence = _UNDER_WAY if verdict is None else (STATES[verdict.state], verdict.sentence)
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


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
