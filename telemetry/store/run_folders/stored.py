"""The runs of a store, read from the store itself: for folders without a summary, and stores that runs share."""

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import State
from telemetry.store.answers import RunRecord
from telemetry.store.judged_turns import judged_turns
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore
from telemetry.store.run_folders.entries import EntryState, RunEntry
from telemetry.store.run_folders.known_runs import KnownRuns
from telemetry.store.run_folders.places import StorePlace
from telemetry.store.run_state import is_under_way

STATES: Final[dict[State, EntryState]] = {
    "met": "met",
    "missed": "missed",
    "undecided": "undecided",
    "not_judged": "not judged",
}


def read_store(
    reader: StoreReader | RemoteStore,
    place: StorePlace,
    objectives: Sequence[Objective],
    now_unix_ns: int | None = None,
    known: KnownRuns | None = None,
) -> list[RunEntry]:
    """Every run of a store, the newest first; those that are `known` are not read again. Raises StoreError."""
    now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
    known = KnownRuns() if known is None else known
    if not isinstance(reader, StoreReader):  # which files a run is in, its sidecar does not say
        return [_entry(reader, place, run, objectives, now_unix_ns) for run in _listed(reader)]
    known.look(reader.directory)
    runs = _listed(reader)
    if reader.faults:
        known = KnownRuns()  # what is left is read, and nothing else shown
    found = [known.entry(run) or _entry(reader, place, run, objectives, now_unix_ns) for run in runs]
    if not reader.faults:
        for run, entry in zip(runs, found, strict=True):
            if entry.state != "under way":
                known.keep(run, entry)
        known.keep_only({run.run_id for run in runs})
        return found
    fault = f"damaged segments are left out: {'; '.join(map(one_line, reader.faults))}"
    return [msgspec.structs.replace(each, fault=fault) for each in found]


def _listed(reader: StoreReader | RemoteStore) -> list[RunRecord]:
    return [run for run in reader.runs() if run.turns or run.declared]


def _entry(
    reader: StoreReader | RemoteStore,
    place: StorePlace,
    run: RunRecord,
    objectives: Sequence[Objective],
    now_unix_ns: int,
) -> RunEntry:
    figures = reader.run_figures(run.run_id, objectives)
    summary, evidence = figures.summary, figures.evidence
    verdict = judged_turns(objectives, evidence.counts, summary, evidence.cause).verdict
    state, sentence = STATES[verdict.state], verdict.sentence
    if is_under_way(figures.processes, now_unix_ns):
        state, sentence = "under way", "the run is under way"
    latency = summary.metrics[HEADLINE]
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
        turns=summary.turns.total,
        invalid=summary.turns.invalid,
        p50_ns=latency.p50,
        p95_ns=latency.p95,
        p99_ns=latency.p99,
        sentence=sentence,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
