"""The turns of services, from spans that arrive in any order, repeated and late; a turn exists from its first span on.

Pure: spans and the time are parameters. The spans of a trace are kept in memory while they arrive, and its turns are
made again from all of them with each new span. A difference from what is stored is a change: a new turn, a changed one,
or one that no longer exists. A turn is *pending* until it is complete: its own span has arrived, and it was answered,
or no more of its spans arrived for a while. A trace that was dropped from memory is loaded again, with its spans and
turns, from the store.
"""

import heapq
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from telemetry.model.recent import RecentDict
from telemetry.model.services import WHOLE_TURN_ATTRIBUTES
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters import attribute_values as values
from telemetry.sidecar.adapters.framework_turns import framework_turn
from telemetry.sidecar.adapters.frameworks import span_role
from telemetry.sidecar.adapters.own_turns import own_turn
from telemetry.sidecar.adapters.spans_of_turn import Part, SpansOfTurn
from telemetry.sidecar.adapters.trace_turns import CALLS, turns_of_trace
from telemetry.store.schema import fits

# A turn without an answer is complete when nothing of it has come for so long. Exporters send every 5 s by default, and
# what they could not send again somewhat later; a reply that is still played, or a further step, takes longer.
COMPLETE_AFTER_NS: Final = 10_000_000_000
ANSWER_WITHIN_NS: Final = 120_000_000_000
# A trace without new spans for this long is dropped from memory.
REMEMBERED_NS: Final = 15 * 60 * 1_000_000_000
# Within this time late spans change a turn.
UPDATED_WITHIN_NS: Final = 24 * 3600 * 1_000_000_000
SPANS_MAX: Final = 100_000
TRACE_SPANS_MAX: Final = 3_000
_FORGOTTEN_MAX: Final = 200_000
PENDING: Final = "pending"
# Spans with these roles are not lost if they belong to no turn.
_ROLES_WITHOUT_TURN: Final = frozenset({*CALLS, "part"})

_log = logging.getLogger(__name__)


class TurnChange(NamedTuple):
    """The stored turn and the current turn; None if it is not stored, or no longer exists."""

    stored: Turn | None
    turn: Turn | None

    @property
    def is_first(self) -> bool:
        """Whether the turn became complete with this change."""
        return is_complete(self.turn) and not is_complete(self.stored)

    @property
    def is_revised(self) -> bool:
        """Whether a complete turn changed."""
        return is_complete(self.turn) and is_complete(self.stored)


class _TurnDetails(NamedTuple):
    """The inputs that determine a turn."""

    span_ids: frozenset[str]
    calls: int
    has_later_turn: bool
    turn_index: int
    latency_before_ns: int | None
    is_over: bool  # no more spans are expected


class _Made(NamedTuple):
    """A turn and the inputs that it was made from; None if nothing was spoken."""

    of: _TurnDetails
    number: int | None  # that its spans state, from 1
    call_id: str
    turn: Turn | None


class _Stored(NamedTuple):
    """A turn as it is stored, and the ids of the spans that it was made from."""

    turn: Turn
    span_ids: frozenset[str]


@dataclass(slots=True)
class _OpenTrace:
    """The spans of a trace in memory, by id, and when each arrived, on the receiver's clock."""

    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    came_ns: dict[str, int] = field(default_factory=dict[str, int])
    made: dict[str, _Made] = field(default_factory=dict[str, _Made])
    stored: dict[str, _Stored] = field(default_factory=dict[str, _Stored])
    # The turns to store, by their ids, each with the ids of its spans.
    wanted: dict[str, _Stored] = field(default_factory=dict[str, _Stored])
    last_ns: int = 0
    due_ns: int | None = None  # when a pending turn becomes complete unless more of its spans arrive
    open_spans: int = 0  # of no turn, or of a pending one
    lost_spans: int = 0  # of those, what is a loss when the trace is forgotten
    # For a trace that is too long: the spans of its oldest turns, and the number of these turns.
    past: set[str] = field(default_factory=set[str])
    past_turns: int = 0


