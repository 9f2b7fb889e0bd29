"""The turns of a trace: which of its spans belong to which turn, by the layouts of the frameworks.

Pure, and a function of the set of spans: their order of arrival and repetitions change nothing.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator
from typing import Final

from telemetry.model.contradictions import TOLERANCE_NS
from telemetry.model.semconv import GEN_AI_CONVERSATION_ID
from telemetry.model.turn_spans import SpanRow
from telemetry.sidecar.adapters import attribute_values as values
from telemetry.sidecar.adapters.frameworks import SpanRole
from telemetry.sidecar.adapters.spans_of_turn import Part, SpansOfTurn

CALLS: Final = frozenset({"call", "call_end"})
# A turn begins with a span of one of these roles.
_TURNS: Final = frozenset({"turn", "user_turn"})
_STAGES: Final = frozenset({"asr", "llm", "tts"})
# A span of one of these roles implies a turn, whether the turn's own span has arrived or not.
_ROLES_IN_TURNS: Final = frozenset({*_STAGES, "speaking"})
# Spans are nested a few levels deep; deeper nesting, or repeated ids, is not followed further.
_LEVELS_MAX: Final = 100


def turns_of_trace(parts: Collection[Part]) -> list[SpansOfTurn]:
    """The turns ordered by start, including those with spans of stages and no span of their own."""
    return _Trace(parts).turns()


class _Trace:
    def __init__(self, parts: Collection[Part]) -> None:
        self._parts = sorted(parts, key=_start)
        self._by_id = {part.span.span_id: part for part in self._parts}
        self._calls = tuple(part for part in self._parts if part.role.role in CALLS)
        self._children: dict[str, list[Part]] = {}
        # Frameworks that report speech are in the trace, so that a request to a model is not a turn by itself.
        self._speaking: set[str] = set()
        for part in self._parts:
            if part.role.layout != "outermost":
                self._speaking.add(part.span.service)
            if part.role.role not in CALLS and part.span.parent_span_id is not None:
                self._children.setdefault(part.span.parent_span_id, []).append(part)

    def turns(self) -> list[SpansOfTurn]:
        turns = [*self._nested(), *self._paired(), *self._outermost()]
        turns.sort(key=lambda turn: _beginning(turn.outer()))
        for turn in turns:
            turn.below = self._below(turn.outer())
        self._take_stages_of_calls(turns)
        turns += self._expected(turns)
        turns.sort(key=lambda turn: _beginning(turn.outer()))
        for turn in turns:
            turn.calls, turn.has_later_turn = self._calls, turn is not turns[-1]
        return turns

    def _nested(self) -> Iterator[SpansOfTurn]:
        for part in self._parts:
            if part.role.layout == "nested" and part.role.role == "turn" and not self._is_part(part):
                yield SpansOfTurn(own=(part,))

    def _paired(self) -> Iterator[SpansOfTurn]:
        """Yield each agent turn with the caller turn that it answers, and each caller turn without an answer."""
        groups: dict[tuple[str | None, object], list[Part]] = {}
        users: list[Part] = []
        for part in self._parts:
            framework, span = part.role.framework, part.span
            if part.role.layout != "paired" or framework is None or part.role.role not in _TURNS or self._is_part(part):
                continue
            if part.role.role == "turn":
                same = span.attributes.get(framework.same_turn) if framework.same_turn is not None else None
                key = (span.parent_span_id, same if isinstance(same, str) else span.span_id)
                groups.setdefault(key, []).append(part)
            elif framework.user_turn_needs is None or framework.user_turn_needs in span.attributes:
                users.append(part)
        for own, user in _pairs(list(groups.values()), users):
            yield SpansOfTurn(own=tuple(own), user=user)

    def _outermost(self) -> Iterator[SpansOfTurn]:
        """Yield the requests of a service to a model with the spans around them. The work of another service on such a
        request is a separate turn only if that service says that it invokes an agent."""
        for part in self._parts:
            if part.role.layout != "outermost" or part.role.role not in ("turn", "llm"):
                continue
            around = [above for above in self._above(part) if above.role.role in ("turn", "llm")]
            if part.role.role == "turn":
                is_own = part.span.service not in self._speaking
                around = [above for above in around if _is_same_conversation(above, part)]
            else:
                is_own = not self._speaking
            if is_own and not around:
                yield SpansOfTurn(own=(part,))

    def _expected(self, turns: Collection[SpansOfTurn]) -> Iterator[SpansOfTurn]:
        """Yield the turns whose stages arrived before their own span, with an empty placeholder for it: an exporter
        sends a span when it has ended, and a turn's own span ends last."""
        taken = {part.span.span_id for turn in turns for part in turn.spans()}
        parents = {part.span.parent_span_id for turn in turns for part in turn.outer()}
        stages: dict[str, list[Part]] = {}
        for part in self._parts:
            if part.role.role not in _ROLES_IN_TURNS or part.role.layout == "outermost" or part.span.span_id in taken:
                continue
            around = [part, *self._above(part)]
            missing = around[-1].span.parent_span_id
            if missing is None or missing in self._by_id or missing in parents:
                continue
            if not any(outer.role.role in {*_TURNS, *CALLS} for outer in around):
                stages.setdefault(missing, []).append(around[-1])
        for span_id, tops in stages.items():
            own = Part(_placeholder(span_id, tops), SpanRole("turn", tops[0].role.framework))
            yield SpansOfTurn(own=(own,), below=self._below((own,)), is_expected=True)

    def _is_part(self, part: Part) -> bool:
        """Return whether a turn is part of an enclosing turn of the same service and conversation."""
        return any(above.role.role in _TURNS and _is_same_conversation(above, part) for above in self._above(part))

    def _above(self, part: Part) -> Iterator[Part]:
        seen = {part.span.span_id}
        while (above := self._by_id.get(part.span.parent_span_id or "")) is not None and above.span.span_id not in seen:
            part = above
            seen.add(part.span.span_id)
            if len(seen) > _LEVELS_MAX:
                return
            yield part

    def _below(self, tops: Collection[Part]) -> tuple[Part, ...]:
        """All descendants of the spans, ordered by start, without other turns and their descendants."""
        taken = {part.span.span_id for part in tops}
        first = next(iter(tops))
        below: list[Part] = []
        waiting = [*taken]
        while waiting:
            for part in self._children.get(waiting.pop(), ()):
                is_another_turn = part.role.role in _TURNS and not _is_same_conversation(first, part)
                if part.span.span_id not in taken and not is_another_turn:
                    taken.add(part.span.span_id)
                    below.append(part)
                    waiting.append(part.span.span_id)
        return tuple(sorted(below, key=_start))

    def _take_stages_of_calls(self, turns: Collection[SpansOfTurn]) -> None:
        """Assign the stages that are siblings of a turn, or below its call, to the last turn that had begun, if that
        has no answer: a framework that considers the turn over does not put later spans below it."""
        hanging: dict[tuple[str, str, str | None], list[SpansOfTurn]] = {}
        for turn in turns:
            span = turn.first.span
            hanging.setdefault((turn.first.role.family, span.service, span.parent_span_id), []).append(turn)
        for same in hanging.values():
            same.sort(key=lambda turn: _start(turn.first))
        calls = {part.span.span_id for part in self._calls}
        siblings: dict[str, list[Part]] = {}
        for part in self._parts:
            span = part.span
            if part.role.role not in _STAGES or span.parent_span_id is None:
                continue
            places = [span.parent_span_id, *([None] if span.parent_span_id in calls else [])]
            begun = [
                turn
                for place in places
                if (turn := _last_begun(hanging.get((part.role.family, span.service, place), []), span.start_unix_ns))
            ]
            last = max(begun, key=lambda turn: _start(turn.first), default=None)
            if last is not None and _lacks_answer(last):
                siblings.setdefault(last.first.span.span_id, []).append(part)
        for turn in turns:
            if (stages := siblings.get(turn.first.span.span_id)) is not None:
                turn.siblings = tuple(sorted([*stages, *self._below(stages)], key=_start))


