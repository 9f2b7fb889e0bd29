"""Runs from their stores, compared: for the command line and the page."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from telemetry.comparison.figures import METRICS_COMPARED, REPORTED, counted
from telemetry.comparison.runs import ComparedRun
from telemetry.comparison.verdict import RegressionMargin, RunComparison, compare_runs
from telemetry.model.errors import StoreError
from telemetry.objectives.objective import Objective
from telemetry.store.questions.comparisons import RunTurnsQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import are_judged_otherwise, objectives_of

# Gives the reader of a store, for as long as its context lasts.
Opened = Callable[[str], AbstractContextManager[StoreReader]]


@dataclass(frozen=True, slots=True)
class ComparedBy:
    """The objectives by which the good turns of compared runs are counted. `judged_otherwise` has the references of
    runs that were judged by other objectives."""

    objectives: tuple[Objective, ...]
    judged_otherwise: frozenset[str] = frozenset()


def compared_by(entries: Sequence[RunEntry], given: Sequence[Objective] | None) -> ComparedBy:
    """The objectives that were given for all runs; without them those of the baseline, which is the first run. Raises
    ConfigError if the baseline's are invalid."""
    if given is not None:
        return ComparedBy(tuple(given))
    own = objectives_of(_folder(entries[0]))
    others = (entry.reference for entry in entries[1:] if are_judged_otherwise(_folder(entry), own))
    return ComparedBy(own, frozenset(others))


def _folder(entry: RunEntry) -> Path | None:
    return None if entry.folder is None else Path(entry.folder)


def read_run(entry: RunEntry, margin: RegressionMargin, objectives: Sequence[Objective], opened: Opened) -> ComparedRun:
    """The turns of a listed run. Raises StoreError."""
    if entry.state == "damaged":
        raise StoreError(f"{entry.title}: {entry.fault}")
    asked = RunTurnsQuestion(
        entry.run_id,
        tuple(dict.fromkeys((*METRICS_COMPARED, margin.metric))),
        REPORTED,
        tuple(counted(objectives)),
    )
    with opened(entry.store) as reader:
        run = reader.run_turns(asked)
    if run is None:
        why = f"{entry.store} holds no turn of this run"
        if entry.is_empty:
            why = f"no turn of it is stored: {entry.sentence}"
        raise StoreError(f"{entry.title}: {why}")
    return replace(run, name=entry.name)


def compare_entries(
    entries: Sequence[RunEntry], margin: RegressionMargin, by: ComparedBy, opened: Opened
) -> tuple[RunComparison, ...]:
    """Compare each run after the first with the first. Raises StoreError, ValueError for fewer than two runs."""
    if len(entries) < 2:
        raise ValueError("two runs or more are compared")
    baseline, *others = (read_run(entry, margin, by.objectives, opened) for entry in entries)
    return tuple(
        compare_runs(baseline, other, margin, by.objectives, is_judged_otherwise=entry.reference in by.judged_otherwise)
        for entry, other in zip(entries[1:], others, strict=True)
    )
