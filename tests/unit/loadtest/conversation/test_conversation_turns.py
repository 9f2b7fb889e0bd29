"""The conversation as a state machine, driven by hand from its plan to its end: no socket, no clock, no sleep."""

from dataclasses import replace

import pytest

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import EndTurn, Exchange, HangUp, Interrupt, Say
from loadtest.conversation.plan import ReplyPoint, TurnQueue
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.state import PlanState, State
from loadtest.conversation.warmup import warm_up
from loadtest.protocols.base import EventKind
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, reply, silence, tone


def test_answered_turn_is_ok_after_answer_has_played() -> None:
    world = World(make_plan()).speak().after(200).hear(*reply(300))
    assert not world.exchanges
    world.after(280)
    assert not world.exchanges, "the reply is still playing"
    world.after(40)
    assert world.last.outcome == "ok"
    assert world.actions[-1] == HangUp("the caller has no more to say")


def test_the_next_turn_begins_after_the_think_time() -> None:
    world = World(make_plan(turns=2)).speak().hear(*reply(100)).after(140)
    assert world.conversation.state is State.THINKING
    world.speak().hear(*reply(100, "r2")).after(140)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "ok"]
    assert [exchange.index for exchange in world.exchanges] == [0, 1]


def test_no_answer_within_timeout_is_no_reply_and_ends_call() -> None:
    world = World(make_plan(turns=3, reply_ms=4_000)).speak().after(3_900)
    assert not world.exchanges
    world.after(200)
    assert world.last.outcome == "no_reply"
    assert world.last.reason == "no answer within 4 s"
    assert world.conversation.state is State.OVER


def test_an_answer_that_simply_stops_ends_by_silence_and_says_so() -> None:
    world = World(make_plan(reply_ms=4_000)).speak().hear(*reply(300)[:2]).after(4_200)
    assert not world.exchanges, "the time runs from the end of what was heard"
    world.after(400)
    assert world.last.outcome == "ok"
    assert "never closed" in (world.last.reason or "")


def test_a_caller_hangs_up_when_patience_runs_out() -> None:
    world = World(make_plan(turns=2, patience_ms=1_500)).speak().after(1_480)
    assert not world.exchanges
    world.after(40)
    assert world.last.outcome == "abandoned"
    assert world.last.hangup_perf_ns == world.last.ended_perf_ns
    assert isinstance(world.actions[-1], HangUp)


def test_caller_hearing_an_answer_does_not_hang_up() -> None:
    world = World(make_plan(patience_ms=1_500)).speak().after(1_400).hear(*reply(2_000)).after(2_100)
    assert world.last.outcome == "ok"


def test_queued_silence_before_the_answer_uses_up_patience() -> None:
    world = World(make_plan(patience_ms=1_500)).speak().after(1_000)
    world.hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), audio(silence(2_000) + tone(100)))
    assert world.after(600).last.outcome == "abandoned"


def test_audio_that_came_before_the_question_is_no_answer() -> None:
    world = World(make_plan(reply_ms=4_000)).hear(*reply(300, "early")).after(400)
    world.after(480)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().after(1_000).speech_ends()
    world.hear(audio(tone(100), "early")).after(4_100)
    assert world.last.outcome == "no_reply"


def test_answer_before_first_speech_sample_precedes_question() -> None:
    world = World(make_plan(reply_ms=4_000)).after(500).hear(*reply(300, "early")).speech_starts().after(1_000)
    world.speech_ends().after(4_100)
    assert world.last.outcome == "no_reply"
    assert world.last.reason == "the endpoint answered before the question and not after it"


def test_caller_waits_for_playback_end_before_think_time() -> None:
    world = World(make_plan(turns=2)).speak().hear(*reply(100)).after(120)
    assert world.conversation.deadline_perf_ns >= world.playout.playing_until_perf_ns + 500 * MS


def test_reply_canceled_because_caller_continued_is_no_answer() -> None:
    world = World(make_plan()).after(500).speech_starts()
    world.hear(event(EventKind.SPEECH_STARTED)).after(400).hear(event(EventKind.SPEECH_STOPPED))
    world.hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), audio(tone(2_000), "r1")).after(200)
    world.hear(event(EventKind.SPEECH_STARTED))
    assert world.actions[-1] == Interrupt(200)
    world.hear(event(EventKind.RESPONSE_DONE, response_id="r1", status="cancelled")).after(400)
    world.speech_ends().after(300).hear(event(EventKind.SPEECH_STOPPED), *reply(300, "r2")).after(400)
    assert world.last.outcome == "ok"
    assert world.last.timeline.answer is world.last.timeline.replies["r2"]


