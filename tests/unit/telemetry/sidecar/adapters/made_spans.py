"""Spans made by hand, for what no framework was recorded doing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from telemetry.model.turn_spans import SpanEvent, SpanRow, StatusCode

SECOND_NS = 1_000_000_000
NOW_UNIX_NS = 1_794_355_000 * SECOND_NS
TRACE_ID = "1" * 32


def span(
    name: str, span_id: int, parent: int | None = None, attributes: Mapping[str, object] | None = None, **more: Any
) -> SpanRow:
    """A span of one second that ends now; `scope_name` and the like by their names."""
    made = SpanRow(
        trace_id=TRACE_ID,
        span_id=f"{span_id:016x}",
        parent_span_id=None if parent is None else f"{parent:016x}",
        name=name,
        service="bot",
        start_unix_ns=NOW_UNIX_NS - SECOND_NS,
        end_unix_ns=NOW_UNIX_NS,
        attributes=attributes or {},
    )
    return replace(made, **more)


def pipecat_turn(span_id: int = 2, **attributes: object) -> SpanRow:
    """The third turn of a Pipecat call, answered after half a second."""
    stated = {"turn.number": 3, "conversation.id": "c", "turn.user_bot_latency_seconds": 0.5, **attributes}
    return span("turn", span_id, attributes=stated, scope_name="pipecat.turn")


def livekit(name: str, span_id: int, parent: int | None = None, **more: Any) -> SpanRow:
    """A span of LiveKit Agents."""
    return span(name, span_id, parent, scope_name="livekit-agents", **more)


def event(name: str, ms: int, **attributes: object) -> SpanEvent:
    """An event so many ms after the spans' beginning."""
    return SpanEvent(name, NOW_UNIX_NS - SECOND_NS + ms * 1_000_000, attributes)


def failed(made: SpanRow) -> SpanRow:
    """The span, ended in an error."""
    error: StatusCode = "Error"
    return replace(made, status_code=error)
