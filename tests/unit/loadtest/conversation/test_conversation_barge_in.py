"""Callers who speak into a reply or keep silent, and the interrupted exchange: driven by hand, with its record."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loadtest.conversation.conversation import REPLY_WAS_OVER
from loadtest.conversation.exchange import EndTurn, Exchange, Interrupt, Say, SpokenBackchannel
from loadtest.conversation.plan import Backchannel, CallPlan, PlannedTurn, ReplyPoint
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.record import (
    BY_THE_CALLER,
    CANNOT_TELL,
    ENDED_BY_ITSELF,
    NEVER_STOPPED,
    NOT_SPOKEN,
    SILENT_BY_THEN,
    STILL_PLAYING,
    behavior,
)
from loadtest.conversation.state import State
from loadtest.conversation.timeline import Timeline
from loadtest.conversation.waiting import InterruptedExchange, SpeechIntoReply, speech_into_reply
from loadtest.conversation.wire import EVERY_EVENT, WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_clip, make_plan, reply, silence, tone

LEAD_MS = 100  # of every clip here
MHM = make_clip(speech_ms=200, text="mhm")


def plan(*changes: dict[str, Any], **options: Any) -> CallPlan:
    base = make_plan(**options)
    return replace(base, turns=tuple(replace(base.turns[0], **change) for change in changes))


def after(ms: int) -> dict[str, Any]:
    return {"barge_in": ReplyPoint(after_ns=ms * MS)}


class Caller(World):
    """A world whose caller sends the clip of each `Say`, with its lead before the first speech sample."""

    def say(self) -> "Caller":
        """The clip that was begun last: up to its first speech sample."""
        assert isinstance(self.actions[-1], Say), self.actions
        return self.after(LEAD_MS).speech_starts()

    def end(self, ms: float = 500) -> "Caller":
        """The last speech sample, which the endpoint takes note of where it had heard the caller begin."""
        self.after(ms).speech_ends()
        exchange = self.conversation.exchange
        if exchange is not None and exchange.timeline.heard_open and exchange.backchannel is None:
            self.hear(event(EventKind.SPEECH_STOPPED))
        return self

    def asked(self, *events: VoiceEvent) -> "Caller":
        """The first question, and what came of the reply at once."""
        return self.speak().after(200).hear(*events)

    def interrupted(self, ms: float) -> "Caller":
        """Until the caller has begun to interrupt, so long after the reply became audible."""
        return self.after(ms - LEAD_MS).say()

    def actions_of(self, kind: type[Any]) -> list[Any]:
        return [action for action in self.actions if isinstance(action, kind)]


def begun(ms: int, response_id: str | None = "r1") -> list[VoiceEvent]:
    """A reply that is still being sent."""
    return [event(EventKind.RESPONSE_STARTED, response_id=response_id), named(audio(tone(ms)), response_id)]


def named(one: VoiceEvent, response_id: str | None) -> VoiceEvent:
    return msgspec.structs.replace(one, response_id=response_id)


def done(response_id: str | None = "r1", status: str = "completed") -> VoiceEvent:
    return event(EventKind.RESPONSE_DONE, response_id=response_id, status=status)


def stop_ms(exchange: Exchange) -> float | None:
    value = behavior(exchange).keywords.get("barge_in_stop_ns")
    return None if value is None else value / MS


def end_of(exchange: Exchange) -> tuple[str, float | None, str | None]:
    """Return the end of the reply that a turn interrupted, when it was stopped, ms, and the reason for none."""
    fields = behavior(exchange).keywords
    return fields["barge_in_end"], stop_ms(exchange), fields["barge_in_reason"]


def test_caller_interrupts_at_planned_point_and_endpoint_stops() -> None:
    world = Caller(plan({}, after(1_200))).asked(*begun(4_000)).interrupted(1_200)
    assert not world.exchanges, "the reply still plays"
    world.after(260).hear(event(EventKind.SPEECH_STARTED, item_id="u2"))
    assert world.actions_of(Interrupt) == [Interrupt(1_460)]
    world.hear(done(status="cancelled")).end().after(300)
    world.hear(*reply(300, "r2")).after(400)
    first, second = world.exchanges
    assert [(one.index, one.outcome) for one in (first, second)] == [(0, "ok"), (1, "ok")]
    assert first.reply_interrupted
    assert first.timeline.first_audio_perf_ns is not None, "it was answered in time and stays in the figures"
    fields = behavior(second).keywords
    assert fields["turn_kind"] == "barge_in"
    assert fields["barge_in_at_ns"] / MS == pytest.approx(1_200, abs=20)
    assert fields["barge_in_end"] == "stopped"
    assert fields["barge_in_stop_ns"] / MS == pytest.approx(260, abs=1)
    assert fields["barge_in_recovered"] is True
    assert fields["talk_over_ns"] == fields["barge_in_stop_ns"]
    assert fields["barge_in_reason"] is None
    assert behavior(first).keywords["talk_over_ns"] == 0
    assert behavior(first).keywords.get("barge_in_stop_ns") is None


def test_canceled_response_stops_playback_and_reports_played_ms() -> None:
    world = Caller(plan({}, after(1_000))).asked(*begun(4_000)).interrupted(1_000).after(100)
    world.hear(done(status="cancelled"), event(EventKind.SPEECH_STARTED))
    assert world.actions_of(Interrupt) == [Interrupt(1_100)], "once, whichever of the two comes first"
    world.end().hear(*reply(200, "r2")).after(300)
    assert stop_ms(world.last) == pytest.approx(100, abs=1)


@pytest.mark.parametrize("sent", [begun(1_300), reply(1_300)], ids=["never closed", "complete"])
def test_reply_that_ended_during_interruption_was_not_stopped(sent: list[VoiceEvent]) -> None:
    world = Caller(plan({}, after(1_000))).asked(*sent).interrupted(1_000).end()
    world.after(200).hear(*reply(200, "r2")).after(300)
    assert end_of(world.last) == ("ended_by_itself", None, ENDED_BY_ITSELF)
    assert world.last.outcome == "ok"
    assert not world.actions_of(Interrupt)


def test_endpoint_that_plays_past_caller_speech_never_stopped() -> None:
    world = Caller(plan({}, after(500))).asked(*reply(2_000)).interrupted(500).end()
    world.after(200).hear(*reply(300, "r2")).after(2_000)
    assert end_of(world.last) == ("never_stopped", None, NEVER_STOPPED)
    assert world.last.outcome == "ok", "queued behind the old reply, the answer was heard"


def heard_speech(world: Caller, ms: float = 200) -> Caller:
    """The endpoint hears the caller's interruption, whereupon the client plays no more of the reply."""
    return world.after(ms).hear(event(EventKind.SPEECH_STARTED, item_id="u2"))


