"""Every transition of the tables happens in a conversation that is driven by hand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from loadtest.conversation import conversation
from loadtest.conversation import plan as plans
from loadtest.conversation.plan import Backchannel, CallPlan, ReplyPoint
from loadtest.conversation.state import PLAN_TRANSITIONS, TRANSITIONS, Input, PlanInput, PlanState, State, next_state
from loadtest.protocols.base import EventKind
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_clip, make_plan, reply, silence, tone

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
    return "-".join(each.name for each in transition)


def test_the_tables_hold_the_transitions_of_these_scenarios_and_no_others() -> None:
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


def test_the_rest_of_a_backchannel_whose_turn_has_ended_is_ignored() -> None:
    world = backchanneling(600, reply_ms=300).after(100).speech_starts().after(500)
    assert world.conversation.state is State.THINKING
    ended = list(world.actions)
    assert world.speech_ends().actions == ended
    assert world.last.backchannel is not None
    assert world.last.backchannel.end_perf_ns is None


def test_the_rest_of_a_backchannel_is_ignored_in_a_silent_turn_too() -> None:
    world = World(plan(BACKCHANNEL, SILENCE | {"think_ns": 0}, reply_ms=300)).speak().hear(*begun(600)).after(520)
    world.speech_starts().after(500)
    assert world.conversation.state is State.WAITING
    world.speech_ends()
    assert world.conversation.state is State.WAITING
    assert world.conversation.exchange is not None
    assert world.conversation.exchange.timeline.speech_end_perf_ns is None
