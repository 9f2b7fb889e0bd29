"""The verdicts on objectives and the sentence about a run, from what one snapshot of its store answers; pure.

Pages, the list of runs and the command line all ask here, so that they say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import MissCause, RunVerdict, run_verdict
from telemetry.objectives.slo import Verdict, judge, not_judged
from telemetry.store.answers import Summary
from telemetry.store.calls import UNREACHED
from telemetry.store.generator_limit import GENERATOR_LIMITED
from telemetry.store.objectives import ObjectiveCounts
from telemetry.store.run_limit import limit_turns
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
    found = judge(objectives, counts.count, lost=summary.loss.missing, measured_s=measured_s)
    limit = limit_for(summary, found) or limit
    unjudged = UNREACHED if summary.unreached is not None else None if limit is None else GENERATOR_LIMITED
    if unjudged is not None:
        found = not_judged(objectives, found, unjudged)
    limited = summary.unreached or limit
    verdict = run_verdict(objectives, found, cause=cause, limited=limited, kept=calls_kept(summary, found))
    return JudgedTurns(found, verdict, unjudged)


def calls_kept(summary: Summary, verdicts: Sequence[Verdict]) -> str | None:
    """How many calls never began because the service kept the earlier ones, as half a sentence; None where that is not
    shown. An objective that is missed under less load than was asked for is missed, so that it shows it, too."""
    not_begun = calls_not_begun(summary.starts)
    is_shown = limit_turns(summary).is_service_slow or any(verdict.met is False for verdict in verdicts)
    if not_begun is None or not is_shown:
        return None
    return f"{not_begun} because {AS_MANY_AS_ALLOWED}, {KEPT_BY_THE_SERVICE}"


def limit_for(summary: Summary, verdicts: Sequence[Verdict]) -> str | None:
    """Why nothing is claimed of the service; None where something is. An objective that is missed under less load than
    was asked for is missed."""
    limit = summary.limit
    if limit is None or (limit.unless_missed and any(verdict.met is False for verdict in verdicts)):
        return None
    return limit.reason
