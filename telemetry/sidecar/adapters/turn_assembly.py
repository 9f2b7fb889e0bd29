"""Assembles turns from the spans of voice frameworks, which know nothing of our turns.

Pure: spans and the time are parameters. Spans come in any order, twice and late, from clocks that jump: what counts is
when they came. A turn closes when its own span has come and a grace period is over; one whose reply may still be under
way waits for longer, or for the end of its call. What a turn consists of is then forgotten.
"""

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from telemetry.model import semconv
from telemetry.model.service_spans import WHOLE_TURN_ATTRIBUTES
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters import attribute_values as values
from telemetry.sidecar.adapters.framework_turns import framework_turn
from telemetry.sidecar.adapters.open_trace import OpenTrace, ReadyTurn, WaitTimes
from telemetry.sidecar.adapters.own_turns import own_turn
from telemetry.sidecar.adapters.span_roles import is_foreign, span_role
from telemetry.sidecar.adapters.spans_of_turn import Part, SpansOfTurn

__all__ = ["GRACE_NS", "OPEN_SPANS_MAX", "SUCCESSOR_NS", "TurnAssembly", "is_foreign"]

# Exporters send every 5 s by default, and what they could not send again somewhat later.
GRACE_NS: Final = 10_000_000_000
# A reply is played for less than this, and its span comes when it has been.
SUCCESSOR_NS: Final = 120_000_000_000
OPEN_SPANS_MAX: Final = 100_000
# Spans whose turn has not come after so long belong to none.
_KEPT_NS: Final = 15 * 60 * 1_000_000_000
# Turns open at once in one trace, which is one call.
_OPEN_TURNS_MAX: Final = 1_000
# When the receiver's clock is set forward, spans age no more than this at a time.
_AGED_AT_ONCE_NS: Final = 60_000_000_000
# Of these it is no loss that they belong to no turn.
_OF_NO_TURN: Final = frozenset({"call", "call_end", "part"})
K = TypeVar("K")
V = TypeVar("V")


class _Arrival(NamedTuple):
    aged_ns: int
    trace_id: str
    span_id: str