ASKS = WireTraits(speech_stops_replies=True)  # as OpenAI Realtime has it
SILENT_WIRE = WireTraits(shows_cuts=False)


@pytest.mark.parametrize(("wire", "end"), [(EVERY_EVENT, "never_stopped"), (ASKS, "stopped")])
def test_locally_dropped_audio_is_stop_only_if_endpoint_asked(wire: WireTraits, end: str) -> None:
    world = Caller(plan({}, after(500)), wire=wire).asked(*reply(4_000)).interrupted(500)
    heard_speech(world).end().hear(*reply(200, "r2")).after(300)
    assert end_of(world.last)[:2] == (end, pytest.approx(200, abs=1) if end == "stopped" else None)
    assert world.last.outcome == "ok"


def test_endpoint_that_sends_on_after_speech_start_never_stops() -> None:
    world = Caller(plan({}, after(500)), wire=ASKS).asked(*begun(900)).interrupted(500)
    heard_speech(world)
    for _ in range(20):
        world.after(100).hear(audio(tone(100)))
    world.hear(done()).end().hear(*reply(200, "r2")).after(300)
    assert end_of(world.last) == ("never_stopped", None, NEVER_STOPPED)


def test_clear_is_stop_even_if_client_stopped_before() -> None:
    world = Caller(plan({}, after(500))).asked(*reply(4_000)).interrupted(500)
    heard_speech(world).after(20).hear(event(EventKind.CLEAR)).end().hear(*reply(200, "r2")).after(300)
    assert end_of(world.last) == ("stopped", pytest.approx(200, abs=1), None)


