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
    below: list[Part]
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

    def add(self, part: Part, now_ns: int) -> bool:
        """Take a span, unless it is here already."""
        if part.span.span_id in self.spans:
            return False
        self.spans[part.span.span_id] = OpenSpan(part, now_ns)
        self.knows_speech |= part.role.framework is None or part.role.framework.turns != "outermost"
        return True

    def ready(self, now_ns: int | None, waits: WaitTimes) -> list[ReadyTurn]:
        """The turns whose time has come, by their beginning; all of them where the time is None. Their spans are taken
        out, those of the call stay."""
        found = [*self._nested(), *self._paired(), *self._outermost()]
        found.sort(key=lambda each: _beginning(each.outer()))
        ready: list[ReadyTurn] = []
        for each in found:
            if now_ns is None or now_ns >= self._due_ns(each, waits):
                each.has_later_turn = each is not found[-1]
                ready.append(each)
        for each in ready:
            for part in (*each.outer(), *each.below):
                self.spans.pop(part.span.span_id, None)
        return ready

    def next_due_ns(self, waits: WaitTimes) -> int | None:
        """When the next turn is ready if nothing more comes; None where no turn is open."""
        found = [*self._nested(), *self._paired(), *self._outermost()]
        return min((self._due_ns(each, waits) for each in found), default=None)

    def calls(self) -> tuple[Part, ...]:
        """The spans of the call that have come."""
        return tuple(
            sorted(
                (each.part for each in self.spans.values() if each.part.role.role in ("call", "call_end")), key=_start
            )
        )

    def _due_ns(self, ready: ReadyTurn, waits: WaitTimes) -> int:
        came_ns = max(self.spans[part.span.span_id].came_ns for part in ready.outer())
        if not self._waits_for_more(ready):
            return came_ns + waits.grace_ns
        closed = [each.came_ns for each in self.spans.values() if each.part.role.role in ("call", "call_end")]
        return min([came_ns + waits.successor_ns, *(max(at, came_ns) + waits.grace_ns for at in closed)])

    def _waits_for_more(self, ready: ReadyTurn) -> bool:
        """Whether more may come of a turn than what is late."""
        role = ready.outer()[0].role
        if role.framework is None:
            return False
        match role.framework.turns:
            case "nested":
                return False
            case "paired":
                return not _is_heard(ready.own) and all(part.role.role != "speaking" for part in ready.below)
            case "outermost":
                return ready.own[0].span.parent_span_id is not None

    def _nested(self) -> Iterator[ReadyTurn]:
        for part in self._outer("nested"):
            if part.role.role == "turn":
                yield ReadyTurn([part], self._below([part]))

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
                groups.setdefault((span.parent_span_id, same if isinstance(same, str) else span.span_id), []).append(
                    part
                )
            elif framework.user_turn_needs is None or framework.user_turn_needs in span.attributes:
                users.append(part)
        for own, user in _pairs(list(groups.values()), users):
            yield ReadyTurn(own, self._below([*own, *([] if user is None else [user])]), user)

    def _outermost(self) -> Iterator[ReadyTurn]:
        if self.knows_speech:
            return
        for each in self.spans.values():
            framework, role = each.part.role.framework, each.part.role.role
            is_one = framework is not None and framework.turns == "outermost" and role in ("turn", "llm")
            if is_one and not any(above.role.role in ("turn", "llm") for above in self._above(each.part)):
                yield ReadyTurn([each.part], self._below([each.part]))

    def _outer(self, turns: str) -> list[Part]:
        """The turns of frameworks that lay them out so, in the order of their beginning."""
        found = [
            each.part
            for each in self.spans.values()
            if each.part.role.role in _TURNS
            and (each.part.role.framework.turns if each.part.role.framework is not None else "nested") == turns
        ]
        return sorted(found, key=_start)

    def _above(self, part: Part) -> Iterator[Part]:
        seen = {part.span.span_id}
        while (above := self.spans.get(part.span.parent_span_id or "")) is not None and above.span.span_id not in seen:
            part = above.part
            seen.add(part.span.span_id)
            yield part

    def _below(self, tops: list[Part]) -> list[Part]:
        """Everything under the spans, but what is a turn or a call itself, in the order of their beginning."""
        children: dict[str, list[Part]] = {}
        for each in self.spans.values():
            if each.span.parent_span_id is not None and each.part.role.role not in ("call", "call_end"):
                children.setdefault(each.span.parent_span_id, []).append(each.part)
        taken = {part.span.span_id for part in tops}
        found: list[Part] = []
        waiting = list(tops)
        while waiting:
            for part in children.get(waiting.pop().span.span_id, ()):
                if part.span.span_id not in taken:
                    taken.add(part.span.span_id)
                    found.append(part)
                    waiting.append(part)
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