def test_the_turn_waits_for_a_transcript_that_is_still_to_come() -> None:
    world = World(make_plan()).speak().hear(event(EventKind.ASR_PARTIAL, text="turn"), *reply(100)).after(500)
    assert not world.exchanges
    world.hear(event(EventKind.ASR_FINAL, text="turn on"))
    assert world.last.outcome == "ok"
    assert world.last.timeline.finals


def test_transcript_not_marked_final_dates_from_last_partial() -> None:
    world = World(make_plan()).speak().after(100).hear(event(EventKind.ASR_PARTIAL, text="turn"))
    last = world.after(100).hear(event(EventKind.ASR_PARTIAL, text=" on")).now
    world.after(100).hear(*reply(100), event(EventKind.ASR_FINAL, text="turn on", dated_by_partial=True)).after(500)
    assert world.last.timeline.finals == [(None, "turn on", last)]


def test_transcript_without_partials_dates_from_its_arrival() -> None:
    world = World(make_plan()).speak().after(100)
    came = world.hear(event(EventKind.ASR_FINAL, text="turn on", dated_by_partial=True)).now
    world.after(100).hear(*reply(100)).after(500)
    assert world.last.timeline.finals == [(None, "turn on", came)]


def test_missing_transcript_holds_turn_for_two_seconds_only() -> None:
    world = World(make_plan()).speak().hear(event(EventKind.ASR_PARTIAL, text="turn"), *reply(100)).after(2_200)
    assert world.last.outcome == "ok"
    assert not world.last.timeline.finals


def test_a_call_that_cannot_be_connected_is_one_failed_turn() -> None:
    conversation = Conversation(make_plan(turns=3), PlayoutBuffer("rms-10ms"))
    actions = conversation.on_closed("connection refused", 5)
    assert isinstance(actions[0], Exchange)
    assert (actions[0].outcome, actions[0].reason, actions[0].index) == ("error", "connection refused", 0)


def test_setup_error_does_not_fail_an_answered_turn() -> None:
    answered = World(make_plan())
    answered.conversation.note_setup_error("odd")
    assert answered.speak().hear(*reply(100)).after(140).last.outcome == "ok"


def test_a_failed_response_is_an_error() -> None:
    failed = event(EventKind.RESPONSE_DONE, response_id="r1", status="failed", message="the model is down")
    world = World(make_plan()).speak().hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), failed)
    assert not world.after(1_900).exchanges, "who failed may try again"
    world.after(200)
    assert (world.last.outcome, world.last.reason) == ("error", "the model is down")


def test_manual_turns_say_when_the_caller_has_finished() -> None:
    world = World(make_plan(manual=True)).speak()
    assert world.actions[-1] == EndTurn()
    assert EndTurn() not in World(make_plan()).speak().actions


def test_wind_down_finishes_current_turn_and_begins_no_other() -> None:
    world = World(make_plan(turns=3)).speak()
    world.conversation.wind_down()
    world.hear(*reply(100)).after(140)
    assert len(world.exchanges) == 1
    assert world.conversation.state is State.OVER
    thinking = World(make_plan(turns=3))
    thinking.conversation.wind_down()
    thinking.after(20)
    assert not thinking.exchanges
    assert thinking.conversation.state is State.OVER


def test_an_utterance_that_cannot_be_sent_is_our_fault() -> None:
    world = World(make_plan(reply_ms=1_000)).after(500).speech_starts().after(2_400)
    assert world.last.outcome == "invalid"


def test_caller_not_hearing_out_goes_on_at_whole_audible_answer() -> None:
    plan = make_plan()
    plan = replace(plan, limits=replace(plan.limits, hears_out=False))
    whole = reply(5_000)
    world = World(plan).speak().after(200).hear(*whole[:-1]).after(400)
    assert not world.exchanges  # audible, and more may come
    world.hear(whole[-1])
    assert (world.last.outcome, world.last.reason) == ("ok", None)
    silent_at_first = [whole[0], audio(silence(300) + tone(500)), whole[-1]]
    world = World(plan).speak().after(200).hear(*silent_at_first).after(280)
    assert not world.exchanges  # whole, and not audible yet
    assert world.after(60).last.outcome == "ok"


BASE = make_plan().turns[0]
TURNS = tuple(replace(BASE, think_ns=number * MS) for number in range(3))


