"""The tables of states are whole, and every transition of theirs happens in a conversation driven by hand."""

import ast
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from loadtest.conversation import conversation
from loadtest.conversation import plan as plans
from loadtest.conversation.conversation import Conversation
from loadtest.conversation.plan import Backchannel, CallPlan, ReplyPoint
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.state import (
    PLAN_TRANSITIONS,
    TRANSITIONS,
    Input,
    InvalidTransitionError,
    PlanInput,
    PlanState,
    State,
    next_state,
)
from loadtest.errors import InstrumentError
from loadtest.protocols.base import EventKind
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_clip, make_plan, reply, silence, tone

Table = Mapping[Any, Mapping[Any, Any]]


def reached(table: Table, start: Hashable) -> set[Hashable]:
    """Every state that some inputs lead to."""
    states, open_ends = {start}, [start]
    while open_ends:
        for following in table[open_ends.pop()].values():
            if following not in states:
                states.add(following)
                open_ends.append(following)
    return states


def faults(table: Table, states: Iterable[Enum], inputs: Iterable[Enum], start: Enum, end: Enum) -> list[str]:
    """Return the faults of a table: states that are missing, not reached, or without a path to the end; unused
    inputs."""
    lines = [f"{state.name} has no row" for state in states if state not in table]
    if lines:
        return lines
    lines += [f"{state.name} is never reached" for state in states if state not in reached(table, start)]
    lines += [f"{state.name} has no way to {end.name}" for state in states if end not in reached(table, state)]
    used = {happened for row in table.values() for happened in row}
    return lines + [f"{happened.name} has no transition" for happened in inputs if happened not in used]


def test_every_caller_state_is_reachable_and_can_end() -> None:
    assert faults(TRANSITIONS, State, Input, State.CONNECTING, State.OVER) == []


def test_every_state_of_a_plan_is_reached_and_can_wind_down() -> None:
    assert faults(PLAN_TRANSITIONS, PlanState, PlanInput, PlanState.TURNS_LEFT, PlanState.WINDING_DOWN) == []


class Door(Enum):
    OPEN = 1
    SHUT = 2
    LOCKED = 3


class Hand(Enum):
    PUSH = 1
    TURN_KEY = 2


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({Door.OPEN: {Hand.PUSH: Door.SHUT}, Door.SHUT: {}}, "LOCKED has no row"),
        (
            {Door.OPEN: {Hand.PUSH: Door.SHUT}, Door.SHUT: {}, Door.LOCKED: {Hand.TURN_KEY: Door.SHUT}},
            "LOCKED is never reached",
        ),
        (
            {
                Door.OPEN: {Hand.PUSH: Door.SHUT, Hand.TURN_KEY: Door.LOCKED},
                Door.SHUT: {Hand.PUSH: Door.SHUT},
                Door.LOCKED: {},
            },
            "LOCKED has no way to SHUT",
        ),
        (
            {
                Door.OPEN: {Hand.PUSH: Door.LOCKED},
                Door.LOCKED: {Hand.PUSH: Door.SHUT},
                Door.SHUT: {},
            },
            "TURN_KEY has no transition",
        ),
    ],
)
def test_incomplete_transition_table_is_detected(table: Table, fault: str) -> None:
    assert faults(table, Door, Hand, Door.OPEN, Door.SHUT) == [fault]


def test_nothing_leaves_end_and_every_call_can_be_lost_or_cut() -> None:
    assert TRANSITIONS[State.OVER] == {}
    for state in set(State) - {State.OVER}:
        assert TRANSITIONS[state][Input.SESSION_ENDED] is State.OVER
        assert TRANSITIONS[state][Input.CUT] is State.OVER


@pytest.mark.parametrize(
    ("table", "state", "happened"),
    [
        *((TRANSITIONS, *pair) for pair in itertools.product(State, Input) if pair[1] not in TRANSITIONS[pair[0]]),
        (PLAN_TRANSITIONS, PlanState.ALL_BEGUN, PlanInput.TURN_BEGAN),
        (PLAN_TRANSITIONS, PlanState.ALL_BEGUN, PlanInput.LAST_TURN_BEGAN),
    ],
)
def test_a_transition_that_the_table_lacks_is_refused(table: Table, state: Enum, happened: Enum) -> None:
    with pytest.raises(InvalidTransitionError, match=f"{happened.name} .* cannot happen in {state.name} "):
        next_state(table, state, happened)


def test_conversation_raises_and_is_unchanged_on_bad_transition() -> None:
    caller = Conversation(make_plan(), PlayoutBuffer("rms-10ms"))
    caller.begin(0)
    with pytest.raises(InstrumentError, match="READY"):
        caller.begin(1)
    assert caller.state is State.THINKING


