"""Responses that answer a turn or none, the marks in them, and when the endpoint owes nothing more."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as msgspec_replace

from loadtest.conversation.exchange import Exchange, HangUp, Interrupt, Played, Say
from loadtest.conversation.outcome import EMPTY, NOT_AUDIBLE, ONLY_A_TOOL_CALL, ONLY_TEXT, failure_of
from loadtest.conversation.plan import CallPlan, ReplyPoint
from loadtest.conversation.record import build_turn
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import SUPERSEDED, EventKind, VoiceEvent
from loadtest.protocols.failure import Failure
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, reply, silence, tone


def began(response_id: str) -> VoiceEvent:
    return event(EventKind.RESPONSE_STARTED, response_id=response_id)


def done(response_id: str, status: str = "completed", **fields: object) -> VoiceEvent:
    return event(EventKind.RESPONSE_DONE, response_id=response_id, status=status, **fields)


def tool_call(response_id: str) -> list[VoiceEvent]:
    return [began(response_id), done(response_id, carried=frozenset({"tool_call"}), owes_response=True)]


def text_alone(response_id: str) -> list[VoiceEvent]:
    text = event(EventKind.LLM_TEXT, response_id=response_id, text="Let me see.")
    return [began(response_id), text, done(response_id, carried=frozenset({"text"}))]


def answer_of(exchange: Exchange) -> str | None:
    return None if exchange.timeline.answer is None else exchange.timeline.answer.response_id


def test_a_tool_call_is_no_answer_and_the_speech_after_it_is() -> None:
    world = World(make_plan()).speak().hear(*tool_call("r1")).after(3_000)
    assert not world.exchanges, "the caller goes on waiting for the answer that is owed"
    world.hear(*reply(300, "r2")).after(400)
    assert (world.last.outcome, world.last.reason) == ("ok", None)
    assert answer_of(world.last) == "r2"


def test_text_alone_is_no_answer_and_the_speech_after_it_is() -> None:
    world = World(make_plan()).speak().hear(*text_alone("r1")).after(1_500).hear(*reply(300, "r2")).after(400)
    assert world.last.outcome == "ok"
    assert answer_of(world.last) == "r2"
    assert world.last.timeline.answer is not None
    assert not world.last.timeline.answer.text, "the words of another response were not said"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (tool_call("r1"), ONLY_A_TOOL_CALL),
        (text_alone("r1"), ONLY_TEXT),
        ([*text_alone("r1"), *tool_call("r2")], ONLY_A_TOOL_CALL),
        ([began("r1"), audio(silence(100), "r1"), done("r1")], NOT_AUDIBLE),
        ([began("r1"), done("r1")], EMPTY),
    ],
)
def test_turn_without_audible_reply_gives_what_came_instead(events: list[VoiceEvent], reason: str) -> None:
    world = World(make_plan(reply_ms=4_000)).speak().hear(*events).after(3_900)
    assert not world.exchanges
    world.after(200)
    assert (world.last.outcome, world.last.reason) == ("no_reply", reason)


def test_first_audible_response_answers_and_both_are_played() -> None:
    world = World(make_plan()).speak()
    world.hear(began("r1"), audio(tone(300), "r1"), done("r1", owes_response=True, carried=frozenset({"tool_call"})))
    world.after(2_500)
    assert not world.exchanges, "the tool call announced another response"
    world.hear(*reply(400, "r2")).after(380)
    assert not world.exchanges, "the second is still playing"
    world.after(40)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r1")


def test_missing_announced_response_leaves_turn_ok_with_note() -> None:
    world = World(make_plan(reply_ms=4_000)).speak()
    world.hear(began("r1"), audio(tone(300), "r1"), done("r1", owes_response=True)).after(4_400)
    assert world.last.outcome == "ok"
    assert "tool call" in (world.last.reason or "")


def test_audio_after_turn_end_is_played_before_next_turn() -> None:
    world = World(make_plan(turns=2)).speak().hear(*reply(100)).after(140)
    assert world.conversation.state is State.THINKING
    world.hear(*reply(2_000, "afterthought")).after(1_960)
    assert len([action for action in world.actions if isinstance(action, Say)]) == 1
    world.after(60)
    assert isinstance(world.actions[-1], Say)


def test_endless_audio_after_turn_end_delays_caller_up_to_limit() -> None:
    plan = make_plan(turns=2)
    world = World(replace(plan, limits=replace(plan.limits, longest_reply_ns=1_500 * MS)))
    world.speak().hear(*reply(100)).after(140).hear(*reply(60_000, "afterthought")).after(1_500)
    assert world.conversation.state is State.SPEAKING


def test_a_superseded_response_without_an_end_of_its_own_is_over() -> None:
    world = World(make_plan()).speak().hear(began("r1")).after(200)
    world.hear(done("r1", SUPERSEDED), *reply(300, "r2")).after(400)
    assert (world.last.outcome, world.last.reason, answer_of(world.last)) == ("ok", None, "r2")


def test_superseded_audible_response_answers_and_newer_is_played() -> None:
    world = World(make_plan()).speak().hear(began("r1"), audio(tone(300), "r1")).after(100)
    world.hear(done("r1", SUPERSEDED), *reply(300, "r2")).after(480)
    assert not world.exchanges
    world.after(60)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r1")
    assert "another response took its place" in (world.last.reason or "")


def test_response_interrupted_and_superseded_is_no_answer() -> None:
    world = World(make_plan()).after(500).speech_starts()
    world.hear(event(EventKind.SPEECH_STARTED)).after(400).hear(event(EventKind.SPEECH_STOPPED))
    world.hear(began("r1"), audio(tone(2_000), "r1")).after(200).hear(event(EventKind.SPEECH_STARTED)).after(400)
    world.speech_ends()
    world.hear(event(EventKind.SPEECH_STOPPED), done("r1", SUPERSEDED), *reply(300, "r2")).after(400)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r2")


def test_a_cancelled_response_is_no_answer_and_the_next_one_is() -> None:
    world = World(make_plan()).speak().hear(began("r1"), audio(tone(200), "r1"), done("r1", "cancelled"))
    world.after(1_000).hear(*reply(300, "r2")).after(400)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r2")


def test_response_announced_after_answer_holds_turn_two_seconds() -> None:
    world = World(make_plan()).speak().hear(*reply(300), began("r2")).after(2_200)
    assert not world.exchanges
    world.after(200)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r1")


def test_turn_ends_two_seconds_after_audio_done_without_end() -> None:
    world = World(make_plan()).speak().hear(*reply(300)[:2], event(EventKind.AUDIO_DONE, response_id="r1"))
    world.after(2_200)
    assert not world.exchanges
    world.after(200)
    assert world.last.outcome == "ok"
    assert "never closed: nothing of it came for 2 s" in (world.last.reason or "")


def test_audio_after_the_end_of_its_response_is_heard_to_its_end() -> None:
    world = World(make_plan()).speak().hear(began("r1"), done("r1")).after(300).hear(audio(tone(300), "r1"))
    world.after(400).hear(audio(tone(300), "r1")).after(2_200)
    assert not world.exchanges
    world.after(300)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r1")
    assert "before it sent any of its audio" in (world.last.reason or "")


def test_audio_without_an_announced_response_is_an_answer() -> None:
    world = World(make_plan()).speak().hear(audio(tone(300), "r1"), done("r1")).after(400)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r1")


@pytest.mark.parametrize(
    ("status", "message", "outcome", "reason"),
    [
        ("incomplete", "max_output_tokens", "ok", "the endpoint cut its reply short (max_output_tokens)"),
        ("incomplete", "content_filter", "ok", "the endpoint cut its reply short (content_filter)"),
        ("failed", "the model is down", "error", "the model is down"),
    ],
)
def test_a_reply_that_broke_off_after_it_was_heard(status: str, message: str, outcome: str, reason: str) -> None:
    world = World(make_plan()).speak().hear(*reply(300)[:2], done("r1", status, message=message)).after(400)
    assert (world.last.outcome, world.last.reason) == (outcome, reason)


@pytest.mark.parametrize("why", ["content_filter", "max_output_tokens", "PROHIBITED_CONTENT"])
def test_a_reply_that_was_cut_short_before_it_was_heard_says_why(why: str) -> None:
    world = World(make_plan()).speak().hear(began("r1"), done("r1", "incomplete", message=why)).after(12_000)
    assert (world.last.outcome, world.last.reason) == ("no_reply", f"{EMPTY}: it was cut short ({why})")
    assert failure_of(world.last) == Failure("no_reply", why)


def test_a_reply_that_the_endpoint_broke_off_says_why() -> None:
    broken = done("r1", "cancelled", message="turn_detected")
    world = World(make_plan()).speak().hear(began("r1"), broken).after(12_000)
    assert world.last.outcome == "interrupted"
    assert world.last.reason == "the endpoint broke off its reply (turn_detected) and gave no other"


def test_reports_next_to_an_answer_become_remarks() -> None:
    failed = event(EventKind.ASR_FAILED, message="audio too noisy (asr_error)")
    guardrail = event(EventKind.SERVICE_REPORT, metadata={"guardrail": "profanity"})
    world = World(make_plan()).speak().hear(failed, guardrail, *reply(300, "r1")).after(400)
    assert (world.last.outcome, world.last.reason) == (
        "ok",
        "the endpoint did not transcribe the question: audio too noisy (asr_error); "
        "a guardrail of the agent was triggered (profanity)",
    )


def test_endpoint_may_retry_after_failure_without_audio() -> None:
    world = World(make_plan()).speak().hear(began("r1"), done("r1", "failed", message="down")).after(1_000)
    world.hear(*reply(300, "r2")).after(400)
    assert (world.last.outcome, answer_of(world.last)) == ("ok", "r2")
    assert world.last.reason == "answered despite an error: down"


@pytest.mark.parametrize(("errors", "others"), [(1, ""), (2, " (and 1 other error)"), (3, " (and 2 other errors)")])
def test_turn_answered_despite_errors_names_the_first(errors: int, others: str) -> None:
    world = World(make_plan()).speak()
    world.hear(*(event(EventKind.ERROR, message=f"error {number}") for number in range(errors)))
    world.hear(*reply(300)).after(400)
    assert (world.last.outcome, world.last.reason) == ("ok", f"answered despite an error: error 0{others}")


def test_an_error_after_which_a_reply_stops_is_an_error() -> None:
    world = World(make_plan(reply_ms=2_000)).speak().hear(*reply(300)[:2])
    world.hear(event(EventKind.ERROR, message="the voice is gone")).after(2_400)
    assert (world.last.outcome, world.last.reason) == ("error", "the voice is gone")


def _endless(longest_ms: int = 5_000) -> CallPlan:
    plan = make_plan(turns=3)
    return replace(plan, limits=replace(plan.limits, longest_reply_ns=longest_ms * MS))


def test_reply_without_end_is_timeout_after_longest_length() -> None:
    world = World(_endless()).speak().hear(began("r1"))
    for _ in range(49):
        world.hear(audio(tone(100), "r1")).after(100)
    assert not world.exchanges
    world.hear(audio(tone(200), "r1")).after(120)
    assert world.last.outcome == "timeout"
    assert world.last.reason == "the reply had not ended 5 s after it began: the caller hung up"
    assert isinstance(world.actions[-1], HangUp)
    assert len(world.exchanges) == 1


def test_a_chain_of_replies_is_bounded_as_one() -> None:
    world = World(_endless()).speak()
    for number in range(20):
        events = reply(300, f"r{number}")
        world.hear(*events[:2], done(f"r{number}", owes_response=True)).after(300)
    assert world.last.outcome == "timeout"
    assert answer_of(world.last) == "r0"


def test_silent_audio_without_an_end_is_a_timeout_of_the_reply() -> None:
    world = World(_endless()).speak().hear(began("r1"))
    for _ in range(101):
        world.hear(audio(silence(100), "r1")).after(100)
    assert world.last.outcome == "timeout"
    assert "was not heard within 10 s" in (world.last.reason or "")


def test_endless_silent_audio_does_not_block_silent_turn() -> None:
    plan = make_plan()
    quiet = replace(plan.turns[0], clip=None, silence_ns=1_000 * MS)
    world = World(replace(plan, turns=(quiet,))).after(600).hear(began("r1"))
    for _ in range(110):
        world.hear(audio(silence(100), "r1")).after(100)
    assert world.last.outcome == "ok"


def test_tool_response_belongs_to_reply_that_was_interrupted() -> None:
    plan = make_plan(turns=2)
    into = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=500 * MS))
    world = World(replace(plan, turns=(plan.turns[0], into))).speak()
    world.hear(began("r1"), audio(tone(2_000), "r1"), done("r1", owes_response=True)).after(420)
    assert isinstance(world.actions[-1], Say)
    world.after(100).speech_starts()
    world.hear(*reply(200, "owed")).after(500).speech_ends().after(3_000).hear(*reply(300, "new")).after(400)
    first, second = world.exchanges
    assert (first.outcome, answer_of(first), set(first.timeline.replies)) == ("ok", "r1", {"r1", "owed"})
    assert (second.outcome, answer_of(second)) == ("ok", "new")


def _interrupting_a_tool_call(turns: int = 2) -> World:
    """A caller who has begun to interrupt a reply that announced another response."""
    plan = make_plan(turns=turns)
    into = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=500 * MS))
    world = World(replace(plan, turns=(plan.turns[0], into, *plan.turns[2:]))).speak()
    return world.hear(began("r1"), audio(tone(2_000), "r1"), done("r1", owes_response=True)).after(520).speech_starts()


def test_response_that_begins_after_speech_answers_new_turn() -> None:
    world = _interrupting_a_tool_call().after(500).speech_ends().hear(*reply(300, "new")).after(2_000)
    first, second = world.exchanges
    assert (answer_of(first), set(first.timeline.replies)) == ("r1", {"r1"})
    assert (second.outcome, answer_of(second)) == ("ok", "new")


def test_response_after_endpoint_closed_turn_answers_that_turn() -> None:
    world = _interrupting_a_tool_call().hear(event(EventKind.SPEECH_STARTED)).after(200)
    world.hear(event(EventKind.SPEECH_STOPPED), *reply(300, "new")).after(500).speech_ends().after(2_000)
    first, second = world.exchanges
    assert set(first.timeline.replies) == {"r1"}
    assert answer_of(second) == "new"


def test_late_announced_response_answers_no_later_turn() -> None:
    world = _interrupting_a_tool_call(turns=3).hear(*reply(200, "owed")[:2]).after(500).speech_ends()
    world.after(3_000).hear(*reply(300, "new")).after(400)
    assert [answer_of(one) for one in world.exchanges] == ["r1", "new"]
    world.speak().hear(audio(tone(300), "owed")).after(100)
    assert world.conversation.state is State.WAITING


def test_unknown_and_duplicate_events_count_on_current_turn() -> None:
    world = World(make_plan(turns=2)).hear(VoiceEvent(EventKind.UNKNOWN, "vendor.hello")).speak()
    world.hear(VoiceEvent(EventKind.UNKNOWN, "vendor.hello"), VoiceEvent(EventKind.UNKNOWN, "vendor.bye"))
    world.hear(*reply(100)[:2], VoiceEvent(EventKind.DUPLICATE, "response.output_audio.delta"))
    world.hear(done("r1", reports_latency=True)).after(140)
    notes = world.last.notes
    assert (notes.unknown_events, notes.unknown_names) == (3, ["vendor.hello", "vendor.bye"])
    assert (notes.duplicate_events, notes.service_latency_reports) == (1, 1)
    world.speak().hear(*reply(100, "r2")).after(140)
    assert world.last.notes.unknown_events == 0


def breath(**changes: Any) -> VoiceEvent:
    return msgspec_replace(audio(silence(100)), **changes)


def awaiting(**options: Any) -> World:
    """A caller who waits for a reply of which silence has come."""
    world = World(make_plan(**options)).speak().after(300).hear(breath())
    assert world.conversation.state is State.WAITING
    return world


def test_silence_before_reply_changes_only_its_length() -> None:
    world = awaiting().after(20)
    deadline = world.conversation.deadline_perf_ns
    world.hear(breath(item_id="i2"))
    exchange = world.conversation.exchange
    assert exchange is not None
    (heard,) = exchange.timeline.replies.values()
    assert heard.playback is not None
    assert (heard.item_id, heard.playback.audio_ns, heard.playback.last_arrival_perf_ns) == ("i2", 200 * MS, world.now)
    assert (world.conversation.deadline_perf_ns, world.playout.playing_until_perf_ns) == (
        deadline,
        world.now + 180 * MS,
    )
    world.after(20).hear(audio(tone(200)))
    assert world.conversation.deadline_perf_ns == pytest.approx(world.now + 160 * MS, abs=MS), "when it is heard"


@pytest.mark.parametrize("changes", [{"metadata": {"voice.cohort": "b"}}, {"service_ns": {"tts": 5}}])
def test_report_in_silent_chunk_is_kept(changes: dict[str, Any]) -> None:
    world = awaiting().after(20).hear(breath(**changes))
    exchange = world.conversation.exchange
    assert exchange is not None
    (heard,) = exchange.timeline.replies.values()
    assert {**heard.metadata, **exchange.service.latencies_ns} == {
        **changes.get("metadata", {}),
        **changes.get("service_ns", {}),
    }


def test_silence_after_deadline_does_not_extend_patience() -> None:
    world = awaiting(patience_ms=400)
    late = world.conversation.deadline_perf_ns
    world.do(world.conversation.on_event(breath(), late))
    assert world.last.outcome == "abandoned"


def test_more_of_a_reply_that_had_failed_opens_it_again() -> None:
    world = awaiting().hear(done("r1", "failed"))
    deadline = world.conversation.deadline_perf_ns
    world.hear(breath())
    assert world.conversation.deadline_perf_ns > deadline + 5_000 * MS, "the wait for a second attempt is shorter"


SILENT = WireTraits(closes_replies=False, closes_questions=False)
CLEAR = event(EventKind.CLEAR)


def mark(name: str = "m1") -> VoiceEvent:
    return event(EventKind.MARK, text=name)


def piece(ms: int = 200) -> VoiceEvent:
    return audio(tone(ms), None)


def played(world: World) -> list[str]:
    return [action.mark for action in world.actions if isinstance(action, Played)]


def quiet(*turns: dict[str, Any]) -> World:
    base = make_plan()
    return World(
        replace(base, turns=tuple(replace(base.turns[0], **changes) for changes in turns or ({},))), wire=SILENT
    )


def turn(world: World) -> Turn:
    return build_turn(world.last, CALL, OPTIONS)


def test_mark_is_answered_once_audio_before_it_has_played() -> None:
    world = quiet().speak().hear(piece(500), mark()).after(480)
    assert played(world) == []
    assert world.conversation.deadline_perf_ns == world.now + 20 * MS
    assert played(world.after(20)) == ["m1"]
    assert played(world.after(5_000)) == ["m1"], "once"


def test_audio_that_comes_after_a_mark_does_not_delay_it() -> None:
    world = quiet().speak().hear(piece(200), mark("a"), piece(200), mark("b"), piece(400))
    assert played(world.after(200)) == ["a"]
    assert played(world.after(180)) == ["a"]
    assert played(world.after(20)) == ["a", "b"]


def test_a_mark_with_nothing_before_it_is_answered_at_once() -> None:
    assert played(quiet().hear(mark())) == ["m1"]
    assert played(quiet().speak().hear(piece(100)).after(400).hear(mark())) == ["m1"]


def test_a_mark_behind_a_queue_waits_for_all_of_it() -> None:
    world = World(make_plan()).speak().hear(audio(tone(300), "a"), audio(tone(300), "b"), mark())
    assert played(world.after(580)) == []
    assert played(world.after(20)) == ["m1"]


@pytest.mark.parametrize("ms", [400, 900])
def test_greeting_marks_are_answered_while_caller_thinks_or_asks(ms: int) -> None:
    world = quiet().hear(piece(300), mark())
    assert played(world.after(ms)) == ["m1"]


def test_a_mark_is_answered_while_the_caller_speaks() -> None:
    world = quiet().after(500).speech_starts().hear(piece(300), mark())
    assert world.conversation.state is State.SPEAKING
    assert played(world.after(300)) == ["m1"]


def test_a_clear_answers_all_pending_marks_at_once() -> None:
    world = quiet().speak().hear(piece(400), mark("a"), piece(400), mark("b")).after(100).hear(CLEAR)
    assert played(world) == ["a", "b"]
    assert played(world.after(3_000)) == ["a", "b"]


def test_audio_left_unplayed_by_stop_is_not_awaited() -> None:
    world = quiet().speak().hear(piece(2_000), mark()).after(300).hear(event(EventKind.SPEECH_STARTED))
    assert played(world.after(20)) == ["m1"]


def test_a_clear_with_nothing_playing_is_nothing() -> None:
    plain, cleared = quiet({}, {}).speak(), quiet({}, {}).hear(CLEAR).after(500)
    cleared.speech_starts().hear(CLEAR).after(500).hear(CLEAR).after(500).speech_ends().hear(CLEAR)
    for world in (plain, cleared):
        world.after(300).hear(piece(300)).after(1_400)
        assert (world.last.outcome, world.last.reason) == ("ok", None)
    one, other = turn(plain), turn(cleared)
    assert one.first_audio_perf_ns is not None
    assert other.first_audio_perf_ns is not None
    assert one.first_audio_perf_ns - (one.speech_end_perf_ns or 0) == 300 * MS
    assert other.first_audio_perf_ns - (other.speech_end_perf_ns or 0) == 300 * MS
    assert not [action for action in cleared.actions if isinstance(action, Interrupt)]


def test_a_clear_stops_the_reply_that_the_caller_interrupts() -> None:
    world = quiet({}, {"barge_in": ReplyPoint(after_ns=500 * MS)}).speak()
    world.hear(piece(3_000)).after(500).speech_starts().after(240).hear(CLEAR)
    assert world.conversation.deadline_perf_ns > world.now
    world.after(600).speech_ends().after(300)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    record = turn(world)
    assert record.barge_in_stop_ns == 240 * MS
    assert (record.outcome, record.barge_in_recovered, record.first_audio_perf_ns) == ("ok", True, answered)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "ok"]


@pytest.mark.parametrize("spoken_ms", [300, 1_400])
def test_clear_during_speech_cancels_answer_that_came_early(spoken_ms: int) -> None:
    world = quiet().after(500).speech_starts().after(200).hear(piece(1_000)).after(spoken_ms).hear(CLEAR)
    world.after(200).speech_ends().after(300)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)


def test_cleared_reply_without_replacement_is_interrupted() -> None:
    world = quiet().speak().hear(piece(3_000)).after(500).hear(CLEAR).after(12_000)
    assert (world.last.outcome, world.last.reason) == (
        "interrupted",
        "the endpoint broke off its reply and gave no other",
    )


def test_clear_after_whole_reply_was_played_removes_nothing() -> None:
    world = quiet().speak().hear(piece(300)).after(500).hear(CLEAR)
    assert (world.last.outcome, world.last.reason) == ("ok", None)
    assert turn(world).reply_audio_ns == 300 * MS


def test_audio_after_clear_is_another_reply() -> None:
    world = quiet().speak().hear(piece(3_000)).after(500).hear(CLEAR).after(200)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)


def test_cleared_reply_is_closed_by_its_event_on_wire_with_ends() -> None:
    world = World(make_plan()).speak().hear(audio(tone(2_000))).after(300).hear(CLEAR)
    assert not world.exchanges
    world.hear(audio(tone(500), "r2"), event(EventKind.RESPONSE_DONE, response_id="r1", status="completed"))
    world.hear(event(EventKind.RESPONSE_DONE, response_id="r2", status="completed")).after(600)
    answer = world.last.timeline.answer
    assert answer is not None
    assert answer.response_id == "r2"


def test_a_clear_stops_a_greeting() -> None:
    world = quiet().hear(piece(5_000)).after(300).hear(CLEAR)
    assert world.playout.playing_until_perf_ns == world.now
