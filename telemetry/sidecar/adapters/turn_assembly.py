"""Assembles turns from the spans of voice frameworks, which know nothing of our turns.

Pure: spans and the time are parameters. Spans come in any order, twice and late, from clocks that jump: what counts is
when they came. A turn closes when its own span has come and a grace period is over; one whose reply may still be under
way waits for longer, or for the end of its call. A turn of which more comes later is made anew: what a turn consists of
is remembered for as long as its spans would have waited for it.
"""

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

import msgspec

from telemetry.model import semconv
from telemetry.model.service_spans import WHOLE_TURN_ATTRIBUTES
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters import attribute_values as values
from telemetry.sidecar.adapters.framework_turns import framework_turn
from telemetry.sidecar.adapters.open_trace import (
    TURNS,
    ClosedTop,
    OpenTrace,
    ReadyTurn,
    WaitTimes,
    is_heard,
    is_same_conversation,
)
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


@dataclass(slots=True)
class _ClosedTurn:
    """A turn that was given, with its spans; `turn` is None where these were of nothing that was said."""

    ready: ReadyTurn
    parts: SpansOfTurn
    turn: Turn | None
    aged_ns: int
    span_id: str  # by which it is stored
    late: int = 0

    @property
    def top(self) -> ClosedTop:
        return ClosedTop(self.parts.first, self.turn is not None and self.turn.outcome == "ok")