def _last_begun(turns: list[SpansOfTurn], unix_ns: int) -> SpansOfTurn | None:
    """The last of the ordered turns that had begun at a given time."""
    place = bisect_right(turns, unix_ns + TOLERANCE_NS, key=lambda turn: turn.first.span.start_unix_ns)
    return turns[place - 1] if place else None


def _lacks_answer(turn: SpansOfTurn) -> bool:
    is_nested = turn.first.role.layout == "nested"
    return is_nested and not _states_latency(turn.own) and all(part.role.role != "tts" for part in turn.below)


def _placeholder(span_id: str, stages: list[Part]) -> SpanRow:
    """A placeholder for a turn's own span that has not arrived."""
    first = stages[0].span
    return SpanRow(
        trace_id=first.trace_id,
        span_id=span_id,
        parent_span_id=None,
        name="",
        service=first.service,
        start_unix_ns=min(stage.span.start_unix_ns for stage in stages),
        end_unix_ns=max(stage.span.end_unix_ns for stage in stages),
        attributes={},
        resource_attributes=first.resource_attributes,
    )


def _pairs(groups: list[list[Part]], users: list[Part]) -> list[tuple[list[Part], Part | None]]:
    """Pair replies with caller turns: a reply answers the last caller turn that began before it and was not answered by
    an earlier reply. A reply that was never heard leaves the caller turn to one that was."""
    left = list(users)
    answers: dict[int, Part] = {}
    order = sorted(range(len(groups)), key=lambda at: (not _states_latency(groups[at]), _beginning(groups[at])))
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


def _states_latency(own: Collection[Part]) -> bool:
    """Return whether the framework states a latency of the reply, which means that it was heard."""
    for part in own:
        for read in part.role.framework.reads if part.role.framework is not None else ():
            if read.column == "voice_to_voice" and any(name in part.span.attributes for name in read.attributes):
                return True
    return False


def _is_same_conversation(one: Part, other: Part) -> bool:
    """Return whether two turns belong to one service and one conversation, as far as they name them."""
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


def _beginning(parts: Collection[Part]) -> tuple[int, str]:
    return min(map(_start, parts))