def test_clear_long_after_reply_end_is_no_stop() -> None:
    """Many agents on a telephone line clear at the beginning of each of the caller's turns."""
    silent_end = WireTraits(closes_replies=False)
    world = Caller(plan({}, after(500)), wire=silent_end).asked(audio(tone(600), None)).interrupted(500)
    world.after(450).hear(event(EventKind.CLEAR)).end(100).hear(audio(tone(200), None)).after(1_500)
    assert end_of(world.exchanges[1])[0] == "ended_by_itself"
    stopped = Caller(plan({}, after(500)), wire=silent_end).asked(audio(tone(700), None)).interrupted(500)
    stopped.after(250).hear(event(EventKind.CLEAR)).end(100).hear(audio(tone(200), None)).after(1_500)
    assert end_of(stopped.exchanges[1])[:2] == ("stopped", pytest.approx(200, abs=1))


def words(count: int) -> VoiceEvent:
    return event(EventKind.LLM_TEXT, response_id="r1", text="and so on " * count)


@pytest.mark.parametrize(
    ("text", "tail_ms", "end"), [(20, 0, "stopped"), (2, 0, "ended_by_itself"), (20, 200, "ended_by_itself")]
)
def test_audio_cut_in_sound_while_text_goes_on_was_stopped(text: int, tail_ms: int, end: str) -> None:
    world = Caller(plan({}, after(500)), wire=SILENT_WIRE)
    world.asked(*begun(800), audio(silence(tail_ms))).interrupted(500).after(100).hear(words(text), done()).end()
    world.hear(*reply(200, "r2")).after(300)
    assert end_of(world.last)[0] == end


def test_wire_without_cut_or_text_leaves_reply_end_unclear() -> None:
    world = Caller(plan({}, after(500)), wire=SILENT_WIRE).asked(*reply(800)).interrupted(500).end()
    world.hear(*reply(200, "r2")).after(300)
    assert end_of(world.last) == ("cannot_tell", None, CANNOT_TELL)


def test_client_stop_at_backchannel_is_no_stop_by_endpoint() -> None:
    world = Caller(plan(backchannel(500))).asked(*reply(4_000)).interrupted(500).after(100)
    world.hear(event(EventKind.SPEECH_STARTED, item_id="mhm")).end(100)
    world.hear(event(EventKind.SPEECH_STOPPED, item_id="mhm")).after(4_000)
    assert behavior(world.last).keywords["backchannel_stopped"] is False


def test_a_reply_that_still_plays_when_the_turn_ends_has_no_stop() -> None:
    world = Caller(plan({}, after(500), reply_ms=2_000)).asked(*reply(9_000)).interrupted(500).end().after(2_200)
    first, second = world.exchanges
    assert first.outcome == "ok"
    assert second.outcome == "no_reply"
    fields = behavior(second).keywords
    assert fields.get("barge_in_stop_ns") is None
    assert (fields["barge_in_end"], fields["barge_in_reason"]) == ("never_stopped", STILL_PLAYING)
    assert fields["barge_in_recovered"] is False


def test_recovery_fails_where_the_interruption_gets_no_answer() -> None:
    world = Caller(plan({}, after(500), reply_ms=2_000)).asked(*begun(4_000)).interrupted(500).after(200)
    world.hear(event(EventKind.SPEECH_STARTED), done(status="cancelled")).end().after(2_100)
    assert [one.outcome for one in world.exchanges] == ["ok", "no_reply"]
    fields = behavior(world.last).keywords
    assert fields["barge_in_stop_ns"] / MS == pytest.approx(200, abs=1)
    assert fields["barge_in_recovered"] is False


