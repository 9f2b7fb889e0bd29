"""A span as it was received: everything that its sender stated of it, with plain Python values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

SpanKind = Literal["Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"]
StatusCode = Literal["Unset", "Ok", "Error"]
# Their place is the number that OTLP gives them.
SPAN_KINDS: Final[tuple[SpanKind, ...]] = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
STATUS_CODES: Final[tuple[StatusCode, ...]] = ("Unset", "Ok", "Error")


def _no_attributes() -> dict[str, object]:
    return {}


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A moment within a span, in wall-clock ns as the span said."""

    name: str
    unix_ns: int
    attributes: Mapping[str, object] = field(default_factory=_no_attributes)


@dataclass(frozen=True, slots=True)
class SpanLink:
    """Another span that a span points to: `trace_id` 32 and `span_id` 16 hex digits."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: Mapping[str, object] = field(default_factory=_no_attributes)


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One stored span: times are wall-clock ns as the span said.

    The values of attributes are str, bool, int, float, bytes, None, lists and dicts of these; of a key that was sent
    twice the last value stands here.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    service: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, object]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    kind: SpanKind = "Unspecified"
    status_code: StatusCode = "Unset"
    status_message: str = ""
    trace_state: str = ""
    scope_name: str = ""
    scope_version: str = ""
    resource_attributes: Mapping[str, object] = field(default_factory=_no_attributes)
