"""The open spans of one trace, and which of them are a turn: as the frameworks lay them out.

Pure: which turns are ready is decided by the time at which spans came, never by when they say that they ended.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from telemetry.model.contradictions import TOLERANCE_NS
from telemetry.model.semconv import GEN_AI_CONVERSATION_ID
from telemetry.model.spans import SpanRow
from telemetry.sidecar.adapters import attribute_values as values
from telemetry.sidecar.adapters.spans_of_turn import Part

# Spans of these are what a turn begins with.
TURNS: Final = frozenset({"turn", "user_turn"})
_STAGES: Final = frozenset({"asr", "llm", "tts"})
_CALLS: Final = frozenset({"call", "call_end"})


@dataclass(slots=True)
class OpenSpan:
    """A span that waits for its turn; `came_ns` is when it arrived, on the receiver's clock."""

    part: Part
    came_ns: int

    @property
    def span(self) -> SpanRow:
        """The span itself."""
        return self.part.span


@dataclass(slots=True)
class WaitTimes:
    """How long spans are waited for, in ns after another has come.

    `grace` is for what is late; `successor` for what a reply may still consist of: the next step after a tool call, the
    answer to a caller's turn, the span around a request to a model.
    """

    grace_ns: int
    successor_ns: int


@dataclass(slots=True)
class ReadyTurn:
    """The spans of a turn whose time has come; `beside` are stages that hang under its call."""

    own: list[Part]
    below: list[Part] = field(default_factory=list[Part])
    beside: list[Part] = field(default_factory=list[Part])
    user: Part | None = None
    has_later_turn: bool = False

    def outer(self) -> list[Part]:
        """The spans of the turn itself."""
        return [*self.own, *([] if self.user is None else [self.user])]

    def everything(self) -> list[Part]:
        """All of its spans."""
        return [*self.outer(), *self.below, *self.beside]


@dataclass(frozen=True, slots=True)
class ClosedTop:
    """The first span of a turn that was given, as far as stages under its call may still belong to it."""

    part: Part
    is_answered: bool


