"""Values that contradict the evidence they come with, and the turn without them. Pure.

A slow value never contradicts anything, and neither does a first token before the end of the caller's speech.
Contradictions are: a latency longer than the span that states it, a stage that answered before it was requested or
before its turn began, a timestamp after the end of its span, and a value that is not a number. Such a value is removed,
and named with its cause: it neither meets nor misses an objective.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from telemetry.model.metrics import ITL, METRICS, known_timestamps
from telemetry.model.semconv import Contradiction
from telemetry.model.turns import Turn

# The bounds of a span are stamps of a wall clock, and a latency within it is a difference of another clock's stamps.
TOLERANCE_NS: Final = 50_000_000
# What the service does about what the caller said: never before the turn begins.
STAGES: Final = (
    *("asr_first_partial", "asr_final", "llm_first_token", "llm_first_sentence", "llm_last_token"),
    *("tts_first_chunk", "tts_last_chunk", "first_audio", "reply_end"),
)
# A detector is sure of these only later, so that they may lie before the span that has them.
_CALLER_TIMESTAMPS: Final = frozenset({"speech_start", "speech_end", "endpoint"})
# How long a detector may take to be sure that the caller has finished, where the turn's span begins only then.
_DETECTED: Final = ("speech_end", "endpoint")
_DETECTED_WITHIN_NS: Final = 10_000_000_000
# Each pair in the order in which they happen.
IN_ORDER: Final = (
    ("speech_start", "speech_end"),
    ("llm_first_token", "llm_first_sentence"),
    ("llm_first_token", "llm_last_token"),
    ("tts_first_chunk", "tts_last_chunk"),
    ("first_audio", "reply_end"),
)
# Durations that were measured as such.
DURATIONS: Final = (
    *("connect_ns", "prior_request_ns", "leading_silence_ns", "talk_over_ns"),
    *("underrun_worst_ns", "underrun_total_ns", "reply_audio_ns"),
)


class SpanBounds(NamedTuple):
    """The start and the end of a span, in ns of the clock of a turn's timestamps."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class SpanEvidence:
    """The start of the first of a turn's own spans, and by timestamp the bounds of its span."""

    began_ns: int
    bounds_by_timestamp: Mapping[str, SpanBounds] = field(default_factory=dict[str, SpanBounds])


def latency_contradiction(
    latency_ns: int | None, lasted_ns: int, *, may_be_negative: bool = False
) -> Contradiction | None:
    """The cause why a latency stated by a span of `lasted_ns` is impossible; None if it is possible.

    A latency of None means not a number. A latency from the end of the caller's speech, and not from a request,
    `may_be_negative`. For a span that ends before it begins, the distance of its bounds is used: a clock was set, and
    the latency may be right.
    """
    if latency_ns is None:
        return "not_a_number"
    if latency_ns < 0 and not may_be_negative:
        return "before_request"
    if abs(latency_ns) > abs(lasted_ns) + TOLERANCE_NS:
        return "longer_than_span"
    return None


def timestamp_contradictions(turn: Turn, evidence: SpanEvidence | None = None) -> dict[str, Contradiction]:
    """The impossible timestamps of a turn, each with the cause. Without evidence, for a client, the turn's own start is
    the bound."""
    at = known_timestamps(turn)
    causes: dict[str, Contradiction] = {}
    began_ns = min(at.get("speech_start", turn.started_perf_ns), turn.started_perf_ns)
    if evidence is not None:
        for name in _DETECTED:
            if name in at and at[name] < evidence.began_ns - _DETECTED_WITHIN_NS:
                causes[name] = "before_turn"
        caller_ns = [at[name] for name in ("speech_start", "speech_end") if name in at and name not in causes]
        began_ns = min([evidence.began_ns, *caller_ns])
    for name in STAGES:
        if name in at and at[name] < began_ns - TOLERANCE_NS:
            causes[name] = "before_turn"
    for name, span in evidence.bounds_by_timestamp.items() if evidence is not None else ():
        if name in at and name not in causes and (cause := _span_contradiction(name, at[name], span)) is not None:
            causes[name] = cause
    for earlier, later in IN_ORDER:
        if earlier in at and later in at and not {earlier, later} & causes.keys() and at[later] < at[earlier]:
            causes[later] = "out_of_order"
    return causes


def begun_with_its_moments(turn: Turn, began_unix_ns: int) -> Turn:
    """The turn of a service with the start of the first of its spans or timestamps: its clock is the wall clock."""
    began_unix_ns = min([began_unix_ns, *known_timestamps(turn).values()])
    return msgspec.structs.replace(turn, started_unix_ns=began_unix_ns, started_perf_ns=began_unix_ns)


def without_contradictions(
    turn: Turn,
    timestamps: Mapping[str, Contradiction],
    metrics: Mapping[str, Contradiction] | None = None,
) -> Turn:
    """The turn without impossible timestamps, durations and gaps. `contradicted_metrics` names the metrics that are
    unknown because of that, and those of `metrics`, whose values were left out before."""
    causes: dict[str, Contradiction] = {f"{name}_perf_ns": cause for name, cause in timestamps.items()}
    for name in DURATIONS:
        if (getattr(turn, name) or 0) < 0:
            causes[name] = "negative"
    gone: dict[str, Contradiction] = {**(metrics or {})}
    changes: dict[str, Any] = dict.fromkeys(causes)
    for name, cause in causes.items():
        without = msgspec.structs.replace(turn, **{name: None})
        for metric in METRICS.values():
            if (value := metric.value(turn)) is not None and metric.value(without) != value:
                gone.setdefault(metric.name, cause)
    if any(gap_ns < 0 for gap_ns in turn.llm_chunk_gaps_ns):
        changes["llm_chunk_gaps_ns"] = ()
        gone[ITL] = "out_of_order"
    known = dict(zip(turn.contradicted_metrics, turn.contradicted_causes, strict=False))
    fresh = {name: cause for name, cause in gone.items() if name not in {*turn.withheld_metrics, *known}}
    if fresh:
        changes["contradicted_metrics"] = (*turn.contradicted_metrics, *fresh)
        changes["contradicted_causes"] = (*turn.contradicted_causes, *fresh.values())
    return msgspec.structs.replace(turn, **changes) if changes else turn


def _span_contradiction(name: str, at_ns: int, span: SpanBounds) -> Contradiction | None:
    if name not in _CALLER_TIMESTAMPS and at_ns < min(span) - TOLERANCE_NS:
        return "before_request"
    return "after_span" if at_ns > max(span) + TOLERANCE_NS else None
