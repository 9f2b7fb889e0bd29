"""A stored span as the waterfall reads it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One stored span, for the waterfall: times are wall-clock ns as the span said."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    service: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: dict[str, object]
    events: tuple[tuple[str, int], ...] = ()
