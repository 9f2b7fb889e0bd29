"""A turn that we end before its end: where it stood is recorded, and nothing begins any more."""

from dataclasses import replace

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import HangUp
from loadtest.conversation.plan import ReplyPoint
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.state import State
from loadtest.protocols.base import EventKind
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, reply, tone

BY = "the stop time-out of 1 s"


def cut(world: World) -> World:
    world.actions += world.conversation.break_off(BY, world.now)
    assert world.conversation.state is State.OVER
    assert isinstance(world.actions[-1], HangUp)
    return world


def test_a_caller_who_waits() -> None:
    world = cut(World(make_plan(turns=3)).speak().after(1_500))
    assert (world.last.outcome, world.last.cut_by) == ("cut", BY)
    assert world.last.reason == f"cut by {BY} after 1.5 s of waiting for an answer"
    assert world.last.hangup_perf_ns == world.last.ended_perf_ns == world.now
    assert len(world.exchanges) == 1


def test_a_caller_who_speaks() -> None:
    world = World(make_plan()).after(500)
    world.actions += world.conversation.on_speech_start(world.now, 0)
    assert cut(world.after(300)).last.reason == f"cut by {BY} before the caller had spoken"
    assert world.last.outcome == "cut"


def test_a_caller_who_hears_a_reply_that_goes_on() -> None:
    world = cut(World(make_plan()).speak().hear(*reply(2_000)[:2]).after(400))
    assert (world.last.outcome, world.last.reason) == ("cut", f"cut by {BY} while the reply was heard")


def test_a_reply_that_had_arrived_whole_is_judged_as_what_it_is() -> None:
    world = cut(World(make_plan(turns=2)).speak().hear(*reply(2_000)).after(400))
    assert (world.last.outcome, world.last.cut_by, len(world.exchanges)) == ("ok", None, 1)
    failed = World(make_plan()).speak().hear(*reply(2_000)[:2])
    failed.hear(event(EventKind.RESPONSE_DONE, response_id="r1", status="failed", message="down")).after(400)
    assert cut(failed).last.outcome == "error"


def test_the_reply_that_was_broken_into_and_the_turn_that_broke_into_it() -> None:
    plan = make_plan(turns=2)
    into = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=500 * MS))
    world = World(replace(plan, turns=(plan.turns[0], into))).speak()
    world.hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), audio(tone(5_000), "r1")).after(420)
    cut(world.after(100))
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "cut"]
    assert world.exchanges[0].reply_interrupted


def test_between_two_turns_there_is_none_to_record() -> None:
    world = cut(World(make_plan(turns=2)).speak().hear(*reply(100)).after(140))
    assert [exchange.outcome for exchange in world.exchanges] == ["ok"]


def test_a_caller_who_was_still_connecting() -> None:
    conversation = Conversation(make_plan(turns=3), PlayoutBuffer("rms-10ms"))
    exchange, _ = conversation.break_off(BY, 5_000 * MS, connecting_since_perf_ns=1_000 * MS)
    assert (exchange.outcome, exchange.index, exchange.began_perf_ns) == ("cut", 0, 1_000 * MS)


def test_it_happens_once() -> None:
    world = cut(World(make_plan()).speak())
    assert world.conversation.break_off(BY, world.now) == []
    ended = World(make_plan()).speak().hear(*reply(100)).after(140)
    assert ended.conversation.break_off(BY, ended.now) == []