class TurnAssembly:
    """The turns of all services whose spans arrived recently.

    `left_over` counts spans of stages whose turn never arrived, or was never completed; `given_up` spans that were
    dropped because their trace has too many; `late` those that arrived after their turn was complete; `unstorable`
    turns with times that cannot be stored.
    """

    def __init__(self, *, spans_max: int = SPANS_MAX, trace_spans_max: int = TRACE_SPANS_MAX) -> None:
        self._spans_max = spans_max
        self._trace_spans_max = trace_spans_max
        self._traces: OrderedDict[str, _OpenTrace] = OrderedDict()  # the longest without new spans first
        self._spans = 0
        self._touched: dict[str, None] = {}
        self._due: list[tuple[int, str]] = []
        self._forgotten = RecentDict[str, None](_FORGOTTEN_MAX)
        # By service, call and place in it, with the trace of the turn.
        self._latency_of_turn = RecentDict[tuple[str, str, int], tuple[int, str]](spans_max)
        self.left_over = 0
        self.given_up = 0
        self.late = 0
        self.unstorable = 0
        self.faults: list[str] = []

    @property
    def open_spans(self) -> int:
        """The number of spans whose turn is missing or not complete."""
        return sum(trace.open_spans for trace in self._traces.values())

    def forgotten(self, trace_ids: Iterable[str]) -> list[str]:
        """The traces that must be loaded from the store before more of their spans are added."""
        return [trace_id for trace_id in dict.fromkeys(trace_ids) if trace_id in self._forgotten]

    def forget(self, trace_ids: Iterable[str]) -> None:
        """Drop traces from memory and remember that the store has spans of them."""
        for trace_id in trace_ids:
            self._forgotten[trace_id] = None

    def take_up(self, spans: Sequence[SpanRow], turns: Sequence[Turn], now_ns: int) -> None:
        """Load the stored spans of traces with their stored turns. A turn whose own span is no longer stored stays as
        it is, whatever spans of its stages there are."""
        ids = {(span.trace_id, span.span_id) for span in spans}
        for trace_id, _ in ids:
            self._forgotten.pop(trace_id, None)
        past = {(turn.trace_id, turn.span_id) for turn in turns if is_complete(turn)} - ids
        for trace_id, span_id in past:
            self._trace(trace_id).past.add(span_id)
        self.add(sorted(spans, key=lambda span: span.start_unix_ns), now_ns)
        for turn in turns:
            if (turn.trace_id, turn.span_id) not in past:
                trace = self._trace(turn.trace_id)
                trace.stored[turn.span_id] = _Stored(turn, frozenset(trace.parts))

    def add(self, spans: Sequence[SpanRow], now_ns: int) -> None:
        """Add spans that arrived at `now_ns` of the wall clock, which never goes back here."""
        for span in spans:
            role = span_role(span.scope_name, span.name)
            if role is None:
                continue  # counted where it was decoded
            if role.framework is not None or WHOLE_TURN_ATTRIBUTES.isdisjoint(span.attributes):
                self._add(Part(span, role), now_ns)

    def changes(self, now_ns: int, *, is_last: bool = False) -> list[TurnChange]:
        """Return the changes to store, ordered by the start of the turns; call `stored` once they are stored. If
        `is_last`, no more spans will arrive, so all turns whose own span has arrived are complete."""
        while self._due and (self._due[0][0] <= now_ns or is_last):
            _, trace_id = heapq.heappop(self._due)
            if trace_id in self._traces:
                self._touched[trace_id] = None
        changes: list[TurnChange] = []
        for trace_id in self._touched:
            trace = self._traces[trace_id]
            self._make(trace_id, trace, now_ns, is_last=is_last)
            changes += _changes_of(trace)
        return sorted(changes, key=_beginning)

    def stored(self, now_ns: int) -> None:
        """Record that the last changes were stored."""
        for trace_id in self._touched:
            trace = self._traces[trace_id]
            for span_id, wanted in trace.wanted.items():
                if (before := _before(trace, span_id, wanted)) is not None and is_complete(before.turn):
                    self.late += len(wanted.span_ids - before.span_ids)
            trace.stored = trace.wanted.copy()
            self._shorten(trace)
        self._touched = {}
        while self._traces:
            trace_id, oldest = next(iter(self._traces.items()))
            if self._spans <= self._spans_max and now_ns - oldest.last_ns <= REMEMBERED_NS:
                return
            del self._traces[trace_id]
            self._spans -= len(oldest.parts)
            self.left_over += oldest.lost_spans
            self._forgotten[trace_id] = None

    def _add(self, part: Part, now_ns: int) -> None:
        span = part.span
        trace = self._trace(span.trace_id)
        if span.span_id in trace.parts or span.span_id in trace.past:
            return
        if span.parent_span_id in trace.past:
            trace.past.add(span.span_id)
            self.late += 1
            return
        trace.parts[span.span_id] = part
        trace.came_ns[span.span_id] = trace.last_ns = now_ns
        self._traces.move_to_end(span.trace_id)
        self._touched[span.trace_id] = None
        self._spans += 1
        self._remember_latency(part)

    def _trace(self, trace_id: str) -> _OpenTrace:
        return self._traces.get(trace_id) or self._traces.setdefault(trace_id, _OpenTrace())

    def _make(self, trace_id: str, trace: _OpenTrace, now_ns: int, *, is_last: bool) -> None:
        """Make the turns of a trace from all its spans; a turn with unchanged inputs is reused."""
        made: dict[str, _Made] = {}
        wanted: dict[str, _Stored] = {}
        waiting: list[int] = []
        index, unfinished = trace.past_turns, set(trace.parts)
        for spans in turns_of_trace(trace.parts.values()):
            span_ids = frozenset(part.span.span_id for part in spans.spans())
            key = spans.first.span.span_id
            last = trace.made.get(key)
            if last is not None and last.of.span_ids == span_ids and last.of.calls == len(spans.calls):
                number, call_id = last.number, last.call_id
            else:
                number, call_id = values.count(spans.value("turn_number")), spans.call_id
            place = number - 1 if number else index
            before_ns, _ = self._latency_of_turn.get((spans.first.span.service, call_id, place - 1), (None, ""))
            due_ns = None if is_last else _due_ns(trace, spans, span_ids)
            was_over = any(is_complete(trace.stored[span_id].turn) for span_id in span_ids if span_id in trace.stored)
            is_over = was_over or due_ns is None or due_ns <= now_ns
            of = _TurnDetails(span_ids, len(spans.calls), spans.has_later_turn, place, before_ns, is_over)
            is_same = last is not None and last.of == of
            turn = last.turn if last is not None and is_same else self._turn(spans, of, now_ns)
            made[key] = _Made(of, number, call_id, turn)
            if turn is None:
                continue
            index = place + 1
            if is_complete(turn):
                unfinished -= span_ids
            elif due_ns is not None and not is_over:
                waiting.append(due_ns)
            wanted[key] = _Stored(turn, span_ids)
        trace.made, trace.wanted = made, wanted
        trace.wanted = {key: _with_late(stored, _before(trace, key, stored)) for key, stored in wanted.items()}
        trace.open_spans = len(unfinished)
        trace.lost_spans = sum(trace.parts[span_id].role.role not in _ROLES_WITHOUT_TURN for span_id in unfinished)
        due_ns = min(waiting, default=None)
        if due_ns is not None and due_ns != trace.due_ns:
            heapq.heappush(self._due, (due_ns, trace_id))
        trace.due_ns = due_ns

    def _turn(self, spans: SpansOfTurn, of: _TurnDetails, now_ns: int) -> Turn | None:
        """Make a turn at its position in the call; None if nothing was spoken."""
        placed = spans.placed(of.turn_index, of.latency_before_ns)
        if spans.is_expected and placed.end_unix_ns < now_ns - UPDATED_WITHIN_NS:
            return None  # its own span may have arrived so long ago that the trace was dropped
        try:
            turn = own_turn(placed) if placed.framework is None else framework_turn(placed, placed.framework)
        except Exception as error:  # noqa: BLE001 - what one turn holds keeps no other from being made
            _log.exception("the spans of the turn %s could not be read", placed.first.span.span_id)
            self.faults.append(f"{type(error).__name__}: {error}")
            return None
        if turn is not None and not fits(turn):
            self.unstorable += 1
            return None
        if turn is None or (not spans.is_expected and (of.is_over or _is_answered(turn, spans))):
            return turn
        return msgspec.structs.replace(
            turn, outcome=PENDING, outcome_reason=None, failure_kind=None, failure_code=None, late_spans=None
        )

    def _shorten(self, trace: _OpenTrace) -> None:
        """Drop the oldest turns of a trace that has too many spans, and then its oldest spans."""
        if len(trace.parts) <= self._trace_spans_max:
            return
        most = self._trace_spans_max // 2
        gone: set[str] = set()
        for key, wanted in list(trace.wanted.items()):
            if len(trace.parts) - len(gone) <= most:
                break
            gone |= wanted.span_ids | {key}
            trace.past_turns = wanted.turn.turn_index + 1
            del trace.wanted[key], trace.stored[key], trace.made[key]
        others = [span_id for span_id in trace.parts if span_id not in gone]
        given_up = others[: max(0, len(others) - self._trace_spans_max)]
        self.given_up += len(given_up)
        for span_id in (*gone, *given_up):
            if trace.parts.pop(span_id, None) is not None:
                del trace.came_ns[span_id]
                self._spans -= 1
        trace.past |= gone

    def _remember_latency(self, part: Part) -> None:
        """Remember the latency of a turn for frameworks that repeat it in the next one."""
        if part.role.framework is None or not part.role.framework.repeats_latency or part.role.role != "turn":
            return
        parts = SpansOfTurn(own=(part,))
        number = values.count(parts.value("turn_number"))
        for _, _, ns in parts.latencies("voice_to_voice")[:1]:
            if number and ns is not None:
                self._latency_of_turn[part.span.service, parts.call_id, number - 1] = ns, part.span.trace_id
                _, following = self._latency_of_turn.get((part.span.service, parts.call_id, number), (0, ""))
                if following in self._traces:
                    self._touched[following] = None


