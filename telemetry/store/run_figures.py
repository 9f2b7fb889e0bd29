"""A run as the list of runs needs it, from one consistent read."""

from dataclasses import dataclass

from telemetry.store.answers import ProcessInfo, Summary
from telemetry.store.run_verdict import RunVerdictEvidence


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The summary of a run, the load generator's processes, and what a verdict on it rests on: None of a run that goes
    on, as nothing is said of its objectives before it has ended."""

    summary: Summary
    processes: tuple[ProcessInfo, ...]
    evidence: RunVerdictEvidence | None
