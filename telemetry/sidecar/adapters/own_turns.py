"""The turn of the spans of a service of one's own, by the table of telemetry.model.service_spans.

Each moment is the time stamp of an event, each fact an attribute, on the span `voice.turn` or on one below it.
"""

from typing import Any, Final

import msgspec

from telemetry.model.semconv import FailureKind, Outcome
from telemetry.model.service_spans import service_span_table
from telemetry.model.turn_texts import with_plain_texts
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.spans_of_turn import SpansOfTurn, failed

_FAILURES: Final[dict[str, FailureKind]] = {
    "error": "endpoint_error",
    "timeout": "timeout",
    "no_reply": "no_reply",
    "abandoned": "abandoned",
    "interrupted": "interrupted",
}
_TYPES: Final[dict[str, Any]] = {field.name: field.type for field in msgspec.structs.fields(Turn)}


def own_turn(parts: SpansOfTurn) -> Turn:
    """The turn; what has a value that its field cannot hold is left out, as if it were unknown."""
    moments = _moments(parts)
    start_unix_ns = min([parts.start_unix_ns, *moments.values()])
    moments.setdefault("first_audio_perf_ns", moments.get("tts_first_chunk_perf_ns"))
    outcome: Outcome = "ok" if moments["first_audio_perf_ns"] is not None else "no_reply"
    if outcome != "ok" and failed([*parts.own]):
        outcome = "error"
    span = parts.first.span
    known: dict[str, Any] = {
        "run_id": parts.run_id(),
        "call_id": span.trace_id,
        "turn_index": parts.turn_index,
        "outcome": outcome,
        "cohort": parts.variant(),
        **moments,
        **_stated(parts),
        "user_id": parts.user_id(),
        "source": "service",
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "started_unix_ns": start_unix_ns,
        "started_perf_ns": start_unix_ns,
    }
    known["failure_kind"] = _FAILURES.get(known["outcome"])
    if known["failure_kind"] is None:
        known["failure_code"] = None
    return with_plain_texts(msgspec.convert(known, Turn))


def _moments(parts: SpansOfTurn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for event in service_span_table().event:
        stamps = [
            each.unix_ns for part in (*parts.own, *parts.below) for each in part.span.events if each.name == event.name
        ]
        if stamps:
            found.setdefault(event.field, min(stamps) if event.which == "first" else max(stamps))
    return found


def _stated(parts: SpansOfTurn) -> dict[str, Any]:
    """The fields that attributes state, the turn's own span first; for one field the table's first name counts."""
    found: dict[str, Any] = {}
    for attribute in service_span_table().attribute:
        for part in (*parts.own, *parts.below):
            value = part.span.attributes.get(attribute.name)
            if value is None or value == "" or attribute.field in found:
                continue
            try:
                found[attribute.field] = msgspec.convert(value, _TYPES[attribute.field])
            except msgspec.ValidationError:
                continue
    return found
