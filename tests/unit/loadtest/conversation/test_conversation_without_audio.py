"""Turns on wires without reply audio: the answer is text, or the transcript itself."""

import pytest

from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import Capabilities, EventKind, VoiceEvent
from loadtest.protocols.failure import Failure
from tests.unit.loadtest.conversation.world import MS, World, event, make_plan

SILENT = WireTraits.of(Capabilities(16_000, 20, {"voice_to_voice": "text only", "endpointing": "the caller ends it"}))
STARTED = event(EventKind.RESPONSE_STARTED, response_id="r1")


def done(status: str = "completed", **fields: object) -> VoiceEvent:
    return event(EventKind.RESPONSE_DONE, response_id="r1", status=status, **fields)


def text(words: str) -> VoiceEvent:
    return event(EventKind.LLM_TEXT, response_id="r1", text=words)


def asked(reply_ms: int = 10_000) -> World:
    """A caller on such a wire who has asked."""
    return World(make_plan(2, manual=True, reply_ms=reply_ms), wire=SILENT).speak()


def test_a_turn_ends_when_its_text_is_complete() -> None:
    world = asked().after(300).hear(STARTED, text("It is "), text("on."))
    assert world.exchanges == []
    world.after(200).hear(done())
    assert world.last.outcome == "ok"
    answer = world.last.timeline.answer
    assert answer is not None
    assert answer.text == "It is on."
    assert world.last.ended_perf_ns == world.now
    assert answer.text_stamps_perf_ns[0] - (world.last.timeline.speech_end_perf_ns or 0) == 300 * MS


def test_a_turn_of_a_recognizer_ends_with_its_transcript() -> None:
    world = asked().after(100).hear(event(EventKind.ASR_FINAL, text="turn the light on"), STARTED, done())
    assert world.last.outcome == "ok"
    world.speak().hear(event(EventKind.ASR_FINAL, text=""), *[_second(each) for each in (STARTED, done())])
    assert world.last.outcome == "ok", "that nothing was recognized is a word error, not a missing answer"
    assert len(world.exchanges) == 2


def _second(one: VoiceEvent) -> VoiceEvent:
    return event(one.kind, response_id="r2", status=one.status)


def test_a_reply_that_failed_ends_the_turn_at_once_with_its_cause() -> None:
    failure = Failure("http_status", "429")
    world = asked().hear(STARTED, done("failed", message="too many requests", failure=failure))
    assert (world.last.outcome, world.last.reason) == ("error", "too many requests")


@pytest.mark.parametrize("events", [[], [STARTED], [STARTED, done()]])
def test_an_answer_that_does_not_come_or_says_nothing_is_none(events: list[VoiceEvent]) -> None:
    world = asked(reply_ms=2000).hear(*events).after(1900)
    assert world.exchanges == []
    assert world.after(200).last.outcome in ("no_reply", "timeout")


def test_on_a_wire_with_audio_text_alone_is_no_answer() -> None:
    world = World(make_plan(2, manual=True, reply_ms=2000)).speak().hear(STARTED, text("It is on."), done())
    assert world.exchanges == []
    assert world.after(2100).last.outcome == "no_reply"
