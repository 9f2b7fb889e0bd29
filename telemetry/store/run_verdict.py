"""What a verdict on a run rests on, from one consistent read: its objectives' counts, and of a miss its cause."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from telemetry.explanation.miss_cause import MissTurns, find_cause
from telemetry.model.metrics import METRICS
from telemetry.objectives.judgment import Judgment
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import MissCause, leading_miss
from telemetry.objectives.slo import judge
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.explanation import coded
from telemetry.store.objectives import ObjectiveCounts, verdicts_by_key
from telemetry.store.questions.filters import source_of
from telemetry.store.turn_samples import drawn_turns

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
_COUNTED: Final[dict[Judgment | None, int]] = {Judgment.GOOD: 0, Judgment.BAD: 1}
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


def run_verdict_evidence(
    connection: StoreConnection, f: Filter, objectives: Sequence[Objective], counts: ObjectiveCounts
) -> RunVerdictEvidence:
    """The evidence of the filter's turns. `counts` are of the same snapshot."""
    missed = leading_miss(objectives, judge(objectives, counts.count))
    if missed is None:
        return RunVerdictEvidence(counts)
    cause = find_cause(_miss_turns(connection, f, missed))
    return RunVerdictEvidence(counts, cause)


def _miss_turns(connection: StoreConnection, f: Filter, objective: Objective) -> MissTurns:
    """The turns that count for the objective, in the order in which they began."""
    where = drawn_turns(connection, f).where
    key, values, verdicts = verdicts_by_key(connection, where, [objective], source_of(f))
    column = METRICS[objective.metric].column if objective.metric in _PARTS else "NULL"
    stages = ", ".join(f"({sql})::DOUBLE AS {name}" for name, sql in _STAGES.items())
    found: dict[str, Any] = connection.execute(
        f"""
        SELECT started_unix_ns, hash(call_id) AS call, cohort, {key} AS rule, ({column})::DOUBLE AS total, {stages}
        FROM turns WHERE {where.sql} ORDER BY started_unix_ns, span_id
        """,
        [*values, *where.values],
    ).fetchnumpy()
    by_key = verdicts[objective.name]
    known, places = np.unique(found["rule"], return_inverse=True)
    verdict = np.array([_COUNTED.get(by_key.get(int(each)), -1) for each in known])[places.reshape(-1)]
    counted = verdict >= 0
    cohorts, labels = coded(found["cohort"][counted])
    return MissTurns(
        objective=objective.name,
        target=objective.target,
        started_unix_ns=found["started_unix_ns"][counted],
        is_bad=verdict[counted] == 1,
        calls=np.unique(found["call"][counted], return_inverse=True)[1].reshape(-1),
        cohorts=cohorts,
        labels=labels,
        total=_numbers(found["total"][counted]) if objective.metric in _PARTS else None,
        stages=_parts_of(objective, found, counted),
    )


def _parts_of(objective: Objective, found: dict[str, Any], counted: Any) -> dict[str, Any]:
    parts = _PARTS.get(objective.metric or "", ())
    stages = {name: _numbers(found[name][counted]) for name in parts if name in _STAGES}
    if "unexplained" in parts:
        stages["unexplained"] = _numbers(found["total"][counted]) - sum(np.nan_to_num(each) for each in stages.values())
    return {name: values for name, values in stages.items() if not np.isnan(values).all()}


def _numbers(column: Any) -> Any:
    return np.ma.filled(column.astype(np.float64), np.nan)
