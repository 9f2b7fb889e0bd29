"""The turn of the spans of a custom service, by the table of telemetry.model.services.

Each timestamp is the time of an event, each field an attribute, on the span `voice.turn` or on one below it.
"""

from typing import Any, Final, NamedTuple

import msgspec

from telemetry.model import contradictions
from telemetry.model.contradictions import SpanBounds, SpanEvidence
from telemetry.model.semconv import FailureKind, Outcome
from telemetry.model.services import service_span_table
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn, with_plain_texts
from telemetry.sidecar.adapters.spans_of_turn import SpansOfTurn, failed

_FAILURES: Final[dict[str, FailureKind]] = {
    "error": "endpoint_error",
    "timeout": "timeout",
    "no_reply": "no_reply",
    "abandoned": "abandoned",
    "interrupted": "interrupted",
}
# What only a load generator can say of a turn. Turns that ended so count in no ratio and no comparison, so that a
# service which said it of its slow ones would be judged by the others. `pending` is for the sidecar alone to say.
_NOT_OF_A_SERVICE: Final = frozenset({"cut", "invalid", "pending"})
# Timestamps at which the reply had audio.
_AUDIO_TIMESTAMPS: Final = frozenset({"tts_first_chunk", "tts_last_chunk", "first_audio", "reply_end"})
_TYPES: Final[dict[str, Any]] = {field.name: field.type for field in msgspec.structs.fields(Turn)}


def own_turn(parts: SpansOfTurn) -> Turn:
    """The turn; a value that its field cannot hold is left out, as if it were unknown."""
    moments = _moments(parts)
    if "tts_first_chunk" in moments:
        moments.setdefault("first_audio", moments["tts_first_chunk"])
    timestamps: dict[str, Any] = {f"{name}_perf_ns": moment.unix_ns for name, moment in moments.items()}
    spoke = not _AUDIO_TIMESTAMPS.isdisjoint(moments) or len(failed(parts.of("tts"))) < len(parts.of("tts"))
    outcome: Outcome = "ok" if spoke else "no_reply"
    if outcome != "ok" and failed([*parts.own]):
        outcome = "error"
    span = parts.first.span
    known: dict[str, Any] = {
        "run_id": parts.run_id(),
        "call_id": span.trace_id,
        "turn_index": parts.turn_index,
        "outcome": outcome,
        "cohort": parts.variant(),
        **timestamps,
        **_stated(parts),
        "user_id": parts.user_id(),
        "source": "service",
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "started_unix_ns": parts.start_unix_ns,
        "started_perf_ns": parts.start_unix_ns,
    }
    known["failure_kind"] = _FAILURES.get(known["outcome"])
    if known["failure_kind"] is None:
        known["failure_code"] = None
    turn = msgspec.convert(known, Turn)
    bounds = {name: SpanBounds(moment.span.start_unix_ns, moment.span.end_unix_ns) for name, moment in moments.items()}
    evidence = SpanEvidence(min(parts.start_unix_ns, parts.end_unix_ns), bounds)
    turn = contradictions.without_contradictions(turn, contradictions.timestamp_contradictions(turn, evidence))
    return with_plain_texts(contradictions.begun_with_its_moments(turn, parts.start_unix_ns))


class _Moment(NamedTuple):
    """The timestamp of an event, and the span that has it."""

    unix_ns: int
    span: SpanRow


def _moments(parts: SpansOfTurn) -> dict[str, _Moment]:
    """The timestamps of a turn, by name."""
    moments: dict[str, _Moment] = {}
    for event in service_span_table().event:
        stamps = [
            _Moment(span_event.unix_ns, part.span)
            for part in (*parts.own, *parts.below, *parts.siblings)
            for span_event in part.span.events
            if span_event.name == event.name and span_event.unix_ns > 0  # 0 is an unset time
        ]
        if stamps:
            chosen = min if event.which == "first" else max
            name = event.field.removesuffix("_perf_ns")
            moments.setdefault(name, chosen(stamps, key=lambda moment: moment.unix_ns))
    return moments


def _stated(parts: SpansOfTurn) -> dict[str, Any]:
    """The fields that attributes state, the turn's own span first; for one field, the first name in the table takes
    precedence."""
    fields: dict[str, Any] = {}
    for attribute in service_span_table().attribute:
        for part in (*parts.own, *parts.below, *parts.siblings):
            value = part.span.attributes.get(attribute.name)
            if value is None or value == "" or attribute.field in fields:
                continue
            try:
                stated = msgspec.convert(value, _TYPES[attribute.field])
            except msgspec.ValidationError:
                continue
            if attribute.field != "outcome" or stated not in _NOT_OF_A_SERVICE:
                fields[attribute.field] = stated
    return fields
