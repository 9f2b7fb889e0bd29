"""Frames of a reply that is already heard: the engine need not look at the conversation again, except where it must."""

from dataclasses import replace

import pytest

from loadtest.conversation.conversation import NO_CHANGE
from loadtest.conversation.plan import Backchannel, ReplyPoint
from loadtest.conversation.state import State
from loadtest.protocols.base import EventKind
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_clip, make_plan, reply, tone

FRAME = audio(tone(20))


def hearing(**changes: object) -> World:
    """A caller who hears a reply that is being sent; the first of two turns is changed."""
    plan = make_plan(turns=2)
    world = World(replace(plan, turns=(replace(plan.turns[0], **changes), plan.turns[1]))).speak()  # type: ignore[arg-type]
    return world.hear(*reply(1_000)[:2]).after(20)


def backchanneling() -> World:
    return hearing(backchannel=Backchannel(make_clip(), ReplyPoint(after_ns=300 * MS))).after(300)


@pytest.mark.parametrize(
    ("world", "state"),
    [(hearing(), State.HEARING), (backchanneling(), State.BACKCHANNELING)],
    ids=["hears", "says mhm"],
)
def test_a_frame_of_a_reply_that_is_heard_is_played_and_changes_nothing_else(world: World, state: State) -> None:
    until, deadline = world.playout.playing_until_perf_ns, world.conversation.deadline_perf_ns
    assert world.conversation.on_event(FRAME, world.now) is NO_CHANGE
    assert world.playout.playing_until_perf_ns == until + 20 * MS
    assert (world.conversation.state, world.conversation.deadline_perf_ns) == (state, deadline)


def test_frames_put_off_the_end_of_a_wait_that_the_deadline_had_set() -> None:
    world = hearing()
    for _ in range(600):
        world.hear(FRAME).after(20)
    assert not world.exchanges, "10 s after the first second of it more of the reply still comes"
    world.after(11_100)
    assert world.last.outcome == "ok"


@pytest.mark.parametrize(
    "other",
    [
        audio(tone(20), "r2"),
        event(EventKind.AUDIO, response_id="r1", audio=tone(20), rate_hz=24_000, metadata={"a": "b"}),
        event(EventKind.SPEECH_STARTED),
        event(EventKind.RESPONSE_DONE, response_id="r1", status="completed"),
    ],
    ids=["another reply", "metadata", "speech", "end"],
)
def test_what_is_more_than_a_frame_is_looked_at(other: object) -> None:
    world = hearing()
    assert world.conversation.on_event(other, world.now) is not NO_CHANGE  # type: ignore[arg-type]


def test_a_frame_is_looked_at_while_an_interrupted_reply_may_still_go_on() -> None:
    plan = make_plan(turns=2)
    into = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=300 * MS))
    world = World(replace(plan, turns=(plan.turns[0], into))).speak().hear(*reply(400)[:2]).after(320).speech_starts()
    world.after(500).speech_ends().hear(*reply(1_000, "r2")[:2]).after(20)
    assert world.conversation.state is State.HEARING
    assert not world.exchanges
    assert world.conversation.on_event(audio(tone(20), "r2"), world.now) is not NO_CHANGE


def test_a_frame_before_the_reply_is_audible_is_looked_at() -> None:
    world = World(make_plan()).speak().hear(event(EventKind.RESPONSE_STARTED, response_id="r1"))
    assert world.conversation.on_event(FRAME, world.now) is not NO_CHANGE
    assert world.conversation.state is State.HEARING