def is_complete(turn: Turn | None) -> bool:
    """Return whether there is a turn, and every span that determines its outcome has arrived."""
    return turn is not None and turn.outcome != PENDING


def _due_ns(trace: _OpenTrace, spans: SpansOfTurn, span_ids: Collection[str]) -> int | None:
    """Return when a turn without an answer becomes complete unless more spans arrive; None while its own span is
    missing."""
    if spans.is_expected:
        return None
    came_ns = max(trace.came_ns[span_id] for span_id in span_ids)
    calls_ns = [trace.came_ns[part.span.span_id] for part in spans.calls]
    if spans.first.role.layout == "nested":
        return came_ns + COMPLETE_AFTER_NS
    over_ns = [max(came_ns, call_ns) + COMPLETE_AFTER_NS for call_ns in calls_ns]
    return min([came_ns + ANSWER_WITHIN_NS, *over_ns])


def _is_answered(turn: Turn, spans: SpansOfTurn) -> bool:
    """Return whether a turn was answered and the answer has arrived completely: a request to a model may be inside an
    agent span that has not arrived."""
    is_whole = spans.first.role.layout != "outermost" or spans.first.span.parent_span_id is None
    return turn.outcome == "ok" and is_whole


def _before(trace: _OpenTrace, key: str, wanted: _Stored) -> _Stored | None:
    """Return the stored version of a turn: under its own id, or under that of another of its spans that is no longer a
    turn."""
    if key in trace.stored:
        return trace.stored[key]
    ids = sorted(span_id for span_id in wanted.span_ids if span_id in trace.stored and span_id not in trace.wanted)
    return trace.stored[ids[0]] if ids else None


def _with_late(made: _Stored, before: _Stored | None) -> _Stored:
    """A turn with the number of its spans that arrived after it was complete."""
    if before is None or not is_complete(before.turn) or not is_complete(made.turn):
        return made
    late = (before.turn.late_spans or 0) + len(made.span_ids - before.span_ids)
    return _Stored(msgspec.structs.replace(made.turn, late_spans=late or None), made.span_ids)


def _changes_of(trace: _OpenTrace) -> Iterator[TurnChange]:
    left = dict(trace.stored)
    for key, wanted in trace.wanted.items():
        before = _before(trace, key, wanted)
        stored = left.pop(before.turn.span_id, None) if before is not None else None
        if stored is None or stored.turn != wanted.turn:
            yield TurnChange(None if stored is None else stored.turn, wanted.turn)
    yield from (TurnChange(stored.turn, None) for stored in left.values())


def _beginning(change: TurnChange) -> tuple[int, str]:
    turn = change.turn or change.stored
    return (0, "") if turn is None else (turn.started_unix_ns, turn.span_id)