@dataclass(slots=True)
class OpenTrace:
    """The spans of a trace that belong to no stored turn, by their id.

    `apart` are the ids of spans that are known to be turns of their own, whatever lies around them.
    """

    spans: dict[str, OpenSpan] = field(default_factory=dict[str, OpenSpan])
    apart: Container[str] = ()
    # Services whose frameworks know speech are in it, so that a request to a model is no turn.
    _speaking: set[str] = field(default_factory=set[str])
    # When this trace is to be looked at; None where nothing of it can become ready.
    planned_ns: int | None = None
    _children: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _tops: dict[str, OpenSpan] = field(default_factory=dict[str, OpenSpan])  # what a turn begins with
    _calls: dict[str, OpenSpan] = field(default_factory=dict[str, OpenSpan])

    def add(self, part: Part, now_ns: int) -> bool:
        """Take a span, unless it is here already."""
        span, role, framework = part.span, part.role.role, part.role.framework
        if span.span_id in self.spans:
            return False
        self.spans[span.span_id] = found = OpenSpan(part, now_ns)
        outermost = framework is not None and framework.turns == "outermost"
        if not outermost:
            self._speaking.add(span.service)
        if role in _CALLS:
            self._calls[span.span_id] = found
        elif span.parent_span_id is not None:
            self._children.setdefault(span.parent_span_id, []).append(span.span_id)
        if role in TURNS or (outermost and role == "llm"):
            self._tops[span.span_id] = found
        return True

    def remove(self, span_id: str) -> OpenSpan | None:
        """Take a span out; None where it is not here."""
        found = self.spans.pop(span_id, None)
        if found is not None:
            self._tops.pop(span_id, None)
            self._calls.pop(span_id, None)
            siblings = self._children.get(found.span.parent_span_id or "")
            if siblings is not None and span_id in siblings:
                siblings.remove(span_id)
                if not siblings:
                    del self._children[found.span.parent_span_id or ""]
        return found

    def beyond(self, open_turns_max: int) -> str | None:
        """The id of the span of the oldest open turn where there are more than so many; else None."""
        return next(iter(self._tops)) if len(self._tops) > open_turns_max else None

    def first_due_ns(self, span_id: str, waits: WaitTimes, closed: Sequence[ClosedTop] = ()) -> int | None:
        """When the trace is to be looked at because of a span that came; None where it changes nothing."""
        found = self._tops.get(span_id) or self._calls.get(span_id)
        if found is None and any(self._is_beside(self.spans[span_id].part, top.part) for top in closed):
            found = self.spans[span_id]
        return None if found is None else found.came_ns + waits.grace_ns

    def ready(self, now_ns: int | None, waits: WaitTimes, closed: Sequence[ClosedTop] = ()) -> list[ReadyTurn]:
        """The turns whose time has come, by their beginning; all of them where the time is None. Their spans are taken
        out, those of the call stay. `planned_ns` says when to look again; `closed` are turns that were given."""
        candidates = [*self._nested(), *self._paired(), *self._outermost()]
        candidates.sort(key=lambda each: _beginning(each.outer()))
        ready: list[ReadyTurn] = []
        later_ns: list[int] = []
        for each in candidates:
            due_ns = self._came_ns(each) + waits.grace_ns
            if now_ns is None or now_ns >= due_ns:
                each.below = self.below(each.outer())
                each.beside = self._beside(each, [*candidates, *closed])
                due_ns = self._due_ns(each, waits)
            if now_ns is None or now_ns >= due_ns:
                each.has_later_turn = each is not candidates[-1]
                ready.append(each)
            else:
                later_ns.append(due_ns)
        for each in ready:
            for part in each.everything():
                self.remove(part.span.span_id)
        self.planned_ns = min(later_ns, default=None)
        return ready

    def late(self, now_ns: int | None, waits: WaitTimes, closed: Sequence[ClosedTop]) -> list[tuple[str, list[Part]]]:
        """The stages under the call that belong to turns that were given, with the ids of those; they are taken out."""
        found: list[tuple[str, list[Part]]] = []
        open_tops = [ReadyTurn([each.part]) for each in self._tops.values()]
        for top in closed if self.spans else ():
            if top.is_answered:
                continue
            parts = self._beside(ReadyTurn([top.part]), [*open_tops, *closed])
            waiting = [part for part in parts if part.span.parent_span_id not in {each.span.span_id for each in parts}]
            due_ns = [self.spans[part.span.span_id].came_ns + waits.grace_ns for part in waiting]
            if parts and (now_ns is None or now_ns >= max(due_ns)):
                found.append((top.part.span.span_id, parts))
                for part in parts:
                    self.remove(part.span.span_id)
            elif parts:
                self.planned_ns = min(filter(None, (self.planned_ns, max(due_ns))))
        return found

    def calls(self) -> tuple[Part, ...]:
        """The spans of the call that have come."""
        return tuple(sorted((each.part for each in self._calls.values()), key=_start))

    def _came_ns(self, ready: ReadyTurn) -> int:
        return max(self.spans[part.span.span_id].came_ns for part in ready.outer())

    def _due_ns(self, ready: ReadyTurn, waits: WaitTimes) -> int:
        came_ns = self._came_ns(ready)
        if not self._waits_for_more(ready):
            return came_ns + waits.grace_ns
        closed = [max(each.came_ns, came_ns) + waits.grace_ns for each in self._calls.values()]
        return min([came_ns + waits.successor_ns, *closed])

    def _waits_for_more(self, ready: ReadyTurn) -> bool:
        """Whether more may come of a turn than what is late."""
        framework = ready.outer()[0].role.framework
        if framework is None or framework.turns == "nested":
            return False
        if framework.turns == "paired":
            return not _is_heard(ready.own) and all(part.role.role != "speaking" for part in ready.below)
        return ready.own[0].span.parent_span_id is not None

    def _nested(self) -> Iterator[ReadyTurn]:
        for part in self._outer("nested"):
            if part.role.role == "turn" and not self._is_part(part):
                yield ReadyTurn([part])

    def _paired(self) -> Iterator[ReadyTurn]:
        """Each agent's turn with the caller's turn that it answers, and each caller's turn that nobody answers."""
        groups: dict[tuple[str | None, object], list[Part]] = {}
        users: list[Part] = []
        for part in self._outer("paired"):
            framework, span = part.role.framework, part.span
            if framework is None or self._is_part(part):
                continue
            if part.role.role == "turn":
                same = span.attributes.get(framework.same_turn) if framework.same_turn is not None else None
                key = (span.parent_span_id, same if isinstance(same, str) else span.span_id)
                groups.setdefault(key, []).append(part)
            elif framework.user_turn_needs is None or framework.user_turn_needs in span.attributes:
                users.append(part)
        for own, user in _pairs(list(groups.values()), users):
            yield ReadyTurn(own, user=user)

    def _outermost(self) -> Iterator[ReadyTurn]:
        """Requests of a service to a model, and what is around them. What another service does about such a request is
        a turn of its own only where it says so: it invokes an agent."""
        for part in self._outer("outermost"):
            around = [above for above in self._above(part) if above.role.role in ("turn", "llm")]
            if part.role.role == "turn":
                is_own = part.span.service not in self._speaking
                around = [above for above in around if is_same_conversation(above, part)]
            else:
                is_own = not self._speaking
            if is_own and not around:
                yield ReadyTurn([part])

    def _is_part(self, part: Part) -> bool:
        """Whether a turn is a part of another: of one around it, of the same service and conversation."""
        if part.span.span_id in self.apart:
            return False
        return any(above.role.role in TURNS and is_same_conversation(above, part) for above in self._above(part))

    def _outer(self, turns: str) -> list[Part]:
        """What turns begin with, of frameworks that lay them out so, in the order of their beginning."""
        found = [
            each.part
            for each in self._tops.values()
            if (each.part.role.framework.turns if each.part.role.framework is not None else "nested") == turns
        ]
        return sorted(found, key=_start)

    def _above(self, part: Part) -> Iterator[Part]:
        seen = {part.span.span_id}
        while (above := self.spans.get(part.span.parent_span_id or "")) is not None and above.span.span_id not in seen:
            part = above.part
            seen.add(part.span.span_id)
            yield part

    def below(self, tops: list[Part]) -> list[Part]:
        """Everything under the spans, in the order of its beginning, without turns that are no part of theirs and what
        is under those."""
        taken = {part.span.span_id for part in tops}
        found: list[Part] = []
        waiting = [*taken]
        while waiting:
            for span_id in self._children.get(waiting.pop(), ()):
                if span_id not in taken and not self._is_another_turn(self.spans[span_id].part, tops[0]):
                    taken.add(span_id)
                    found.append(self.spans[span_id].part)
                    waiting.append(span_id)
        return sorted(found, key=_start)

    def _is_another_turn(self, part: Part, top: Part) -> bool:
        if part.role.role not in TURNS:
            return False
        return part.span.span_id in self.apart or not is_same_conversation(top, part)

    def _is_beside(self, part: Part, top: Part) -> bool:
        """Whether a span is a stage that hangs where a turn hangs, or under its call, and began when that had begun."""
        span, turn = part.span, top.span
        if part.role.role not in _STAGES or part.role.family != top.role.family or span.service != turn.service:
            return False
        parent = span.parent_span_id
        if parent is None or (parent != turn.parent_span_id and (turn.parent_span_id or parent not in self._calls)):
            return False
        return span.start_unix_ns >= turn.start_unix_ns - TOLERANCE_NS

    def _beside(self, ready: ReadyTurn, tops: Sequence[ReadyTurn | ClosedTop]) -> list[Part]:
        """The stages that hang under the call of a turn without an answer, and began in it: a framework that takes the
        turn for over does not put what follows below it."""
        top = ready.outer()[0]
        framework = top.role.framework
        if (framework is not None and framework.turns != "nested") or _is_heard(ready.own):
            return []
        if any(part.role.role == "tts" for part in ready.below):
            return []
        firsts = [each.part if isinstance(each, ClosedTop) else each.outer()[0] for each in tops]
        found: list[Part] = []
        for each in self.spans.values():
            if not self._is_beside(each.part, top):
                continue
            before = [other for other in firsts if self._is_beside(each.part, other)]
            if max(before, key=_start, default=top).span.span_id == top.span.span_id:
                found.append(each.part)
        return sorted([*found, *self.below(found)], key=_start) if found else []


