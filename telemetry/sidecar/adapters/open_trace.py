"""The open spans of one trace, and which of them are a turn: as the frameworks lay them out.

Pure: which turns are ready is decided by the time at which spans came, never by when they say that they ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from telemetry.model.spans import SpanRow
from telemetry.sidecar.adapters.spans_of_turn import Part

# Spans of these are what a turn begins with.
_TURNS: Final = frozenset({"turn", "user_turn"})
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
    """The spans of a turn whose time has come."""

    own: list[Part]
    below: list[Part] = field(default_factory=list[Part])
    user: Part | None = None
    has_later_turn: bool = False

    def outer(self) -> list[Part]:
        """The spans of the turn itself."""
        return [*self.own, *([] if self.user is None else [self.user])]


@dataclass(slots=True)
class OpenTrace:
    """The spans of a trace that belong to no stored turn, by their id."""

    spans: dict[str, OpenSpan] = field(default_factory=dict[str, OpenSpan])
    knows_speech: bool = False  # a framework of speech is in it, so that a request to a model is no turn
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
        self.knows_speech |= not outermost
        if role in _CALLS:
            self._calls[span.span_id] = found
        elif span.parent_span_id is not None:
            self._children.setdefault(span.parent_span_id, []).append(span.span_id)
        if role in _TURNS or (outermost and role == "llm"):
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

    def first_due_ns(self, span_id: str, waits: WaitTimes) -> int | None:
        """When the trace is to be looked at because of a span that came; None where it changes nothing."""
        found = self._tops.get(span_id) or self._calls.get(span_id)
        return None if found is None else found.came_ns + waits.grace_ns

    def ready(self, now_ns: int | None, waits: WaitTimes) -> list[ReadyTurn]:
        """The turns whose time has come, by their beginning; all of them where the time is None. Their spans are taken
        out, those of the call stay. `planned_ns` says when to look again."""
        candidates = [*self._nested(), *self._paired(), *self._outermost()]
        candidates.sort(key=lambda each: _beginning(each.outer()))
        ready: list[ReadyTurn] = []
        later_ns: list[int] = []
        for each in candidates:
            due_ns = self._came_ns(each) + waits.grace_ns
            if now_ns is None or now_ns >= due_ns:
                each.below = self._below(each.outer())
                due_ns = self._due_ns(each, waits)
            if now_ns is None or now_ns >= due_ns:
                each.has_later_turn = each is not candidates[-1]
                ready.append(each)
            else:
                later_ns.append(due_ns)
        for each in ready:
            for part in (*each.outer(), *each.below):
                self.remove(part.span.span_id)
        self.planned_ns = min(later_ns, default=None)
        return ready

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
            if part.role.role == "turn":
                yield ReadyTurn([part])

    def _paired(self) -> Iterator[ReadyTurn]:
        """Each agent's turn with the caller's turn that it answers, and each caller's turn that nobody answers."""
        groups: dict[tuple[str | None, object], list[Part]] = {}
        users: list[Part] = []
        for part in self._outer("paired"):
            framework, span = part.role.framework, part.span
            if framework is None:
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
        if self.knows_speech:
            return
        for part in self._outer("outermost"):
            if not any(above.role.role in ("turn", "llm") for above in self._above(part)):
                yield ReadyTurn([part])

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

    def _below(self, tops: list[Part]) -> list[Part]:
        """Everything under the spans, in the order of its beginning."""
        taken = {part.span.span_id for part in tops}
        found: list[Part] = []
        waiting = [*taken]
        while waiting:
            for span_id in self._children.get(waiting.pop(), ()):
                if span_id not in taken:
                    taken.add(span_id)
                    found.append(self.spans[span_id].part)
                    waiting.append(span_id)
        return sorted(found, key=_start)


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


def _start(part: Part) -> tuple[int, str]:
    return part.span.start_unix_ns, part.span.span_id


def _beginning(parts: list[Part]) -> tuple[int, str]:
    return min(map(_start, parts))
