"""The runs of a store, read from the store itself: for folders without a summary, and stores that runs share."""

import time
from collections.abc import Sequence

import msgspec

from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict, judge
from telemetry.store.answers import Filter, RunRecord, Summary
from telemetry.store.generator_limit import GENERATOR_LIMITED
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore
from telemetry.store.run_folders.entries import EntryState, RunEntry
from telemetry.store.run_folders.places import RunPlace
from telemetry.store.run_state import generator_limit, is_under_way


def read_store(
    reader: StoreReader | RemoteStore, place: RunPlace, objectives: Sequence[Objective], now_unix_ns: int | None = None
) -> list[RunEntry]:
    """Every run of a store, the newest first. Raises StoreError."""
    now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
    known = [run for run in reader.runs() if run.turns or run.declared]
    found = [_entry(reader, place, run, objectives, now_unix_ns) for run in known]
    faults = reader.faults if isinstance(reader, StoreReader) else ()
    if not faults:
        return found
    fault = f"damaged segments are left out: {'; '.join(map(one_line, faults))}"
    return [msgspec.structs.replace(each, fault=fault) for each in found]


def _entry(
    reader: StoreReader | RemoteStore,
    place: RunPlace,
    run: RunRecord,
    objectives: Sequence[Objective],
    now_unix_ns: int,
) -> RunEntry:
    f = Filter(run_id=run.run_id)
    summary = reader.summary(f)
    known = reader.processes(run.run_id)
    limit = None
    if run.service is None:
        limit = generator_limit(known, (summary.turns.invalid, summary.turns.total), summary.starts, now_unix_ns)
    counts = reader.objective_counts(f, objectives)
    state, sentence = _state(judge(objectives, counts.count, counts.good_range), summary, limit)
    if is_under_way(known, now_unix_ns):
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


def _state(verdicts: Sequence[Verdict], summary: Summary, limit: str | None) -> tuple[EntryState, str]:
    """By the objectives, as the exit code of a run has it: one that is missed counts, whatever is undecided."""
    if limit is not None:
        return "not judged", f"{GENERATOR_LIMITED}: {limit}"
    if not summary.turns.total:
        return "undecided", "no turn was measured"
    missed = [verdict.name for verdict in verdicts if verdict.met is False]
    open_ones = [verdict.name for verdict in verdicts if verdict.met is None]
    if missed:
        return "missed", f"{', '.join(missed)} missed"
    if open_ones:
        return "undecided", f"{', '.join(open_ones)} undecided"
    return "met", "every objective is met"


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