def test_old_audio_in_flight_answers_nothing_and_is_not_heard() -> None:
    world = Caller(plan({}, after(500), reply_ms=2_000)).asked(*begun(4_000)).interrupted(500).after(200)
    world.hear(event(EventKind.SPEECH_STARTED)).hear(audio(tone(800)), done(status="cancelled"), audio(tone(800)))
    world.end().hear(audio(tone(800))).after(2_100)
    assert world.last.outcome == "no_reply"
    assert stop_ms(world.last) == pytest.approx(200, abs=1)
    assert world.playout.playing_until_perf_ns < world.now


def test_old_audio_stays_unplayed_after_interrupting_turn() -> None:
    world = Caller(plan({}, after(500), {})).asked(*begun(4_000)).interrupted(500).after(200)
    world.hear(event(EventKind.SPEECH_STARTED), done(status="cancelled")).end().hear(*reply(100, "r2")).after(200)
    assert world.conversation.state is State.THINKING
    world.hear(audio(tone(5_000)))
    assert world.playout.playing_until_perf_ns < world.now


def test_late_transcript_of_interrupted_question_is_its_own() -> None:
    world = Caller(plan({}, after(500))).after(500).speech_starts()
    world.hear(event(EventKind.SPEECH_STARTED, item_id="u1")).after(1_000)
    world.speech_ends()
    world.hear(event(EventKind.SPEECH_STOPPED, item_id="u1"), *begun(4_000))
    assert world.conversation.state is State.HEARING
    world.after(400).say().hear(event(EventKind.SPEECH_STARTED, item_id="u2"))
    world.hear(
        event(EventKind.ASR_FINAL, item_id="u1", text="one"), event(EventKind.ASR_PARTIAL, item_id="u2", text="t")
    )
    world.hear(done(status="cancelled")).end().hear(event(EventKind.ASR_FINAL, item_id="u2", text="two"))
    world.hear(*reply(100, "r2")).after(200)
    assert [[text for _, text, _ in one.timeline.finals] for one in world.exchanges] == [["one"], ["two"]]


def test_barge_in_point_after_reply_end_becomes_question() -> None:
    world = Caller(plan({}, after(3_000))).asked(*reply(800)).after(900)
    assert len(world.exchanges) == 1
    assert not world.exchanges[0].reply_interrupted
    world.after(480).say().end().hear(*reply(100, "r2")).after(200)
    fields = behavior(world.last).keywords
    assert (fields["turn_kind"], fields["barge_in_reason"]) == ("question", REPLY_WAS_OVER)
    assert fields.get("barge_in_stop_ns") is None
    assert fields.get("barge_in_recovered") is None


def test_silence_is_no_interruption_only_speech_is() -> None:
    """The clip has begun and its lead-in is silence: a reply that ends in it was not interrupted."""
    world = Caller(plan({}, after(500))).asked(*begun(430)).after(400)
    assert isinstance(world.actions[-1], Say)
    world.say().hear(done()).end().hear(*reply(100, "r2")).after(200)
    fields = behavior(world.last).keywords
    assert fields["barge_in_reason"] == SILENT_BY_THEN
    assert fields.get("barge_in_stop_ns") is None
    assert world.last.outcome == "ok"


def test_call_dropped_before_first_speech_was_not_interrupted() -> None:
    world = Caller(plan({}, after(500))).asked(*begun(4_000)).after(420)
    world.lose("dropped")
    assert [one.outcome for one in world.exchanges] == ["ok", "error"]
    assert behavior(world.last).keywords["barge_in_reason"] == NOT_SPOKEN


def test_two_interruptions_in_a_row() -> None:
    world = Caller(plan({}, after(500), after(700))).asked(*begun(4_000)).interrupted(500).after(200)
    world.hear(event(EventKind.SPEECH_STARTED), done(status="cancelled")).end().after(100)
    world.hear(*begun(4_000, "r2")).interrupted(700).after(150)
    world.hear(event(EventKind.SPEECH_STARTED), done("r2", "cancelled")).end().after(100).hear(*reply(100, "r3"))
    world.after(200)
    assert [(one.index, one.outcome, one.reply_interrupted) for one in world.exchanges] == [
        (0, "ok", True),
        (1, "ok", True),
        (2, "ok", False),
    ]
    assert [stop_ms(one) for one in world.exchanges] == [None, pytest.approx(200, abs=1), pytest.approx(150, abs=1)]
    assert behavior(world.exchanges[1]).keywords["barge_in_recovered"] is True


