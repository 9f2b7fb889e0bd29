"""Runs out of their stores, compared: what the command line and the page both ask."""

from collections.abc import Sequence
from dataclasses import replace

from telemetry.comparison.figures import METRICS_COMPARED, REPORTED, counted
from telemetry.comparison.runs import ComparedRun
from telemetry.comparison.verdict import RegressionMargin, RunComparison, compare_runs
from telemetry.model.errors import StoreError
from telemetry.objectives.objective import Objective
from telemetry.store.remote import open_store
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_turns import RunTurnsQuestion


def read_run(
    entry: RunEntry, margin: RegressionMargin, objectives: Sequence[Objective], token: str | None
) -> ComparedRun:
    """The turns of a listed run. Raises StoreError."""
    if entry.state == "damaged":
        raise StoreError(f"{entry.title}: {entry.fault}")
    asked = RunTurnsQuestion(
        entry.run_id,
        tuple(dict.fromkeys((*METRICS_COMPARED, margin.metric))),
        REPORTED,
        tuple(counted(objectives)),
    )
    with open_store(entry.store, token) as reader:
        found = reader.run_turns(asked)
    if found is None:
        raise StoreError(f"{entry.title}: {entry.store} holds no turn of this run")
    return replace(found, name=entry.name)


def compare_entries(
    entries: Sequence[RunEntry], margin: RegressionMargin, objectives: Sequence[Objective], token: str | None = None
) -> tuple[RunComparison, ...]:
    """Each run after the first beside the first. Raises StoreError, ValueError for fewer than two runs."""
    if len(entries) < 2:
        raise ValueError("two runs or more are compared")
    baseline, *others = (read_run(entry, margin, objectives, token) for entry in entries)
    return tuple(compare_runs(baseline, other, margin, objectives) for other in others)
