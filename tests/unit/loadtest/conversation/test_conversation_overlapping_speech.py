"""When a caller speaks into a reply, and what becomes of the exchange whose reply is interrupted."""

from dataclasses import replace

import pytest

from loadtest.conversation.exchange import Exchange, SpokenBackchannel
from loadtest.conversation.plan import Backchannel, PlannedTurn, ReplyPoint
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.timeline import Timeline
from loadtest.conversation.waiting import InterruptedExchange, SpeechIntoReply, speech_into_reply
from loadtest.protocols.base import EventKind
from tests.unit.loadtest.conversation.world import MS, audio, event, make_clip, make_plan, tone

NOW = 1_000_000 * MS
TURN = make_plan().turns[0]
LONG = make_clip()
FOLLOWING = replace(TURN, clip=LONG, barge_in=ReplyPoint(after_ns=800 * MS))
MHM = make_clip(speech_ms=200, text="mhm")


def answered(planned: PlannedTurn = TURN, *, ms: int = 1_000, status: str | None = None) -> Exchange:
    """An exchange whose reply became audible at NOW; it is being sent, or ended with a status."""
    timeline, playout = Timeline(frozenset()), PlayoutBuffer("rms-10ms")
    timeline.speech_start_perf_ns, timeline.speech_end_perf_ns = NOW - 2_000 * MS, NOW - 1_000 * MS
    timeline.note(event(EventKind.RESPONSE_STARTED, response_id="r1"), NOW)
    heard = audio(tone(ms), "r1")
    answer = timeline.note(heard, NOW)
    assert answer is not None
    answer.hear(playout, heard, NOW)
    if status is not None:
        timeline.note(event(EventKind.RESPONSE_DONE, response_id="r1", status=status), NOW)
    return Exchange(0, planned, timeline, NOW - 3_000 * MS)


def test_the_first_speech_sample_falls_on_the_point() -> None:
    assert speech_into_reply(answered(), FOLLOWING) == SpeechIntoReply(NOW + 700 * MS, LONG, interrupts=True)


def test_a_backchannel_comes_before_the_turn_that_interrupts_and_once() -> None:
    exchange = answered(replace(TURN, backchannel=Backchannel(MHM, ReplyPoint(after_ns=300 * MS))))
    assert speech_into_reply(exchange, FOLLOWING) == SpeechIntoReply(NOW + 200 * MS, MHM, interrupts=False)
    exchange.backchannel = SpokenBackchannel(NOW, NOW + 1)
    assert speech_into_reply(exchange, FOLLOWING) == SpeechIntoReply(NOW + 700 * MS, LONG, interrupts=True)


@pytest.mark.parametrize(
    ("exchange", "following"),
    [
        (answered(), None),
        (answered(), TURN),
        (answered(), replace(FOLLOWING, clip=None)),
        (answered(), replace(FOLLOWING, barge_in=ReplyPoint(share=0.5))),
        (answered(ms=500, status="completed"), FOLLOWING),
        (answered(status="failed"), FOLLOWING),
        (Exchange(0, TURN, Timeline(frozenset()), NOW), FOLLOWING),
    ],
    ids=["last", "polite", "silent", "length unknown", "too short", "failed", "no answer"],
)
def test_a_caller_who_does_not_speak_into_the_reply(exchange: Exchange, following: PlannedTurn | None) -> None:
    assert speech_into_reply(exchange, following) is None


def test_an_interrupted_exchange_is_handed_out_once_when_its_reply_is_quiet() -> None:
    exchange = answered()
    interrupted = InterruptedExchange(exchange)
    assert (exchange.outcome, exchange.reply_interrupted) == ("ok", True)
    assert interrupted.finish_when_quiet(NOW + 5_000 * MS) == [], "the reply may go on"
    exchange.timeline.note(event(EventKind.RESPONSE_DONE, response_id="r1", status="completed"), NOW + 10)
    assert interrupted.finish_when_quiet(NOW + 999 * MS) == [], "it still plays"
    assert not interrupted.is_finished
    assert interrupted.finish_when_quiet(NOW + 1_000 * MS) == [exchange]
    assert interrupted.is_finished
    assert exchange.ended_perf_ns == NOW + 1_000 * MS
    assert interrupted.finish(NOW + 2_000 * MS) == []


def test_an_interrupted_exchange_ends_whatever_plays_when_it_has_to() -> None:
    exchange = answered()
    interrupted = InterruptedExchange(exchange)
    assert interrupted.finish(NOW + 5) == [exchange]
    assert exchange.ended_perf_ns == NOW + 5


@pytest.mark.parametrize("is_open", [True, False])
def test_it_owns_its_reply_and_no_other(is_open: bool) -> None:
    interrupted = InterruptedExchange(answered())
    assert interrupted.owns(audio(tone(20), "r1"), question_is_open=is_open)
    assert not interrupted.owns(audio(tone(20), "r2"), question_is_open=is_open)
    assert not interrupted.owns(event(EventKind.RESPONSE_STARTED, response_id="r2"), question_is_open=is_open)


@pytest.mark.parametrize("is_open", [True, False])
def test_it_owns_the_response_that_its_tool_call_announced_while_the_new_question_is_open(is_open: bool) -> None:
    exchange = answered()
    interrupted = InterruptedExchange(exchange)
    exchange.timeline.note(event(EventKind.RESPONSE_DONE, response_id="r1", owes_response=True), NOW)
    began = event(EventKind.RESPONSE_STARTED, response_id="r2")
    assert interrupted.owns(began, question_is_open=is_open) is is_open
    assert not interrupted.owns(audio(tone(20), "r2"), question_is_open=is_open), "only its beginning says so"