def test_a_share_of_the_reply_is_met_once_its_length_is_known() -> None:
    world = Caller(plan({}, {"barge_in": ReplyPoint(share=0.5)})).asked(*begun(4_000)).after(1_000)
    world.hear(done()).after(900)
    assert isinstance(world.actions[-1], Say), "half of 4 s, less the lead of the clip"
    world.say().end()
    world.hear(*reply(100, "r2")).after(2_100)
    assert behavior(world.last).keywords["barge_in_at_ns"] / MS == pytest.approx(2_000, abs=20)
    assert behavior(world.exchanges[0]).keywords["cut_short"] is True


def test_manual_turn_interrupts_reply_without_stop_time() -> None:
    world = Caller(plan({}, after(500), manual=True)).asked(*begun(4_000)).interrupted(500)
    assert world.actions_of(Interrupt) == [Interrupt(500)]
    world.end()
    assert world.actions_of(EndTurn) == [EndTurn(), EndTurn()]
    world.hear(done(status="cancelled"), *reply(100, "r2")).after(200)
    fields = behavior(world.last).keywords
    assert fields["barge_in_reason"] == BY_THE_CALLER
    assert fields.get("barge_in_stop_ns") is None
    assert fields["barge_in_recovered"] is True


@pytest.mark.parametrize("pieces", [[tone(430)], [tone(400), silence(300), tone(1_000)]], ids=["starved", "pause"])
def test_gap_in_reply_is_not_its_end_with_manual_turns(pieces: list[bytes]) -> None:
    world = Caller(plan({}, after(500), manual=True)).asked(*begun(0)).hear(*(audio(piece) for piece in pieces))
    world.interrupted(500)
    assert world.actions_of(Interrupt) == [Interrupt(430 if len(pieces) == 1 else 500)]
    world.hear(audio(tone(700)))
    world.end().hear(done(status="cancelled"), *reply(100, "r2")).after(200)
    fields = behavior(world.last).keywords
    assert fields["barge_in_reason"] == BY_THE_CALLER
    assert fields["barge_in_recovered"] is True
    assert fields["talk_over_ns"] == 0, "what came after the stop was not heard"


def test_silent_rest_of_reply_is_no_barge_in_with_manual_turns() -> None:
    world = Caller(plan({}, after(500), manual=True)).asked(*begun(430)).after(400)
    world.hear(audio(silence(900)), done()).say()
    assert world.actions_of(Interrupt) == [Interrupt(500)], "what is queued would still play"
    world.end().hear(*reply(100, "r2")).after(200)
    assert behavior(world.last).keywords["barge_in_reason"] == SILENT_BY_THEN


def test_reply_out_of_audio_at_speech_start_plays_no_further() -> None:
    world = Caller(plan({}, after(300))).asked(*begun(430)).interrupted(300).after(200)
    world.hear(event(EventKind.SPEECH_STARTED), audio(tone(400)), done(status="cancelled")).end()
    assert world.actions_of(Interrupt) == [Interrupt(430)]
    world.hear(*reply(100, "r2")).after(200)
    assert stop_ms(world.last) == pytest.approx(130, abs=1)


def test_replies_without_ids_are_distinguished_by_boundaries() -> None:
    world = Caller(plan({}, after(500), reply_ms=3_000)).asked(*begun(2_000, None)).interrupted(500).after(200)
    world.hear(event(EventKind.SPEECH_STARTED)).hear(named(audio(tone(400)), None)).end()
    assert world.conversation.state is State.WAITING, "in flight: still the old reply"
    world.hear(done(None, "cancelled"), *begun(300, None), done(None)).after(400)
    assert [one.outcome for one in world.exchanges] == ["ok", "ok"]
    assert stop_ms(world.last) == pytest.approx(200, abs=1)
    assert world.last.timeline.answer is not None
    assert world.last.timeline.answer.id_on_the_wire is None


