"""Marks are answered when what came before them has been played, and CLEAR stops what plays and answers them all."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.conversation.exchange import Interrupt, Played
from loadtest.conversation.plan import ReplyPoint
from loadtest.conversation.record import build_turn
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, tone

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
    return World(replace(base, turns=tuple(replace(base.turns[0], **each) for each in turns or ({},))), wire=SILENT)


def turn(world: World) -> Turn:
    return build_turn(world.last, CALL, OPTIONS)


def test_a_mark_is_answered_when_the_audio_before_it_has_been_played() -> None:
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
def test_marks_of_a_greeting_are_answered_while_the_caller_thinks_and_speaks(ms: int) -> None:
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


def test_what_a_stop_leaves_unplayed_is_not_waited_for() -> None:
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
    world.hear(piece(3_000)).after(500).speech_starts()
    world.after(240).hear(CLEAR)
    assert world.conversation.deadline_perf_ns > world.now
    world.after(600).speech_ends().after(300)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    found = turn(world)
    assert found.barge_in_stop_ns == 240 * MS
    assert (found.outcome, found.barge_in_recovered, found.first_audio_perf_ns) == ("ok", True, answered)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "ok"]


@pytest.mark.parametrize("spoken_ms", [300, 1_400])
def test_a_clear_while_the_caller_goes_on_speaking_cancels_an_answer_that_came_too_early(spoken_ms: int) -> None:
    world = quiet().after(500).speech_starts().after(200).hear(piece(1_000)).after(spoken_ms).hear(CLEAR)
    world.after(200).speech_ends().after(300)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)


def test_a_reply_that_is_cleared_and_replaced_by_none_was_interrupted_by_the_endpoint() -> None:
    world = quiet().speak().hear(piece(3_000)).after(500).hear(CLEAR).after(12_000)
    assert (world.last.outcome, world.last.reason) == (
        "interrupted",
        "the endpoint broke off its reply and gave no other",
    )


def test_a_clear_after_the_whole_reply_was_heard_takes_nothing_from_it() -> None:
    world = quiet().speak().hear(piece(300)).after(500).hear(CLEAR)
    assert (world.last.outcome, world.last.reason) == ("ok", None)
    assert turn(world).reply_audio_ns == 300 * MS


def test_what_comes_after_a_clear_is_another_reply() -> None:
    world = quiet().speak().hear(piece(3_000)).after(500).hear(CLEAR).after(200)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)


def test_on_a_wire_that_closes_replies_a_cleared_one_is_closed_by_its_event() -> None:
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
