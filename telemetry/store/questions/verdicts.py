"""The verdicts on objectives and on a run: their evidence, and the sentence about the run.

Pages, the list of runs and the command line all use these functions, so that they agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from telemetry.explanation.miss_cause import MissTurns, find_cause
from telemetry.model.metrics import METRICS
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import MissCause, RunVerdict, leading_miss, run_verdict
from telemetry.objectives.slo import Verdict, judge, not_judged
from telemetry.store.answers import (
    GENERATOR_LIMITED,
    Filter,
    GeneratorLimit,
    RunRecord,
    StartCounts,
    Summary,
    TelemetryLoss,
    TurnCounts,
)
from telemetry.store.connection import StoreConnection
from telemetry.store.questions.conversations import UNREACHED
from telemetry.store.questions.explanation import coded, drawn_turns
from telemetry.store.questions.filters import Objectives, source_of
from telemetry.store.questions.objectives import (
    BAD,
    ObjectiveCounts,
    column_of,
    count_objectives,
    sampling_intervals,
    with_judgments,
)
from telemetry.store.questions.runs import AS_MANY_AS_ALLOWED, calls_not_begun, is_service_slow

KEPT_BY_THE_SERVICE: Final = "kept by the service"
# The stages that a metric is the sum of, as the stage budget divides voice-to-voice.
_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "voice_to_voice": ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained"),
    "asr_final_latency": ("endpointing", "asr"),
    "llm_first_token_latency": ("endpointing", "asr", "llm"),
}
_FINAL: Final = (
    "CASE WHEN asr_final_perf_ns <= llm_first_token_perf_ns"
    " AND asr_final_perf_ns >= coalesce(endpoint_perf_ns, speech_end_perf_ns) THEN asr_final_perf_ns END"
)
_STAGES: Final = {
    "endpointing": "endpoint_perf_ns - speech_end_perf_ns",
    "asr": f"({_FINAL}) - coalesce(endpoint_perf_ns, speech_end_perf_ns)",
    "llm": f"llm_first_token_perf_ns - coalesce(({_FINAL}), endpoint_perf_ns, speech_end_perf_ns)",
    "tts": "tts_first_chunk_perf_ns - llm_first_token_perf_ns",
    "leading_silence": "leading_silence_ns",
}


@dataclass(frozen=True, slots=True)
class RunVerdictEvidence:
    """Counts of every objective, what is shown of why the leading one is missed (None where none is), and by the names
    of objectives the 95 % sampling interval of their shares, where it is known."""

    counts: ObjectiveCounts
    cause: MissCause | None = None
    sampling: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])


def run_verdict_evidence(connection: StoreConnection, f: Filter, objectives: Objectives) -> RunVerdictEvidence:
    """Return what `objectives.run_verdict` makes a verdict of: the counts as `objective_counts`, the cause of a miss as
    far as it is shown, and the sampling intervals of the shares."""
    counts = count_objectives(connection, f, objectives)
    sampling = sampling_intervals(connection, f, objectives)
    return RunVerdictEvidence(counts, cause_of_miss(connection, f, objectives, counts), sampling)


def cause_of_miss(
    connection: StoreConnection, f: Filter, objectives: Sequence[Objective], counts: ObjectiveCounts
) -> MissCause | None:
    """Return the likely cause for which the leading objective of the filter's turns is missed. `counts` are of the same
    snapshot."""
    missed = leading_miss(objectives, judge(objectives, counts.count))
    return None if missed is None else find_cause(_miss_turns(connection, f, missed))


def _miss_turns(connection: StoreConnection, f: Filter, objective: Objective) -> MissTurns:
    """The turns that count for the objective, ordered by start."""
    table = with_judgments(drawn_turns(connection, f).where, [objective], source_of(f))
    judgment = column_of(0)
    total = METRICS[objective.metric].column if objective.metric in _PARTS else "NULL"
    stages = ", ".join(f"({sql})::DOUBLE AS {name}" for name, sql in _STAGES.items())
    columns = connection.arrow(
        f"""
        SELECT started_unix_ns, hash(call_id) AS call, cohort, {judgment} = {BAD} AS is_bad,
               ({total})::DOUBLE AS total, {stages}
        FROM {table.sql} WHERE {judgment} <= {BAD} ORDER BY started_unix_ns, span_id
        """,
        table.values,
    )
    cohorts, labels = coded(columns["cohort"])
    return MissTurns(
        objective=objective.name,
        target=objective.target,
        started_unix_ns=columns["started_unix_ns"].to_numpy(),
        is_bad=columns["is_bad"].to_numpy(),
        calls=np.unique(columns["call"].to_numpy(), return_inverse=True)[1].reshape(-1),
        cohorts=cohorts,
        labels=labels,
        total=columns["total"].to_numpy() if objective.metric in _PARTS else None,
        stages=_parts_of(objective, columns),
    )


def _parts_of(objective: Objective, columns: Any) -> dict[str, Any]:
    parts = _PARTS.get(objective.metric or "", ())
    stages = {name: columns[name].to_numpy() for name in parts if name in _STAGES}
    if "unexplained" in parts:
        stages["unexplained"] = columns["total"].to_numpy() - sum(np.nan_to_num(values) for values in stages.values())
    return {name: values for name, values in stages.items() if not np.isnan(values).all()}


class RunEvidence(Protocol):
    """The inputs of a verdict other than the counts of its objectives: a `Summary` has it."""

    @property
    def turns(self) -> TurnCounts: ...
    @property
    def loss(self) -> TelemetryLoss: ...
    @property
    def starts(self) -> StartCounts | None: ...
    @property
    def limit(self) -> GeneratorLimit | None: ...
    @property
    def unreached(self) -> str | None: ...


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
    summary: RunEvidence,
    cause: MissCause | None = None,
    *,
    limit: str | None = None,
    measured_s: float | None = None,
) -> JudgedTurns:
    """Judge the turns of `summary` by their counts. `limit` is why the load generator was the limit where the caller
    alone knows it; what `summary` knows comes first. `measured_s` is how long the turns took to come, if known."""
    statuses = judged_objectives(objectives, counts, summary, measured_s=measured_s)
    limit = limit if summary.limit is None else summary.limit.reason
    unjudged = UNREACHED if summary.unreached is not None else None if limit is None else GENERATOR_LIMITED
    if unjudged is not None:
        statuses = not_judged(objectives, statuses, unjudged)
    limited = summary.unreached or limit
    verdict = run_verdict(objectives, statuses, cause=cause, limited=limited, kept=calls_kept(summary, statuses))
    return JudgedTurns(statuses, verdict, unjudged)


def judged_objectives(
    objectives: Sequence[Objective], counts: ObjectiveCounts, summary: RunEvidence, *, measured_s: float | None = None
) -> list[Verdict]:
    """The verdict on each objective. Lost turns, and due calls that never began, are open."""
    dropped = 0 if summary.starts is None else summary.starts.dropped
    return judge(objectives, counts.count, lost=summary.loss.missing, prevented=dropped, measured_s=measured_s)


def measured_s(summary: Summary, run: RunRecord | None) -> float | None:
    """Return the period over which the counted turns began: from the first of them, after a ramp, to the run's end."""
    return (
        None if run is None else lasted_s(run, [phase.first_unix_ns for phase in summary.phases if not phase.is_ramp])
    )


def lasted_s(run: RunRecord, phases_unix_ns: Sequence[int]) -> float | None:
    """Return `measured_s` from the first moments of the phases that are not ramps."""
    began_unix_ns = min(phases_unix_ns, default=run.first_unix_ns)
    return max(0, run.reached_unix_ns - began_unix_ns) / 1e9 or None


def calls_kept(summary: RunEvidence, verdicts: Sequence[Verdict]) -> str | None:
    """Return how many calls never began because the service kept the earlier ones, as half a sentence; None where that
    is not shown. An objective that is missed under less load than was asked for is missed, so that it shows it, too;
    where all are met although each of these calls counts as a bad one, it makes no difference."""
    not_begun = calls_not_begun(summary.starts)
    is_missed = any(verdict.met is False for verdict in verdicts)
    is_met = bool(verdicts) and all(verdict.met for verdict in verdicts)
    of = summary.turns
    is_slow = is_service_slow(of.total, of.by_outcome, of.endpoint_did_not_read)
    if not_begun is None or is_met or not (is_missed or is_slow):
        return None
    return f"{not_begun} because {AS_MANY_AS_ALLOWED}, {KEPT_BY_THE_SERVICE}"