def test_end_of_turn_ends_old_reply_without_ids_and_boundaries() -> None:
    bare = [named(audio(tone(2_000)), None)]
    world = Caller(plan({}, after(500), reply_ms=2_000)).asked(*bare).interrupted(500).after(200)
    world.hear(event(EventKind.SPEECH_STARTED)).end().hear(
        event(EventKind.SPEECH_STOPPED), named(audio(tone(300)), None)
    )
    world.after(100)
    assert world.conversation.state is State.HEARING


def test_later_questions_on_a_wire_without_ids_are_answered_too() -> None:
    world = World(make_plan(turns=2)).speak().hear(*[named(one, None) for one in reply(100)]).after(140)
    world.speak().hear(*[named(one, None) for one in reply(100)]).after(140)
    assert [one.outcome for one in world.exchanges] == ["ok", "ok"]


def test_patience_counts_from_end_of_old_reply() -> None:
    impatient = {**after(500), "patience_ns": 1_000 * MS}
    world = Caller(plan({}, impatient)).asked(*reply(3_000)).interrupted(500).end()
    world.after(2_900)  # the old reply ends 2 s after the caller fell silent
    assert len(world.exchanges) == 1
    world.after(200)
    assert world.last.outcome == "abandoned"


def test_wind_down_interrupts_no_reply() -> None:
    world = Caller(plan({}, after(500))).asked(*reply(1_000))
    world.conversation.wind_down()
    world.after(1_100)
    assert [one.reply_interrupted for one in world.exchanges] == [False]


def backchannel(at_ms: int) -> dict[str, Any]:
    return {"backchannel": Backchannel(MHM, ReplyPoint(after_ns=at_ms * MS))}


def test_agent_that_continues_at_backchannel_keeps_its_turn() -> None:
    world = Caller(plan(backchannel(500))).asked(*reply(2_000))
    asked_at = world.conversation.exchange.timeline.speech_start_perf_ns if world.conversation.exchange else None
    world.interrupted(500).end(200).after(1_400)
    assert world.last.outcome == "ok"
    assert world.last.timeline.speech_start_perf_ns == asked_at
    fields = behavior(world.last).keywords
    assert (fields["turn_kind"], fields["backchannel_stopped"]) == ("question", False)
    assert fields["talk_over_ns"] / MS == pytest.approx(200, abs=1)


def test_agent_that_stops_at_backchannel_still_answers_turn() -> None:
    world = Caller(plan(backchannel(500))).asked(*begun(4_000)).interrupted(500).after(100)
    world.hear(event(EventKind.SPEECH_STARTED, item_id="mhm"), done(status="cancelled")).end(100)
    world.hear(event(EventKind.SPEECH_STOPPED, item_id="mhm"), event(EventKind.ASR_FINAL, item_id="mhm", text="mhm"))
    assert not world.exchanges, "an answer to it may follow"
    world.hear(*reply(300, "r2")).after(400)
    assert world.last.outcome == "ok"
    assert behavior(world.last).keywords["backchannel_stopped"] is True
    assert not world.last.timeline.finals, "what it heard in the backchannel is no transcript of the question"
    assert world.last.timeline.answer is world.last.timeline.replies["r1"]


def test_backchannel_longer_than_reply_is_spoken_to_its_end() -> None:
    world = Caller(plan(backchannel(900), {})).asked(*reply(1_000)).interrupted(900).after(180)
    assert not world.exchanges
    world.end(20)
    world.after(40)
    assert world.last.outcome == "ok"


def silent(ms: int = 3_000) -> dict[str, Any]:
    return {"clip": None, "silence_ns": ms * MS, "patience_ns": None}


