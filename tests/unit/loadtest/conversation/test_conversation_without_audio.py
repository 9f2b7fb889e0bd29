"""Turns on wires without reply audio: the answer is text, or the transcript itself."""

import pytest

from loadtest.conversation.outcome import failure_of
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
    world.speak().hear(event(EventKind.ASR_FINAL, text=""), *[_second(received) for received in (STARTED, done())])
    assert world.last.outcome == "ok", "that nothing was recognized is a word error, not a missing answer"
    assert len(world.exchanges) == 2


def _second(one: VoiceEvent) -> VoiceEvent:
    return event(one.kind, response_id="r2", status=one.status)


def test_failed_reply_ends_turn_at_once_with_its_cause() -> None:
    failure = Failure("http_status", "429")
    world = asked().hear(STARTED, done("failed", message="too many requests", failure=failure))
    assert (world.last.outcome, world.last.reason) == ("error", "too many requests")


@pytest.mark.parametrize("events", [[], [STARTED], [STARTED, done()]])
def test_missing_or_empty_answer_is_no_answer(events: list[VoiceEvent]) -> None:
    world = asked(reply_ms=2000).hear(*events).after(1900)
    assert world.exchanges == []
    assert world.after(200).last.outcome in ("no_reply", "timeout")


def test_on_a_wire_with_audio_text_alone_is_no_answer() -> None:
    world = World(make_plan(2, manual=True, reply_ms=2000)).speak().hear(STARTED, text("It is on."), done())
    assert world.exchanges == []
    assert world.after(2100).last.outcome == "no_reply"


def test_text_streamed_longer_than_reply_timeout_is_answer() -> None:
    world = asked(reply_ms=2000).after(1900).hear(STARTED, text("It "))
    for word in ("is ", "on ", "and ", "stays ", "on."):
        world.after(1900).hear(text(word))
        assert world.exchanges == []
        assert world.conversation.deadline_perf_ns == world.now + 2000 * MS
    world.after(100).hear(done())
    assert (world.last.outcome, world.last.reason) == ("ok", None)
    answer = world.last.timeline.answer
    assert answer is not None
    assert answer.text_stamps_perf_ns[0] - (world.last.timeline.speech_end_perf_ns or 0) == 1900 * MS


def test_the_rest_of_a_text_is_bounded_by_the_longest_reply() -> None:
    world = asked(reply_ms=2000)  # the longest reply is 120 s
    world.after(500).hear(STARTED, text("On "))
    for _ in range(119):
        world.after(1000).hear(text("and on "))
    assert world.exchanges == []
    world.after(999)
    assert world.exchanges == []
    world.after(40)
    assert (world.last.outcome, world.last.reason) == (
        "timeout",
        "the reply had not ended 120 s after it began: the caller hung up",
    )
    assert failure_of(world.last) == Failure("timeout", "reply_endless")


def test_a_text_that_stops_has_not_answered() -> None:
    world = asked(reply_ms=2000).after(500).hear(STARTED, text("It is ")).after(1500).hear(text("not "))
    world.after(1900)
    assert world.exchanges == []
    world.after(200)
    assert (world.last.outcome, world.last.reason) == (
        "timeout",
        "the endpoint began to answer and stopped: nothing more of it came for 2 s",
    )
    assert failure_of(world.last) == Failure("timeout", "reply_stalled")


def test_reasoning_is_no_text_of_the_answer() -> None:
    world = asked(reply_ms=2000).hear(STARTED)
    for _ in range(19):
        world.after(100).hear(event(EventKind.REASONING_TEXT, response_id="r1", text="hm"))
    assert world.exchanges == []
    world.after(200)
    assert (world.last.outcome, world.last.reason) == (
        "timeout",
        "the endpoint began to answer and sent no text of the answer within 2 s",
    )
    assert failure_of(world.last) == Failure("timeout", "reply_not_heard")


def test_patience_ends_with_the_first_text() -> None:
    plan = make_plan(2, manual=True, reply_ms=10_000, patience_ms=1500)
    world = World(plan, wire=SILENT).speak().after(1000).hear(STARTED, text("It "))
    world.after(1000).hear(text("is on."), done())
    assert world.last.outcome == "ok"
    impatient = World(plan, wire=SILENT).speak().hear(STARTED).after(1600)
    assert impatient.last.outcome == "abandoned"


def test_streaming_recognizer_may_exceed_reply_timeout() -> None:
    def partial(words: str) -> VoiceEvent:
        return event(EventKind.ASR_PARTIAL, text=words)

    world = asked(reply_ms=2000).after(1000)
    for word in ("turn ", "the ", "light "):
        world.hear(partial(word)).after(1900)
        assert world.exchanges == []
    world.hear(event(EventKind.ASR_FINAL, text="turn the light on"), STARTED, done())
    assert world.last.outcome == "ok"
    stopped = asked(reply_ms=2000).after(1000).hear(partial("turn ")).after(2100)
    assert (stopped.last.outcome, failure_of(stopped.last)) == ("timeout", Failure("timeout", "reply_stalled"))


def test_a_run_that_ends_cuts_a_text_that_arrives() -> None:
    world = asked().after(500).hear(STARTED, text("It "))
    world.do(world.conversation.break_off("the end of the run", world.now))
    assert (world.last.outcome, world.last.reason) == ("cut", "cut by the end of the run while the answer arrived")
