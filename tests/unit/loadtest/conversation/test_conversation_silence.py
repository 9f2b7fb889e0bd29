"""A reply that the wire does not close ends when nothing of it has come or played for a while."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.conversation.exchange import HangUp, Interrupt, Say
from loadtest.conversation.plan import CallPlan, ReplyPoint
from loadtest.conversation.record import build_turn
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, silence, tone

BARGE_IN = ReplyPoint(after_ns=500 * MS)


def piece(ms: int = 200) -> VoiceEvent:
    """Audio of a reply that has no name."""
    return audio(tone(ms), None)


def plan(*turns: dict[str, Any], silence_ms: int = 1_000, longest_ms: int = 120_000, **options: Any) -> CallPlan:
    base = make_plan(**options)
    limits = replace(base.limits, reply_silence_ns=silence_ms * MS, longest_reply_ns=longest_ms * MS)
    return replace(base, turns=tuple(replace(base.turns[0], **each) for each in turns or ({},)), limits=limits)


def quiet(*turns: dict[str, Any], **options: Any) -> World:
    return World(plan(*turns, **options), wire=WireTraits(closes_replies=False, closes_questions=False))


def turn(world: World, index: int = -1) -> Turn:
    return build_turn(world.exchanges[index], CALL, OPTIONS)


def test_the_reply_ends_a_second_after_it_was_heard_and_its_end_is_that_of_its_audio() -> None:
    world = quiet().speak().after(300)
    heard = world.now
    world.hear(piece(500)).after(1_480)
    assert world.conversation.state is State.HEARING
    world.after(20)
    exchange = world.last
    assert (exchange.outcome, exchange.reason) == ("ok", None)
    answer = exchange.timeline.answer
    assert answer is not None
    assert answer.done_perf_ns == heard, "the arrival of the last audio"
    found = turn(world)
    assert found.first_audio_perf_ns == heard
    assert found.reply_end_perf_ns == pytest.approx(heard + 500 * MS, abs=MS)
    assert found.underrun_count == 0, "silence at the end is no underrun"
    assert found.reply_audio_ns == 500 * MS
    assert found.response_id is None


@pytest.mark.parametrize("pause_ms", [20, 500, 980])
def test_a_pause_that_is_shorter_does_not_end_it(pause_ms: int) -> None:
    world = quiet().speak().after(300).hear(piece(200)).after(200 + pause_ms).hear(piece(200))
    heard = world.now
    world.after(1_300)
    (exchange,) = world.exchanges
    assert len(exchange.timeline.replies) == 1
    found = turn(world)
    assert found.reply_end_perf_ns == pytest.approx(heard + 200 * MS, abs=MS)
    assert (found.underrun_count, found.underrun_worst_ns) == (1, pause_ms * MS), "a player starves in the pause"


def test_a_pause_of_silent_samples_is_part_of_it_and_no_underrun() -> None:
    world = quiet().speak().after(300).hear(piece(200), audio(silence(1_500), None), piece(200))
    world.after(2_880)
    assert not world.exchanges
    world.after(20)
    found = turn(world)
    assert (found.outcome, found.underrun_count, found.reply_audio_ns) == ("ok", 0, 1_900 * MS)


def test_what_was_sent_faster_than_it_is_heard_is_heard_to_its_end() -> None:
    world = quiet().speak().hear(*[piece(1_000)] * 8).after(8_980)
    assert world.conversation.state is State.HEARING
    world.after(20)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok"]


def test_the_length_of_the_silence_is_a_setting() -> None:
    world = quiet(silence_ms=300).speak().hear(piece(200)).after(480)
    assert not world.exchanges
    assert world.after(20).last.outcome == "ok"


def test_it_is_never_longer_than_the_wait_for_a_reply() -> None:
    world = quiet(silence_ms=3_000, reply_ms=600).speak().hear(piece(200)).after(780)
    assert not world.exchanges
    assert (world.after(20).last.outcome, world.last.reason) == ("ok", None)


def test_what_comes_later_belongs_to_no_turn_and_the_next_answer_has_a_name_of_its_own() -> None:
    world = quiet({}, {}).speak().hear(piece(200)).after(1_200)
    first = world.last
    world.hear(piece(100))  # an afterthought
    world.after(600)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().after(1_000).speech_ends().after(300)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "ok"]
    assert first.timeline.answer is not None
    assert world.last.timeline.first_audio_perf_ns == answered


@pytest.mark.parametrize("speech_ms", [200, 1_000])
@pytest.mark.parametrize("think_ms", [0, 500])
def test_a_greeting_before_the_first_question_does_not_answer_it(speech_ms: int, think_ms: int) -> None:
    world = quiet(think_ms=think_ms).hear(piece(700)).after(600)
    assert not world.actions, "the caller hears the greeting out"
    world.after(100 + think_ms + 20)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().after(speech_ms).speech_ends().after(280)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)
    assert world.last.timeline.early_replies == 0


def test_a_greeting_alone_is_no_answer() -> None:
    world = quiet(reply_ms=2_000).hear(piece(300)).after(300).speak().after(2_000)
    assert world.last.outcome == "no_reply"


def test_the_rest_of_a_greeting_that_pauses_is_no_answer() -> None:
    world = quiet(think_ms=100, reply_ms=2_000).hear(piece(300)).after(420)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().after(200).hear(piece(100)).after(800).speech_ends().after(2_000)
    assert world.last.outcome == "no_reply"


def test_replies_that_queue_end_one_after_the_other() -> None:
    one, other = audio(tone(400), "a"), audio(tone(400), "b")
    world = quiet().speak().hear(one, other).after(1_780)
    assert not world.exchanges
    world.after(20)
    assert [reply.is_over for reply in world.last.timeline.replies.values()] == [True, True]
    assert world.last.outcome == "ok"


def test_text_without_audio_ends_no_turn() -> None:
    text = event(EventKind.LLM_TEXT, text="It is on.")
    world = quiet().speak().hear(text).after(1_500)
    assert world.conversation.state is State.WAITING
    world.hear(piece(200)).after(1_200)
    found = turn(world)
    assert (found.outcome, len(world.last.timeline.replies)) == ("ok", 1)
    assert found.llm_first_token_perf_ns is not None


def test_text_alone_is_no_answer() -> None:
    world = quiet(reply_ms=3_000).speak().hear(event(EventKind.LLM_TEXT, text="It is on.")).after(3_000)
    assert (world.last.outcome, world.last.reason) == (
        "no_reply",
        "the endpoint answered with text alone, and with nothing audible",
    )


def test_a_reply_that_never_falls_silent_ends_at_its_longest() -> None:
    world = quiet(longest_ms=3_000).speak()
    for _ in range(20):
        world.hear(piece(200)).after(200)
    assert (world.last.outcome, world.conversation.state) == ("timeout", State.OVER)


def test_a_transcript_that_is_owed_is_waited_for() -> None:
    world = quiet().speak().hear(event(EventKind.ASR_PARTIAL, text="turn"), piece(200)).after(1_300)
    assert not world.exchanges
    world.hear(event(EventKind.ASR_FINAL, text="turn the light on"))
    assert world.last.outcome == "ok"


def test_the_think_time_counts_from_the_end_of_the_reply() -> None:
    world = quiet({}, {"think_ns": 3_000 * MS}).speak().hear(piece(200))
    ends = world.now + 200 * MS
    world.after(1_200)
    assert world.exchanges
    assert world.conversation.deadline_perf_ns == ends + 3_000 * MS


def test_a_silent_turn_that_is_asked_again_ends_by_silence() -> None:
    world = quiet({"clip": None, "silence_ns": 800 * MS}).after(500).hear(piece(300)).after(1_300)
    assert turn(world).reprompted is True
    assert world.last.outcome == "ok"


def test_a_silent_turn_that_gets_no_answer() -> None:
    world = quiet({"clip": None, "silence_ns": 800 * MS}, {}).after(1_300)
    assert (world.last.outcome, turn(world).reprompted) == ("ok", False)
    assert world.conversation.deadline_perf_ns == world.now + 500 * MS


def test_patience_runs_out_before_a_reply_and_never_in_its_pauses() -> None:
    patient = {"patience_ns": 600 * MS}
    assert quiet(patient).speak().after(620).last.outcome == "abandoned"
    world = quiet(patient).speak().after(500).hear(piece(200)).after(1_000).hear(piece(200)).after(1_200)
    assert world.last.outcome == "ok"


def test_a_lost_connection_in_the_silence_after_a_reply_is_an_error_as_with_an_event() -> None:
    assert quiet().speak().hear(piece(200)).after(500).lose("gone").last.outcome == "error"


def barge_in(*, manual: bool = False) -> World:
    """A caller who has begun to speak 500 ms into a reply of 5 s, of which 1 s has come."""
    world = quiet({}, {"barge_in": BARGE_IN}, manual=manual).speak().hear(*[piece(250)] * 4).after(420)
    assert isinstance(world.actions[-1], Say)
    return world.after(100).speech_starts()


def test_a_caller_who_interrupts_is_answered_after_the_old_reply_has_stopped() -> None:
    world = barge_in()
    began = world.now
    world.after(200).hear(event(EventKind.SPEECH_STARTED)).after(600).speech_ends().after(400)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    old, new = turn(world, 0), turn(world, 1)
    assert (old.outcome, old.cut_short) == ("ok", True)
    assert (new.barge_in_end, new.barge_in_stop_ns) == ("ended_by_itself", None), "nothing asked to drop what was left"
    assert (new.outcome, new.barge_in_recovered, new.first_audio_perf_ns) == ("ok", True, answered)
    assert new.speech_start_perf_ns == began


def test_late_pieces_of_an_interrupted_reply_do_not_answer() -> None:
    world = barge_in()
    for _ in range(30):  # sent as it is spoken, by an endpoint that does not stop
        world.hear(piece(20)).after(20)
    world.speech_ends()
    for _ in range(30):
        world.hear(piece(20)).after(20)
    assert world.conversation.exchange is not None
    assert world.conversation.exchange.timeline.answer is None, "it is still the old reply"
    world.after(1_500)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert world.last.timeline.first_audio_perf_ns == answered


def test_a_reply_of_which_no_more_comes_is_over_and_was_not_stopped() -> None:
    world = barge_in().after(900).speech_ends().after(300)  # what had come was over 500 ms ago
    answered = world.now
    world.hear(piece(300)).after(1_400)
    new = turn(world)
    assert (new.outcome, new.first_audio_perf_ns) == ("ok", answered)
    assert (new.barge_in_end, new.barge_in_stop_ns) == ("ended_by_itself", None), "nothing shows that it was cut"


def test_under_manual_turns_the_client_stops_the_reply() -> None:
    world = barge_in(manual=True)
    assert any(isinstance(action, Interrupt) for action in world.actions)
    world.after(600).speech_ends().after(400)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)


def test_a_reply_that_had_fallen_silent_was_not_interrupted() -> None:
    world = quiet({}, {"barge_in": ReplyPoint(after_ns=900 * MS)}).speak().hear(piece(300)).after(820)
    assert isinstance(world.actions[-1], Say)
    world.after(80).speech_starts().after(600).speech_ends().after(300).hear(piece(300)).after(1_400)
    assert turn(world).barge_in_reason == "the reply had fallen silent before the caller's first speech sample"


def test_an_event_after_the_silence_finds_the_turn_over_however_late_the_clock_is_looked_at() -> None:
    world = quiet({}, {}).speak().hear(piece(200))
    world.now += 1_250 * MS  # no one has looked at the time since
    world.hear(piece(100))
    assert [exchange.outcome for exchange in world.exchanges] == ["ok"]
    assert turn(world).reply_audio_ns == 200 * MS


def test_a_wire_that_closes_its_replies_waits_for_the_end_of_one() -> None:
    world = World(plan()).speak().hear(piece(200)).after(1_500)
    assert not world.exchanges
    world.hear(event(EventKind.RESPONSE_DONE, status="completed"))
    assert world.last.outcome == "ok"


def test_a_call_whose_last_reply_ended_hangs_up() -> None:
    world = quiet().speak().hear(piece(200)).after(1_200)
    assert isinstance(world.actions[-1], HangUp)