def test_silent_turn_without_prompt_ends_after_its_silence() -> None:
    world = Caller(plan(silent(), {})).after(500).after(2_980)
    assert not world.exchanges
    world.after(40)
    fields = behavior(world.last).keywords
    assert world.last.outcome == "ok"
    assert (fields["turn_kind"], fields["reprompted"], fields["silence_ns"]) == ("silence", False, 3_000 * MS)
    world.speak().hear(*reply(100)).after(200)
    assert [one.outcome for one in world.exchanges] == ["ok", "ok"]


def test_a_silent_caller_hears_the_endpoint_ask_again() -> None:
    world = Caller(plan(silent(), {})).after(1_500).hear(*begun(600)).after(300)
    assert world.conversation.state is State.HEARING
    world.hear(done()).after(400)
    assert world.last.outcome == "ok"
    assert behavior(world.last).keywords["reprompted"] is True


def test_a_call_that_drops_in_the_silence_is_an_error() -> None:
    world = Caller(plan(silent())).after(1_000).lose("dropped")
    assert world.last.outcome == "error"


def test_a_reply_that_the_endpoint_fails_is_not_broken_into() -> None:
    world = Caller(plan({}, after(1_000))).asked(*begun(2_000), done(status="failed")).after(2_100)
    assert [one.outcome for one in world.exchanges] == ["error"]


def test_stop_in_pause_of_reply_counts_to_last_audible_sample() -> None:
    spoken = [*begun(800), audio(silence(1_000)), audio(tone(2_000))]
    world = Caller(plan({}, after(500))).asked(*spoken).interrupted(500).after(900)
    world.hear(event(EventKind.SPEECH_STARTED), done(status="cancelled")).end().hear(*reply(100, "r2")).after(200)
    assert stop_ms(world.last) == pytest.approx(300, abs=1)


def test_a_point_is_a_time_or_a_share() -> None:
    with pytest.raises(ValueError, match="a time or a share"):
        ReplyPoint()
    with pytest.raises(ValueError, match="a time or a share"):
        ReplyPoint(1, 0.5)
    assert PlannedTurn(None, 0, None).clip is None


NOW = 1_000_000 * MS
TURN = make_plan().turns[0]
LONG = make_clip()
FOLLOWING = replace(TURN, clip=LONG, barge_in=ReplyPoint(after_ns=800 * MS))


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


def test_backchannel_comes_once_and_before_interrupting_turn() -> None:
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
def test_turn_without_barge_in_gives_no_speech_into_reply(exchange: Exchange, following: PlannedTurn | None) -> None:
    assert speech_into_reply(exchange, following) is None


def test_interrupted_exchange_is_returned_once_after_reply_ends() -> None:
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


def test_interrupted_exchange_can_be_ended_while_reply_plays() -> None:
    exchange = answered()
    interrupted = InterruptedExchange(exchange)
    assert interrupted.finish(NOW + 5) == [exchange]
    assert exchange.ended_perf_ns == NOW + 5


@pytest.mark.parametrize("is_open", [True, False])
def test_an_interrupted_exchange_owns_its_reply_and_no_other(is_open: bool) -> None:
    interrupted = InterruptedExchange(answered())
    assert interrupted.owns(audio(tone(20), "r1"), question_is_open=is_open)
    assert not interrupted.owns(audio(tone(20), "r2"), question_is_open=is_open)
    assert not interrupted.owns(event(EventKind.RESPONSE_STARTED, response_id="r2"), question_is_open=is_open)


@pytest.mark.parametrize("is_open", [True, False])
def test_interrupted_exchange_owns_response_its_tool_announced(is_open: bool) -> None:
    exchange = answered()
    interrupted = InterruptedExchange(exchange)
    exchange.timeline.note(event(EventKind.RESPONSE_DONE, response_id="r1", owes_response=True), NOW)
    began = event(EventKind.RESPONSE_STARTED, response_id="r2")
    assert interrupted.owns(began, question_is_open=is_open) is is_open
    assert not interrupted.owns(audio(tone(20), "r2"), question_is_open=is_open), "only its beginning says so"