class TurnAssembly:
    """The open turns of every service.

    `unmapped` counts "scope/span name" of spans that no adapter knows; `given_up` spans that were dropped because more
    than `open_spans_max` were open, the oldest first; `left_over` spans of stages whose turn never came; `late` those
    that came after their turn was given.
    """

    def __init__(
        self,
        *,
        grace_ns: int = GRACE_NS,
        open_spans_max: int = OPEN_SPANS_MAX,
        successor_ns: int = SUCCESSOR_NS,
    ) -> None:
        self._waits = WaitTimes(grace_ns, max(successor_ns, grace_ns))
        self._open_spans_max = open_spans_max
        self._traces: dict[str, OpenTrace] = {}
        self._arrivals: deque[_Arrival] = deque()
        self._open_count = 0
        self._due: list[tuple[int, str]] = []
        self._given = _Remembered[tuple[str, str], None](open_spans_max)
        self._turns_of_trace = _Remembered[str, int](open_spans_max)
        self._latency_of_turn = _Remembered[tuple[str, str, int], int](open_spans_max)
        self._now_ns = 0
        self._set_back_ns = 0
        self._aged_ns = 0
        self.unmapped: Counter[str] = Counter()
        self.given_up = 0
        self.left_over = 0
        self.late = 0

    @property
    def open_spans(self) -> int:
        """How many spans wait for their turn."""
        return self._open_count

    def add(self, spans: Sequence[SpanRow], now_unix_ns: int) -> None:
        """Take spans that arrived at `now_unix_ns` of the receiver's wall clock."""
        now_ns = self._clock(now_unix_ns)
        for span in spans:
            if self._add(span, now_ns):
                trace = self._traces[span.trace_id]
                due_ns = trace.first_due_ns(span.span_id, self._waits)
                if due_ns is not None and (trace.planned_ns is None or due_ns < trace.planned_ns):
                    trace.planned_ns = due_ns
                    heapq.heappush(self._due, (due_ns, span.trace_id))
                while (oldest_id := trace.beyond(_OPEN_TURNS_MAX)) is not None:
                    self.given_up += self._forget(span.trace_id, oldest_id)
        while self._open_count > self._open_spans_max:
            oldest = self._arrivals.popleft()
            self.given_up += self._forget(oldest.trace_id, oldest.span_id)

    def due(self, now_unix_ns: int) -> list[Turn]:
        """Give the turns whose time has come at `now_unix_ns`, each once."""
        now_ns = self._clock(now_unix_ns)
        found: list[Turn] = []
        while self._due and self._due[0][0] <= now_ns:
            due_ns, trace_id = heapq.heappop(self._due)
            trace = self._traces.get(trace_id)
            if trace is not None and trace.planned_ns == due_ns:
                found += self._ready(trace_id, now_ns)
                if trace.planned_ns is not None:
                    heapq.heappush(self._due, (trace.planned_ns, trace_id))
        while self._arrivals and self._aged_ns - self._arrivals[0].aged_ns > _KEPT_NS:
            oldest = self._arrivals.popleft()
            self.left_over += self._forget(oldest.trace_id, oldest.span_id)
        return sorted(found, key=_beginning)

    def flush(self) -> list[Turn]:
        """Give all turns whose own span has come, at shutdown or where no more spans will come."""
        found = [turn for trace_id in list(self._traces) for turn in self._ready(trace_id, None)]
        self._due.clear()
        return sorted(found, key=_beginning)

    def _add(self, span: SpanRow, now_ns: int) -> bool:
        role = span_role(span.scope_name, span.name)
        if role is None:
            if span.scope_name != semconv.SCOPE:
                self.unmapped[f"{span.scope_name}/{span.name}"] += 1
            return False
        if role.framework is None and not WHOLE_TURN_ATTRIBUTES.isdisjoint(span.attributes):
            return False
        if (span.trace_id, span.span_id) in self._given:
            return False
        if (span.trace_id, span.parent_span_id or "") in self._given and role.role not in ("turn", "user_turn"):
            self.late += 1
            return False
        trace = self._traces.setdefault(span.trace_id, OpenTrace())
        part = Part(span, role)
        if not trace.add(part, now_ns):
            return False
        self._remember_latency(part)
        self._arrivals.append(_Arrival(self._aged_ns, span.trace_id, span.span_id))
        self._open_count += 1
        return True

    def _ready(self, trace_id: str, now_ns: int | None) -> list[Turn]:
        trace = self._traces[trace_id]
        before = len(trace.spans)
        ready = trace.ready(now_ns, self._waits)
        self._open_count -= before - len(trace.spans)
        calls = trace.calls()
        found = [turn for each in ready if (turn := self._turn(trace_id, each, calls)) is not None]
        for each in ready:
            for part in (*each.outer(), *each.below):
                self._given[trace_id, part.span.span_id] = None
        if not trace.spans:
            del self._traces[trace_id]
        return found

    def _turn(self, trace_id: str, ready: ReadyTurn, calls: tuple[Part, ...]) -> Turn | None:
        parts = SpansOfTurn(
            own=tuple(ready.own),
            below=tuple(ready.below),
            user=ready.user,
            calls=calls,
            has_later_turn=ready.has_later_turn,
        )
        number = values.count(parts.value("turn_number"))
        index = self._turns_of_trace.get(trace_id, 0) if not number else number - 1
        before_ns = self._latency_of_turn.get((parts.first.span.service, parts.call_id, index - 1))
        parts = parts.placed(index, before_ns)
        framework = parts.framework
        turn = own_turn(parts) if framework is None else framework_turn(parts, framework)
        if turn is not None:
            self._turns_of_trace[trace_id] = index + 1
        return turn

    def _remember_latency(self, part: Part) -> None:
        """Of frameworks that state a latency again in the next turn."""
        if part.role.framework is None or not part.role.framework.repeats_latency or part.role.role != "turn":
            return
        parts = SpansOfTurn(own=(part,))
        number = values.count(parts.value("turn_number"))
        for _, _, ns in parts.latencies("voice_to_voice")[:1]:
            if number:
                self._latency_of_turn[part.span.service, parts.call_id, number - 1] = ns

    def _forget(self, trace_id: str, span_id: str) -> int:
        """Drop a span that is still open: 1 where that is a loss."""
        trace = self._traces.get(trace_id)
        found = None if trace is None else trace.remove(span_id)
        if trace is None or found is None:
            return 0
        self._open_count -= 1
        if not trace.spans:
            del self._traces[trace_id]
        return 0 if found.part.role.role in _OF_NO_TURN else 1

    def _clock(self, now_unix_ns: int) -> int:
        """The receiver's clock, which never goes back."""
        now_ns = now_unix_ns + self._set_back_ns
        if now_ns < self._now_ns:
            self._set_back_ns += self._now_ns - now_ns
            now_ns = self._now_ns
        self._aged_ns += min(now_ns - self._now_ns, _AGED_AT_ONCE_NS)
        self._now_ns = now_ns
        return now_ns


def _beginning(turn: Turn) -> tuple[int, str]:
    return turn.started_unix_ns, turn.span_id


class _Remembered(OrderedDict[K, V]):
    """A mapping that forgets what was set first when it holds more than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._most:
            self.popitem(last=False)