class TurnAssembly:
    """The open turns of every service, and those that closed lately.

    `unmapped` counts "scope/span name" of spans that no adapter knows; `given_up` spans that were dropped because more
    than `open_spans_max` were open, the oldest first; `left_over` spans of stages whose turn never came; `late` those
    that came after their turn was given. Where they changed it, it is among what `revised` gives.

    `stored` are turns that an earlier process gave, by trace and span: each is given again only as revised, and not at
    all where it is among `settled`.
    """

    def __init__(
        self,
        *,
        grace_ns: int = GRACE_NS,
        open_spans_max: int = OPEN_SPANS_MAX,
        successor_ns: int = SUCCESSOR_NS,
        stored: Mapping[tuple[str, str], Turn] | None = None,
        settled: Collection[tuple[str, str]] = (),
    ) -> None:
        self._stored = {} if stored is None else stored
        self._settled = settled
        self._apart = frozenset(span_id for _, span_id in self._stored)
        self._waits = WaitTimes(grace_ns, max(successor_ns, grace_ns))
        self._open_spans_max = open_spans_max
        self._traces: dict[str, OpenTrace] = {}
        self._arrivals: deque[_Arrival] = deque()
        self._open_count = 0
        self._due: list[tuple[int, str]] = []
        # Of each span of a turn that was given the turn's first span, and the turns by that.
        self._given = _Remembered[tuple[str, str], str](open_spans_max)
        self._closed: OrderedDict[tuple[str, str], _ClosedTurn] = OrderedDict()
        self._closed_of_trace: dict[str, dict[str, _ClosedTurn]] = {}
        self._closed_spans = 0
        self._changed: dict[tuple[str, str], _ClosedTurn] = {}
        self._revised: dict[tuple[str, str], Turn] = {}
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
                due_ns = trace.first_due_ns(span.span_id, self._waits, self._tops(span.trace_id))
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
        found: list[Turn] = self._made_anew()
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
        self._forget_closed()
        return sorted([*found, *self._made_anew()], key=_beginning)

    def revised(self) -> list[Turn]:
        """Give the turns that were given before and are others now, because of what came late; each once."""
        found, self._revised = self._revised, {}
        return list(found.values())

    def flush(self) -> list[Turn]:
        """Give all turns whose own span has come, at shutdown or where no more spans will come."""
        found = [turn for trace_id in list(self._traces) for turn in self._ready(trace_id, None)]
        self._due.clear()
        return sorted([*found, *self._made_anew()], key=_beginning)

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
        part = Part(span, role)
        if (top_id := self._given.get((span.trace_id, span.parent_span_id or ""))) is not None:
            closed = self._closed.get((span.trace_id, top_id))
            if role.role not in TURNS or (closed is not None and is_same_conversation(closed.parts.first, part)):
                self._add_late(span.trace_id, top_id, [part])
                return False
        trace = self._traces.get(span.trace_id) or self._traces.setdefault(span.trace_id, OpenTrace(apart=self._apart))
        if not trace.add(part, now_ns):
            return False
        self._remember_latency(part)
        self._arrivals.append(_Arrival(self._aged_ns, span.trace_id, span.span_id))
        self._open_count += 1
        return True

    def _add_late(self, trace_id: str, top_id: str, parts: list[Part], *, beside: bool = False) -> None:
        """Take spans of a turn that was given, and what had come before them and hangs under them."""
        trace = self._traces.get(trace_id)
        if trace is not None and not beside:
            under = trace.below(parts)
            parts = [*parts, *under]
            self._open_count -= sum(trace.remove(part.span.span_id) is not None for part in under)
        if (closed := self._count_late(trace_id, top_id, parts)) is not None:
            (closed.ready.beside if beside else closed.ready.below).extend(parts)

    def _count_late(self, trace_id: str, top_id: str, parts: list[Part]) -> _ClosedTurn | None:
        """Count spans of a turn that was given, and note that it is to be made anew; None where it is forgotten."""
        closed = self._closed.get((trace_id, top_id))
        self.late += len(parts)
        for part in parts:
            self._given[trace_id, part.span.span_id] = top_id
        if closed is not None:
            closed.late += len(parts)
            self._closed_spans += len(parts)
            self._changed[trace_id, top_id] = closed
        return closed

    def _made_anew(self) -> list[Turn]:
        """Make the turns anew of which something came late: those that were none before are given now."""
        changed, self._changed = self._changed, {}
        found: list[Turn] = []
        for (trace_id, top_id), closed in changed.items():
            ready, before = closed.ready, closed.turn
            closed.parts = replace(
                closed.parts,
                own=tuple(ready.own),
                user=ready.user,
                below=_in_order(ready.below),
                beside=_in_order(ready.beside),
            )
            closed.turn = self._turn(closed.parts)
            if closed.turn is None:
                continue
            closed.turn = msgspec.structs.replace(closed.turn, late_spans=closed.late, span_id=closed.span_id)
            if before is None:
                found += self._not_stored(closed.turn)
            else:
                self._revised[trace_id, top_id] = closed.turn
        return found

    def _ready(self, trace_id: str, now_ns: int | None) -> list[Turn]:
        trace, tops = self._traces[trace_id], self._tops(trace_id)
        before = len(trace.spans)
        ready = trace.ready(now_ns, self._waits, tops)
        late = trace.late(now_ns, self._waits, tops)
        self._open_count -= before - len(trace.spans)
        calls = trace.calls()
        found: list[Turn] = []
        for each in ready:
            if self._is_late_half(trace_id, each):
                continue
            parts = self._placed(trace_id, each, calls)
            turn = self._turn(parts)
            span_id = self._stored_id(trace_id, each) or parts.first.span.span_id
            if turn is not None:
                turn = msgspec.structs.replace(turn, span_id=span_id)
                self._turns_of_trace[trace_id] = parts.turn_index + 1
                found += self._not_stored(turn)
            self._close(trace_id, _ClosedTurn(each, parts, turn, self._aged_ns, span_id))
        for top_id, parts_of_top in late:
            self._add_late(trace_id, top_id, parts_of_top, beside=True)
        if not trace.spans:
            del self._traces[trace_id]
        return found

    def _is_late_half(self, trace_id: str, ready: ReadyTurn) -> bool:
        """Whether this is the reply to a caller's turn that was given without one, or the caller's turn of a reply that
        was; it is added to that then, which is made anew."""
        first, framework = ready.outer()[0], ready.outer()[0].role.framework
        if framework is None or framework.turns != "paired" or (ready.own and ready.user is not None):
            return False
        same = [
            (top_id, closed)
            for top_id, closed in self._closed_of_trace.get(trace_id, {}).items()
            if _are_siblings(closed.parts.first, first)
        ]
        began_ns = min(part.span.start_unix_ns for part in ready.outer())
        if ready.own:
            fitting = [each for each in same if not each[1].ready.own and each[1].parts.start_unix_ns <= began_ns]
            fitting = fitting if is_heard(ready) else []
            chosen = max(fitting, key=lambda each: each[1].parts.start_unix_ns, default=None)
        else:
            fitting = [each for each in same if each[1].ready.user is None and each[1].parts.start_unix_ns >= began_ns]
            chosen = min(fitting, key=lambda each: each[1].parts.start_unix_ns, default=None)
        if chosen is None:
            return False
        top_id, closed = chosen
        closed.ready.own.extend(ready.own)
        closed.ready.user = closed.ready.user or ready.user
        self._count_late(trace_id, top_id, ready.everything())
        closed.ready.below.extend(ready.below)
        return True

    def _stored_id(self, trace_id: str, ready: ReadyTurn) -> str | None:
        """The span by which an earlier process stored a turn."""
        ids = (part.span.span_id for part in ready.outer())
        return next((span_id for span_id in ids if (trace_id, span_id) in self._stored), None)

    def _not_stored(self, turn: Turn) -> list[Turn]:
        """The turn, unless an earlier process stored it: then it is revised where it is another one."""
        key = (turn.trace_id, turn.span_id)
        stored = self._stored.get(key)
        if stored is None:
            return [turn]
        if key not in self._settled and msgspec.structs.replace(turn, late_spans=stored.late_spans) != stored:
            self._revised[key] = turn
        return []

    def _close(self, trace_id: str, closed: _ClosedTurn) -> None:
        top_id = closed.parts.first.span.span_id
        everything = closed.ready.everything()
        for part in everything:
            self._given[trace_id, part.span.span_id] = top_id
        self._closed[trace_id, top_id] = closed
        self._closed_of_trace.setdefault(trace_id, {})[top_id] = closed
        self._closed_spans += len(everything)

    def _forget_closed(self) -> None:
        """Forget the oldest turns that were given, where they are too many or too old for anything to come of them."""
        while self._closed:
            (trace_id, top_id), oldest = next(iter(self._closed.items()))
            if self._closed_spans <= self._open_spans_max and self._aged_ns - oldest.aged_ns <= _KEPT_NS:
                return
            del self._closed[trace_id, top_id]
            del self._closed_of_trace[trace_id][top_id]
            if not self._closed_of_trace[trace_id]:
                del self._closed_of_trace[trace_id]
            self._closed_spans -= len(oldest.ready.everything())

    def _tops(self, trace_id: str) -> list[ClosedTop]:
        """The turns of a trace that were given; none where all of them were answered, so that nothing is missing."""
        tops = [closed.top for closed in self._closed_of_trace.get(trace_id, {}).values()]
        return [] if all(top.is_answered for top in tops) else tops

    def _placed(self, trace_id: str, ready: ReadyTurn, calls: tuple[Part, ...]) -> SpansOfTurn:
        """The spans of a turn at its place in its call."""
        parts = SpansOfTurn(
            own=tuple(ready.own),
            below=tuple(ready.below),
            beside=tuple(ready.beside),
            user=ready.user,
            calls=calls,
            has_later_turn=ready.has_later_turn,
        )
        number = values.count(parts.value("turn_number"))
        index = self._turns_of_trace.get(trace_id, 0) if not number else number - 1
        stored = self._stored.get((trace_id, self._stored_id(trace_id, ready) or ""))
        if stored is not None and not number:
            index = stored.turn_index
        before_ns = self._latency_of_turn.get((parts.first.span.service, parts.call_id, index - 1))
        return parts.placed(index, before_ns)

    def _turn(self, parts: SpansOfTurn) -> Turn | None:
        framework = parts.framework
        return own_turn(parts) if framework is None else framework_turn(parts, framework)

    def _remember_latency(self, part: Part) -> None:
        """Of frameworks that state a latency again in the next turn."""
        if part.role.framework is None or not part.role.framework.repeats_latency or part.role.role != "turn":
            return
        parts = SpansOfTurn(own=(part,))
        number = values.count(parts.value("turn_number"))
        for _, _, ns in parts.latencies("voice_to_voice")[:1]:
            if number and ns is not None:
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


def _are_siblings(one: Part, other: Part) -> bool:
    return (one.role.family, one.span.service, one.span.parent_span_id) == (
        other.role.family,
        other.span.service,
        other.span.parent_span_id,
    )


def _in_order(parts: list[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: (part.span.start_unix_ns, part.span.span_id)))


class _Remembered(OrderedDict[K, V]):
    """A mapping that forgets what was set first when it holds more than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._most:
            self.popitem(last=False)
