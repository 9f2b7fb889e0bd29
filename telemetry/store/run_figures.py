"""A run as the list of runs needs it, from one consistent read."""

from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.objectives.objective import Objective
from telemetry.objectives.observable import observed
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.store.answers import Filter, ProcessInfo, TelemetryLoss
from telemetry.store.connection import StoreConnection
from telemetry.store.questions.instrument import processes
from telemetry.store.questions.objectives import count_objectives
from telemetry.store.questions.runs import runs
from telemetry.store.questions.summaries import RunTotals, run_totals, summary, totals_of
from telemetry.store.questions.verdicts import judged_turns, measured_s, run_verdict_evidence
from telemetry.store.run_state import is_under_way


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What is shown of a run's turns, the load generator's processes, and the verdict: None of a run that goes on, as
    nothing is said of its objectives before it has ended, nor of which telemetry is missing (`loss`) and whether its
    load generator was the limit."""

    totals: RunTotals
    processes: tuple[ProcessInfo, ...]
    verdict: RunVerdict | None
    # As they are also where a sidecar of an older version does not say.
    loss: TelemetryLoss | None = None
    is_generator_limited: bool = False


def run_figures(
    connection: StoreConnection,
    run_id: str,
    objectives: Sequence[Objective],
    *,
    now_unix_ns: int,
) -> RunFigures:
    """The answer. Of a run that goes on, which is asked at every look, no more is
    read than is shown: all that a verdict rests on takes many times as long."""
    f = Filter(run_id=run_id)
    known = tuple(processes(connection, run_id))
    if is_under_way(known, now_unix_ns):
        return RunFigures(run_totals(connection, f), known, None)
    whole = summary(connection, f, now_unix_ns, known=known)
    counts = count_objectives(connection, f, objectives)
    objectives = observed(objectives, counts.is_withheld)
    verdict = judged_turns(objectives, counts, whole).verdict
    if verdict.state == "undecided":
        run = next((each for each in runs(connection) if each.run_id == run_id), None)
        verdict = judged_turns(objectives, counts, whole, measured_s=measured_s(whole, run)).verdict
    if verdict.state == "missed":  # of a run that its generator limited, no cause is stated
        evidence = run_verdict_evidence(connection, f, objectives, counts)
        verdict = judged_turns(objectives, counts, whole, evidence.cause).verdict
    return RunFigures(totals_of(whole), known, verdict, whole.loss, whole.limit is not None)