def _pairs(groups: list[list[Part]], users: list[Part]) -> list[tuple[list[Part], Part | None]]:
    """Who answers whom: a reply answers the last of the caller's turns that began before it and that no earlier reply
    has answered. One that was never heard leaves the caller's turn to one that was."""
    left = list(users)
    answers: dict[int, Part] = {}
    order = sorted(range(len(groups)), key=lambda at: (not _is_heard(groups[at]), _beginning(groups[at])))
    for at in order:
        before = [
            user
            for user in left
            if user.span.start_unix_ns <= _beginning(groups[at])[0]
            and user.span.parent_span_id == groups[at][0].span.parent_span_id
        ]
        if before:
            answers[at] = before[-1]
            left.remove(before[-1])
    paired: list[tuple[list[Part], Part | None]] = [(group, answers.get(at)) for at, group in enumerate(groups)]
    return [*paired, *(([], user) for user in left)]


def _is_heard(group: list[Part]) -> bool:
    """Whether the framework states a latency of the reply: then it was heard."""
    for part in group:
        for read in part.role.framework.reads if part.role.framework is not None else ():
            if read.column == "voice_to_voice" and any(name in part.span.attributes for name in read.attributes):
                return True
    return False


def is_heard(ready: ReadyTurn) -> bool:
    """Whether the reply was heard, as far as its spans say so."""
    return _is_heard(ready.own) or any(part.role.role == "speaking" for part in ready.below)


def is_same_conversation(one: Part, other: Part) -> bool:
    """Whether two turns are of one service and one conversation, as far as they name it."""
    calls = (_conversation(one), _conversation(other))
    return one.span.service == other.span.service and (None in calls or calls[0] == calls[1])


def _conversation(part: Part) -> object:
    framework = part.role.framework
    if framework is None:
        return part.span.attributes.get(GEN_AI_CONVERSATION_ID)
    reads = [read for read in framework.reads if read.column == "call_id" and read.span == part.role.role]
    return next((value for read in reads if (value := values.stated(read, part.span)) is not None), None)


def _start(part: Part) -> tuple[int, str]:
    return part.span.start_unix_ns, part.span.span_id


def _beginning(parts: list[Part]) -> tuple[int, str]:
    return min(map(_start, parts))