def test_turns_are_taken_in_their_order_until_none_is_left() -> None:
    queue = TurnQueue(TURNS)
    taken = [queue.begin(), queue.begin()]
    assert queue.may_begin
    assert queue.following is TURNS[2]
    assert [*taken, queue.begin()] == list(enumerate(TURNS))
    assert (queue.may_begin, queue.following, queue.state) == (False, None, PlanState.ALL_BEGUN)
    with pytest.raises(IndexError):
        queue.begin()


def test_queue_winding_down_keeps_its_turn_but_begins_none() -> None:
    queue = TurnQueue(TURNS)
    queue.begin()
    queue.wind_down()
    assert (queue.may_begin, queue.following) == (False, TURNS[1])
    assert queue.begin() == (1, TURNS[1]), "taken to record that it failed"
    assert queue.state is PlanState.WINDING_DOWN


def test_a_plan_without_turns_has_begun_them_all() -> None:
    queue = TurnQueue(())
    assert (queue.may_begin, queue.following, queue.state) == (False, None, PlanState.ALL_BEGUN)


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("onset", ["rms-10ms", "sustained-50ms"])
def test_a_warmup_turn_goes_all_the_way(manual: bool, onset: str) -> None:
    exchange = warm_up(make_plan(think_ms=0, manual=manual), 1_000 * MS, onset)
    assert exchange.outcome == "ok"
    timeline = exchange.timeline
    assert timeline.answer is not None
    assert timeline.answer.playback is not None
    assert timeline.answer.playback.last_audio_perf_ns is not None
    assert timeline.partials_perf_ns
    assert timeline.finals


BY = "the stop time-out of 1 s"


def cut(world: World) -> World:
    world.actions += world.conversation.break_off(BY, world.now)
    assert world.conversation.state is State.OVER
    assert isinstance(world.actions[-1], HangUp)
    return world


def test_waiting_caller_is_cut_with_its_waiting_time() -> None:
    world = cut(World(make_plan(turns=3)).speak().after(1_500))
    assert (world.last.outcome, world.last.cut_by) == ("cut", BY)
    assert world.last.reason == f"cut by {BY} after 1.5 s of waiting for an answer"
    assert world.last.hangup_perf_ns == world.last.ended_perf_ns == world.now
    assert len(world.exchanges) == 1


def test_speaking_caller_is_cut_before_end_of_speech() -> None:
    world = World(make_plan()).after(500).speech_starts()
    assert cut(world.after(300)).last.reason == f"cut by {BY} before the caller had spoken"
    assert world.last.outcome == "cut"


def test_caller_hearing_a_reply_is_cut() -> None:
    world = cut(World(make_plan()).speak().hear(*reply(2_000)[:2]).after(400))
    assert (world.last.outcome, world.last.reason) == ("cut", f"cut by {BY} while the reply was heard")


def test_a_reply_that_had_arrived_whole_is_judged_as_what_it_is() -> None:
    world = cut(World(make_plan(turns=2)).speak().hear(*reply(2_000)).after(400))
    assert (world.last.outcome, world.last.cut_by, len(world.exchanges)) == ("ok", None, 1)
    failed = World(make_plan()).speak().hear(*reply(2_000)[:2])
    failed.hear(event(EventKind.RESPONSE_DONE, response_id="r1", status="failed", message="down")).after(400)
    assert cut(failed).last.outcome == "error"


def test_cut_in_barge_in_ends_interrupted_reply_and_new_turn() -> None:
    plan = make_plan(turns=2)
    into = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=500 * MS))
    world = World(replace(plan, turns=(plan.turns[0], into))).speak()
    world.hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), audio(tone(5_000), "r1")).after(420)
    cut(world.after(100))
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "cut"]
    assert world.exchanges[0].reply_interrupted


def test_between_two_turns_there_is_no_cut_to_record() -> None:
    world = cut(World(make_plan(turns=2)).speak().hear(*reply(100)).after(140))
    assert [exchange.outcome for exchange in world.exchanges] == ["ok"]


def test_connecting_caller_is_cut() -> None:
    conversation = Conversation(make_plan(turns=3), PlayoutBuffer("rms-10ms"))
    exchange, _ = conversation.break_off(BY, 5_000 * MS, connecting_since_perf_ns=1_000 * MS)
    assert (exchange.outcome, exchange.index, exchange.began_perf_ns) == ("cut", 0, 1_000 * MS)


def test_a_call_is_broken_off_once() -> None:
    world = cut(World(make_plan()).speak())
    assert world.conversation.break_off(BY, world.now) == []
    ended = World(make_plan()).speak().hear(*reply(100)).after(140)
    assert ended.conversation.break_off(BY, ended.now) == []
