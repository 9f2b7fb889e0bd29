"""The verdicts on objectives and the sentence about a run, from what one snapshot of its store answers; pure.

Pages, the list of runs and the command line all ask here, so that they say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import MissCause, RunVerdict, run_verdict
from telemetry.objectives.slo import Verdict, judge, not_judged
from telemetry.store.answers import GENERATOR_LIMITED, RunRecord, Summary
from telemetry.store.objectives import ObjectiveCounts
from telemetry.store.questions.conversations import UNREACHED
from telemetry.store.questions.instrument import limit_turns
from telemetry.store.run_state import AS_MANY_AS_ALLOWED, calls_not_begun

KEPT_BY_THE_SERVICE: Final = "kept by the service"


@dataclass(frozen=True, slots=True)
class JudgedTurns:
    """The verdict on each objective, in their order, and the one on the run. `unjudged` is why neither claims anything,
    None where they do."""

    verdicts: Sequence[Verdict]
    verdict: RunVerdict
    unjudged: str | None = None


def judged_turns(
    objectives: Sequence[Objective],
    counts: ObjectiveCounts,
    summary: Summary,
    cause: MissCause | None = None,
    *,
    limit: str | None = None,
    measured_s: float | None = None,
) -> JudgedTurns:
    """Judge the turns of `summary` by their counts. `limit` is why the load generator was the limit where the caller
    alone knows it; what `summary` knows comes first. `measured_s` is how long the turns took to come, if known."""
    found = judged_objectives(objectives, counts, summary, measured_s=measured_s)
    limit = limit if summary.limit is None else summary.limit.reason
    unjudged = UNREACHED if summary.unreached is not None else None if limit is None else GENERATOR_LIMITED
    if unjudged is not None:
        found = not_judged(objectives, found, unjudged)
    limited = summary.unreached or limit
    verdict = run_verdict(objectives, found, cause=cause, limited=limited, kept=calls_kept(summary, found))
    return JudgedTurns(found, verdict, unjudged)


def judged_objectives(
    objectives: Sequence[Objective], counts: ObjectiveCounts, summary: Summary, *, measured_s: float | None = None
) -> list[Verdict]:
    """The verdict on each objective. Turns that were lost, and calls that were due and never began, are open."""
    dropped = 0 if summary.starts is None else summary.starts.dropped
    return judge(objectives, counts.count, lost=summary.loss.missing, prevented=dropped, measured_s=measured_s)


def measured_s(summary: Summary, run: RunRecord | None) -> float | None:
    """How long the turns that are counted took to come: from the first of them, after a ramp, to the run's end."""
    if run is None:
        return None
    steady = [phase.first_unix_ns for phase in summary.phases if not phase.is_ramp]
    began_unix_ns = min(steady) if steady else run.first_unix_ns
    return max(0, run.reached_unix_ns - began_unix_ns) / 1e9 or None


def calls_kept(summary: Summary, verdicts: Sequence[Verdict]) -> str | None:
    """How many calls never began because the service kept the earlier ones, as half a sentence; None where that is not
    shown. An objective that is missed under less load than was asked for is missed, so that it shows it, too; where all
    are met although each of these calls counts as a bad one, it makes no difference."""
    not_begun = calls_not_begun(summary.starts)
    is_missed = any(verdict.met is False for verdict in verdicts)
    is_met = bool(verdicts) and all(verdict.met for verdict in verdicts)
    if not_begun is None or is_met or not (is_missed or limit_turns(summary).is_service_slow):
        return None
    return f"{not_begun} because {AS_MANY_AS_ALLOWED}, {KEPT_BY_THE_SERVICE}"