@pytest.mark.parametrize("module", [conversation, plans])
def test_a_state_is_changed_by_one_method_alone(module: Any) -> None:
    """Anywhere else than where it begins and in the method that looks the transition up, nothing assigns it."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    assigning = [
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
    ]
    assert sorted(assigning) == ["__init__", "_move"]


BARGE_IN = {"barge_in": ReplyPoint(after_ns=500 * MS)}
SILENCE: dict[str, Any] = {"clip": None, "silence_ns": 1_000 * MS}
BACKCHANNEL = {"backchannel": Backchannel(make_clip(speech_ms=600), ReplyPoint(after_ns=500 * MS))}
FAILED = event(EventKind.RESPONSE_DONE, response_id="r1", status="failed", message="the model is down")


def plan(*turns: dict[str, Any], longest_ms: int = 120_000, **options: Any) -> CallPlan:
    base = make_plan(**options)
    limits = replace(base.limits, longest_reply_ns=longest_ms * MS)
    return replace(base, turns=tuple(replace(base.turns[0], **changes) for changes in turns), limits=limits)


def begun(ms: int = 5_000) -> list[Any]:
    """A reply that is still being sent."""
    return reply(ms)[:2]


def connecting(*turns: dict[str, Any]) -> World:
    return World(plan(*(turns or ({}, {}))), begin=False)


def thinking() -> World:
    return World(plan({}, {}))


def speaking(**options: Any) -> World:
    return World(plan({}, {}, **options)).after(500)


def waiting(**options: Any) -> World:
    return World(plan({}, {}, **options)).speak()


def hearing(*turns: dict[str, Any], **options: Any) -> World:
    return World(plan(*(turns or ({}, {})), **options)).speak().hear(*begun()).after(20)


def backchanneling(ms: int = 5_000, **options: Any) -> World:
    world = World(plan(BACKCHANNEL, {}, **options)).speak().hear(*begun(ms)).after(420)
    assert world.conversation.state is State.BACKCHANNELING
    return world


def cut(world: World) -> World:
    return world.do(world.conversation.break_off("the end of the test", world.now))


def heard_whole(world: World, *events: Any) -> World:
    return world.hear(*events).after(400)


SCENARIOS: dict[tuple[State, Input, State], Callable[[], World]] = {
    (State.CONNECTING, Input.READY, State.THINKING): thinking,
    (State.CONNECTING, Input.SESSION_ENDED, State.OVER): lambda: connecting().lose("refused"),
    (State.CONNECTING, Input.CUT, State.OVER): lambda: cut(connecting()),
    (State.THINKING, Input.SAY, State.SPEAKING): speaking,
    (State.THINKING, Input.KEEP_SILENT, State.WAITING): lambda: World(plan(SILENCE)).after(500),
    (State.THINKING, Input.NO_TURN_LEFT, State.OVER): lambda: World(plan({})).speak().hear(*reply(100)).after(200),
    (State.THINKING, Input.SESSION_ENDED, State.OVER): lambda: thinking().lose("dropped"),
    (State.THINKING, Input.CUT, State.OVER): lambda: cut(thinking()),
    (State.SPEAKING, Input.SPEECH_START, State.SPEAKING): lambda: speaking().speech_starts(),
    (State.SPEAKING, Input.SPEECH_END, State.WAITING): waiting,
    (State.SPEAKING, Input.TIME_OUT, State.OVER): lambda: speaking(reply_ms=1_000).after(2_400),
    (State.SPEAKING, Input.SESSION_ENDED, State.OVER): lambda: speaking().lose("dropped"),
    (State.SPEAKING, Input.CUT, State.OVER): lambda: cut(speaking()),
    (State.WAITING, Input.REPLY_AUDIBLE, State.HEARING): hearing,
    (State.WAITING, Input.TURN_DONE, State.THINKING): lambda: World(plan(SILENCE, {})).after(1_600),
    (State.WAITING, Input.REPLY_FAILED, State.OVER): lambda: cut(
        waiting().hear(*begun(0), audio(silence(500) + tone(500)), FAILED).after(100)
    ),
    (State.WAITING, Input.PATIENCE_OVER, State.OVER): lambda: waiting(patience_ms=1_000).after(1_100),
    (State.WAITING, Input.TIME_OUT, State.OVER): lambda: waiting(reply_ms=1_000).after(1_100),
    (State.WAITING, Input.SESSION_ENDED, State.OVER): lambda: waiting().lose("dropped"),
    (State.WAITING, Input.CUT, State.OVER): lambda: cut(waiting()),
    (State.HEARING, Input.BACKCHANNEL_POINT, State.BACKCHANNELING): backchanneling,
    (State.HEARING, Input.BARGE_IN_POINT, State.SPEAKING): lambda: hearing({}, BARGE_IN).after(400),
    (State.HEARING, Input.TURN_DONE, State.THINKING): lambda: heard_whole(waiting(), *reply(300)),
    (State.HEARING, Input.REPLY_FAILED, State.OVER): lambda: heard_whole(waiting(), *begun(300), FAILED),
    (State.HEARING, Input.TIME_OUT, State.OVER): lambda: hearing(longest_ms=2_000).after(2_000),
    (State.HEARING, Input.SESSION_ENDED, State.OVER): lambda: hearing().hear(
        event(EventKind.ERROR, message="no", fatal=True)
    ),
    (State.HEARING, Input.CUT, State.OVER): lambda: cut(hearing()),
    (State.BACKCHANNELING, Input.SPEECH_START, State.BACKCHANNELING): lambda: (
        backchanneling().after(100).speech_starts()
    ),
    (State.BACKCHANNELING, Input.SPEECH_END, State.HEARING): lambda: (
        backchanneling().after(100).speech_starts().speech_ends()
    ),
    (State.BACKCHANNELING, Input.TURN_DONE, State.THINKING): lambda: backchanneling(600, reply_ms=300).after(600),
    (State.BACKCHANNELING, Input.TIME_OUT, State.OVER): lambda: backchanneling(longest_ms=600).after(300),
    (State.BACKCHANNELING, Input.SESSION_ENDED, State.OVER): lambda: backchanneling().lose("dropped"),
    (State.BACKCHANNELING, Input.CUT, State.OVER): lambda: cut(backchanneling()),
}
PLAN_SCENARIOS: dict[tuple[PlanState, PlanInput, PlanState], Callable[[], World]] = {
    (PlanState.TURNS_LEFT, PlanInput.TURN_BEGAN, PlanState.TURNS_LEFT): speaking,
    (PlanState.TURNS_LEFT, PlanInput.LAST_TURN_BEGAN, PlanState.ALL_BEGUN): lambda: World(plan({})).after(500),
    (PlanState.TURNS_LEFT, PlanInput.WIND_DOWN, PlanState.WINDING_DOWN): lambda: thinking().wind_down(),
    (PlanState.ALL_BEGUN, PlanInput.WIND_DOWN, PlanState.WINDING_DOWN): lambda: World(plan({})).after(500).wind_down(),
    (PlanState.WINDING_DOWN, PlanInput.WIND_DOWN, PlanState.WINDING_DOWN): lambda: cut(thinking().wind_down()),
    (PlanState.WINDING_DOWN, PlanInput.TURN_BEGAN, PlanState.WINDING_DOWN): lambda: (
        connecting().wind_down().lose("refused")
    ),
    (PlanState.WINDING_DOWN, PlanInput.LAST_TURN_BEGAN, PlanState.WINDING_DOWN): lambda: (
        connecting({}).wind_down().lose("refused")
    ),
}

Taken = list[tuple[Enum, Enum, Enum]]


@contextmanager
def recorded(module: Any, patch: pytest.MonkeyPatch) -> Iterator[Taken]:
    """The transitions that the code of a module looks up."""
    taken: Taken = []

    def note(table: Any, state: Enum, happened: Enum) -> Enum:
        following = next_state(table, state, happened)
        taken.append((state, happened, following))
        return following

    with patch.context() as patched:
        patched.setattr(module, "next_state", note)
        yield taken


def name(transition: tuple[Enum, Enum, Enum]) -> str:
    return "-".join(member.name for member in transition)


def test_tables_hold_exactly_transitions_of_these_scenarios() -> None:
    assert SCENARIOS.keys() == {
        (state, happened, row[happened]) for state, row in TRANSITIONS.items() for happened in row
    }
    assert PLAN_SCENARIOS.keys() == {
        (state, happened, row[happened]) for state, row in PLAN_TRANSITIONS.items() for happened in row
    }


@pytest.mark.parametrize("transition", SCENARIOS, ids=name)
def test_a_caller_takes_the_transition(transition: tuple[State, Input, State], monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(conversation, monkeypatch) as taken:
        world = SCENARIOS[transition]()
    assert transition in taken
    assert [before for before, _, _ in taken] == [State.CONNECTING, *(after for _, _, after in taken[:-1])]
    assert world.conversation.state is taken[-1][2]


@pytest.mark.parametrize("transition", PLAN_SCENARIOS, ids=name)
def test_a_plan_takes_the_transition(
    transition: tuple[PlanState, PlanInput, PlanState], monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(plans, monkeypatch) as taken:
        PLAN_SCENARIOS[transition]()
    assert transition in taken


def test_a_session_that_ended_before_the_caller_began_stays_over() -> None:
    """An event may end the session after it became ready and before the caller's greenlet runs."""
    world = connecting().lose("closed at once")
    assert world.last.outcome == "error"
    before = list(world.actions)
    assert world.do(world.conversation.begin(world.now)).after(1_000).actions == before
    assert world.conversation.state is State.OVER


def test_rest_of_backchannel_after_its_turn_is_ignored() -> None:
    world = backchanneling(600, reply_ms=300).after(100).speech_starts().after(500)
    assert world.conversation.state is State.THINKING
    ended = list(world.actions)
    assert world.speech_ends().actions == ended
    assert world.last.backchannel is not None
    assert world.last.backchannel.end_perf_ns is None


def test_rest_of_backchannel_in_silent_turn_is_ignored() -> None:
    world = World(plan(BACKCHANNEL, SILENCE | {"think_ns": 0}, reply_ms=300)).speak().hear(*begun(600)).after(520)
    world.speech_starts().after(500)
    assert world.conversation.state is State.WAITING
    world.speech_ends()
    assert world.conversation.state is State.WAITING
    assert world.conversation.exchange is not None
    assert world.conversation.exchange.timeline.speech_end_perf_ns is None
