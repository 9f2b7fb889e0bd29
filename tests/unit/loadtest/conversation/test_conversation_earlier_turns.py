"""Events and service reports that name their turn are counted there, however late they come."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec
import pytest

from loadtest.conversation.earlier_turns import MOST_OPEN
from loadtest.conversation.exchange import BeginTurn, Say
from loadtest.conversation.plan import ReplyPoint
from loadtest.conversation.record import build_turn
from loadtest.conversation.state import State
from loadtest.conversation.transcripts import word_errors
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import EventKind, SpokenText, VoiceEvent
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_clip, make_plan, reply, tone

TEXTS = ("turn the light on", "close the kitchen window", "what is the time", "play some music")


class Call(World):
    """A caller who says another text in each turn. The endpoint names what it says u1, u2, …"""

    def __init__(self, turns: int = 3, *, manual: bool = False, wire: WireTraits | None = None) -> None:
        plan = make_plan(turns=turns, manual=manual)
        spoken = tuple(replace(turn, clip=make_clip(text=text)) for turn, text in zip(plan.turns, TEXTS, strict=False))
        super().__init__(replace(plan, turns=spoken), wire=wire or WireTraits(sends_text=False))
        self.spoken = 0

    def ask(self, *during: VoiceEvent, named: bool = True) -> Self:
        """Say the next text, which the endpoint hears begin and end; events that come while it is said."""
        self.begin(named=named).hear(*during)
        return self.finish(named=named)

    def begin(self, *, named: bool = True) -> Self:
        self.spoken += 1
        self.after(500)
        self.speech_starts()
        if named:
            self.hear(event(EventKind.SPEECH_STARTED, item_id=f"u{self.spoken}"))
        self.after(500)
        return self

    def finish(self, *, named: bool = True) -> Self:
        self.after(500)
        self.speech_ends()
        if named:
            self.hear(event(EventKind.SPEECH_STOPPED, item_id=f"u{self.spoken}"))
        return self

    def answer(self, ms: int = 100) -> Self:
        """The reply to the turn comes at once and is heard."""
        self.hear(*reply(ms, f"r{self.spoken}")).after(ms + 40)
        return self

    @property
    def turns(self) -> list[Turn]:
        options = replace(OPTIONS, word_errors=word_errors, keep_transcripts=True)
        return [build_turn(exchange, CALL, options) for exchange in self.exchanges]


def final(number: int, item: str | None = "", **fields: Any) -> VoiceEvent:
    """The transcript of a turn, counted from 1; its item is named after it."""
    item_id = f"u{number}" if item == "" else item
    return event(EventKind.ASR_FINAL, item_id=item_id, text=TEXTS[number - 1], **fields)


def asr_ms(turns: Sequence[Turn]) -> list[float | None]:
    return [
        None
        if turn.asr_final_perf_ns is None or turn.speech_end_perf_ns is None
        else (turn.asr_final_perf_ns - turn.speech_end_perf_ns) / MS
        for turn in turns
    ]


def errors(turns: Sequence[Turn]) -> list[int | None]:
    return [turn.wer_errors for turn in turns]


def test_transcript_during_next_question_counts_in_its_own_turn() -> None:
    call = Call(2).ask().answer().begin()
    call.hear(final(1))
    late_ms = (call.now - (call.exchanges[0].timeline.speech_end_perf_ns or 0)) / MS
    call.finish().after(200).hear(final(2)).answer()
    assert errors(call.turns) == [0, 0]
    assert asr_ms(call.turns) == [pytest.approx(late_ms), pytest.approx(200)]
    assert late_ms > 1_000, "the thinking, the lead-in and half of the next question are in it"


def test_transcript_between_turns_counts_in_its_own_turn() -> None:
    call = Call(2).ask().answer().after(100).hear(final(1))
    assert call.conversation.state is State.THINKING
    call.ask().hear(final(2)).answer()
    assert errors(call.turns) == [0, 0]
    assert asr_ms(call.turns)[0] == pytest.approx(240, abs=1)


def test_transcript_two_turns_late_counts_in_its_own_turn() -> None:
    call = Call(3).ask().answer().ask().hear(final(2)).answer().begin().hear(final(1)).finish()
    call.hear(final(3)).answer()
    assert errors(call.turns) == [0, 0, 0]
    assert [exchange.awaits_more for exchange in call.exchanges] == [False, False, False]


def test_transcripts_all_one_turn_late_stay_with_their_turns() -> None:
    call = Call(3).ask().answer().begin().hear(final(1)).finish()
    call.answer().begin().hear(final(2)).finish().answer().after(2_000)
    assert errors(call.turns) == [0, 0, None], "the third was never transcribed before the call ended"


@pytest.mark.parametrize("kind", [EventKind.ASR_PARTIAL, EventKind.ASR_FINAL, EventKind.ASR_FAILED])
def test_late_transcript_event_belongs_to_its_own_turn(kind: EventKind) -> None:
    late = event(kind, item_id="u1", text="turn the light on", message="no model")
    call = Call(2).ask().answer().begin().hear(late).finish().hear(final(2)).answer()
    first, second = (exchange.timeline for exchange in call.exchanges)
    assert (len(first.partials_perf_ns), len(first.finals), first.asr_failure) == {
        EventKind.ASR_PARTIAL: (1, 0, None),
        EventKind.ASR_FINAL: (0, 1, None),
        EventKind.ASR_FAILED: (0, 0, "no model"),
    }[kind]
    assert (second.partials_perf_ns, len(second.finals), second.asr_failure) == ([], 1, None)
    assert errors(call.turns)[1] == 0


def test_a_late_end_of_speech_is_that_of_its_own_turn() -> None:
    call = Call(2).ask().answer().begin().hear(event(EventKind.SPEECH_STOPPED, item_id="u1")).finish()
    call.answer()
    assert [len(exchange.timeline.endpoints_perf_ns) for exchange in call.exchanges] == [2, 1]


def test_next_turn_does_not_wait_for_named_transcript() -> None:
    partial = event(EventKind.ASR_PARTIAL, item_id="u1", text="turn")
    call = Call(2).ask(partial).answer()
    assert [exchange.index for exchange in call.exchanges] == [0]
    assert call.exchanges[0].awaits_more
    call.begin().hear(final(1)).finish().hear(final(2)).answer()
    assert not call.exchanges[0].awaits_more
    assert errors(call.turns) == [0, 0]


def test_last_turn_waits_two_seconds_if_earlier_had_transcripts() -> None:
    call = Call(2).ask().hear(final(1)).answer().ask().answer().after(1_500)
    assert len(call.exchanges) == 1
    call.hear(final(2)).after(40)
    assert errors(call.turns) == [0, 0]
    never = Call(2).ask().hear(final(1)).answer().ask().answer().after(2_000)
    assert [exchange.outcome for exchange in never.exchanges] == ["ok", "ok"]
    none = Call(2).ask().answer().ask().answer()
    assert len(none.exchanges) == 2, "nobody waits for what has never come"


def test_two_items_of_one_question_are_read_in_spoken_order() -> None:
    call = Call(2).begin().hear(event(EventKind.SPEECH_STOPPED, item_id="u1"))
    call.hear(event(EventKind.SPEECH_STARTED, item_id="u1b"))
    call.after(500).speech_ends().hear(event(EventKind.SPEECH_STOPPED, item_id="u1b")).after(100)
    call.hear(event(EventKind.ASR_FINAL, item_id="u1b", text="light on"))
    call.answer()
    assert call.exchanges[0].awaits_more, "half of it is missing"
    call.begin().hear(event(EventKind.ASR_FINAL, item_id="u1", text="turn the"))
    assert call.finish().turns[0].transcript_pii == "turn the light on"
    assert errors(call.turns) == [0]


def test_question_committed_by_caller_has_a_name() -> None:
    call = Call(2, manual=True).ask(named=False).hear(event(EventKind.QUESTION_NAMED, item_id="u1"))
    call.answer().begin(named=False).hear(final(1)).finish(named=False)
    call.hear(event(EventKind.QUESTION_NAMED, item_id="u2"), final(2))
    call.answer()
    assert errors(call.turns) == [0, 0]


def test_name_before_manual_commit_is_that_of_previous_turn() -> None:
    call = Call(2, manual=True).ask(named=False).answer().begin(named=False)
    call.hear(event(EventKind.QUESTION_NAMED, item_id="u1")).hear(final(1))
    call.finish(named=False).hear(event(EventKind.QUESTION_NAMED, item_id="u2"), final(2))
    assert errors(call.answer().turns) == [0, 0]


def test_reused_item_name_belongs_to_newest_speech() -> None:
    call = Call(3)
    for number in (1, 2, 3):
        call.begin(named=False)
        call.hear(event(EventKind.SPEECH_STARTED, item_id="x")).after(100)
        call.finish(named=False).hear(event(EventKind.SPEECH_STOPPED, item_id="x"), final(number, "x"))
        call.spoken = number
        call.answer()
    assert errors(call.turns) == [0, 0, 0]


def test_one_name_for_everything_on_a_wire_of_transcripts_alone() -> None:
    call = Call(3)
    for number in (1, 2, 3):
        partial = event(EventKind.ASR_PARTIAL, item_id="x", text="one")
        call.ask(partial, named=False).hear(final(number, "x"))
        call.answer()
    assert errors(call.turns) == [0, 0, 0]
    assert [len(exchange.timeline.partials_perf_ns) for exchange in call.exchanges] == [1, 1, 1]


def test_repeated_transcript_of_recorded_turn_is_ignored() -> None:
    call = Call(2).ask().hear(final(1)).answer().begin().hear(final(1)).finish()
    assert errors(call.hear(final(2)).answer().turns) == [0, 0]


@pytest.mark.parametrize("names", [True, False])
def test_unnamed_transcript_between_turns_is_of_previous_turn(names: bool) -> None:
    """No other turn has been said by then. A wire's names that are only our own counts are none."""
    call = Call(2, wire=WireTraits(names_questions=names, sends_text=False)).ask(named=False).answer().after(100)
    call.hear(final(1, None if names else "count-7"))
    call.ask(named=False).hear(final(2, None))
    call.answer()
    assert errors(call.turns) == [0, 0]
    assert [exchange.awaits_more for exchange in call.exchanges] == [False, False]


def test_unnamed_transcript_in_lead_in_is_of_previous_turn() -> None:
    call = Call(2).ask(named=False).answer().after(500)
    assert call.conversation.state is State.SPEAKING
    call.hear(final(1, None)).speech_starts().after(1_000).speech_ends().hear(final(2, None))
    call.answer()
    assert errors(call.turns) == [0, 0]


def test_no_question_is_transcribed_before_it_has_been_spoken() -> None:
    """A whole transcript without a name, while the caller still speaks, is of the turn before if that one lacks it."""
    partial = event(EventKind.ASR_PARTIAL, text="turn the")
    call = Call(2).ask(named=False).answer().begin(named=False).hear(partial, final(1, None))
    call.finish(named=False).after(100).hear(final(2, None))
    call.answer()
    assert errors(call.turns) == [0, 0]
    assert all(latency_ms is not None and latency_ms > 0 for latency_ms in asr_ms(call.turns))
    assert [len(exchange.timeline.partials_perf_ns) for exchange in call.exchanges] == [1, 0]


def test_transcript_of_first_half_during_speech_stays_in_turn() -> None:
    call = Call(2).ask(named=False).hear(final(1, None))
    call.answer().begin(named=False).hear(event(EventKind.ASR_FINAL, text="close the"))
    call.finish(named=False).hear(event(EventKind.ASR_FINAL, text="kitchen window"))
    call.answer()
    assert errors(call.turns) == [0, 0]


def test_unmarked_final_is_dated_and_assigned_by_last_partial() -> None:
    """Gemini Live names nothing, and some of its models mark no piece as the last: the end of the next reply does."""
    piece = event(EventKind.ASR_PARTIAL, item_id="question-2", text=TEXTS[0])
    call = (
        Call(2, wire=WireTraits(names_questions=False, sends_text=False))
        .ask(named=False)
        .answer()
        .begin(named=False)
        .hear(piece)
    )
    came = call.now
    call.finish(named=False).after(300)
    call.hear(final(1, "question-2", dated_by_partial=True)).answer().after(2_000)
    first, second = call.exchanges
    assert first.timeline.finals == [("question-2", TEXTS[0], came)]
    assert (second.timeline.finals, second.timeline.partials_perf_ns) == ([], [])


def test_unnamed_late_transcript_of_interrupted_reply_is_its_own() -> None:
    plan = make_plan()
    clips = [make_clip(text=text) for text in TEXTS[:2]]
    turns = (
        replace(plan.turns[0], clip=clips[0]),
        replace(plan.turns[0], clip=clips[1], barge_in=ReplyPoint(500 * MS)),
    )
    world = (
        World(replace(plan, turns=turns))
        .speak()
        .hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), audio(tone(4_000), "r1"))
    )
    world.after(500).speech_starts().after(200).hear(event(EventKind.SPEECH_STARTED), final(1, None))
    world.hear(event(EventKind.RESPONSE_DONE, response_id="r1", status="cancelled"))
    world.after(400).speech_ends()
    world.hear(event(EventKind.SPEECH_STOPPED), final(2, None), *reply(100, "r2")).after(200)
    assert [exchange.timeline.transcript for exchange in world.exchanges] == [*TEXTS[:2]]


def test_late_text_of_answer_counts_in_its_own_turn() -> None:
    call = Call(2, wire=WireTraits()).ask().hear(final(1)).answer()
    assert call.exchanges[0].awaits_more, "its answer has no text yet"
    text = event(EventKind.LLM_TEXT, response_id="r1", text="Done.")
    call.begin().hear(text).finish().hear(final(2)).answer()
    assert [
        len(exchange.timeline.replies[f"r{number}"].text_stamps_perf_ns)
        for number, exchange in enumerate(call.exchanges, 1)
    ] == [1, 0]
    assert not call.exchanges[0].awaits_more


def test_nothing_is_awaited_that_a_wire_cannot_show() -> None:
    call = Call(2, wire=WireTraits(transcribes=False, sends_text=False)).ask().answer()
    assert not call.exchanges[0].awaits_more


def test_dropped_call_ends_with_turns_unchanged() -> None:
    call = Call(2).ask().answer().begin().lose("dropped")
    assert [(exchange.outcome, exchange.timeline.finals) for exchange in call.exchanges] == [("ok", []), ("error", [])]


def once_more(response_id: str = "resp_1", *, announced: bool = True, ms: int = 100) -> list[VoiceEvent]:
    events = reply(ms, response_id)
    return events if announced else events[1:]


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "by its audio"])
def test_reused_response_id_is_new_answer_and_endpoint_fault(announced: bool) -> None:
    call = Call(3)
    for _ in range(3):
        call.ask().after(200).hear(*once_more(announced=announced)).after(140)
    assert [exchange.outcome for exchange in call.exchanges] == ["ok", "ok", "ok"]
    assert [exchange.reason for exchange in call.exchanges] == [None, *["response id resp_1 was used before"] * 2]
    turns = call.turns
    assert [turn.response_id for turn in turns] == ["resp_1"] * 3
    assert [round(((turn.first_audio_perf_ns or 0) - (turn.speech_end_perf_ns or 0)) / MS) for turn in turns] == [
        200
    ] * 3


def test_text_before_audio_of_unannounced_answer_is_its_first() -> None:
    call = Call(2).ask().after(100).hear(*once_more(announced=False)).after(140).ask().after(100)
    came = call.now
    call.hear(event(EventKind.LLM_TEXT, response_id="resp_1", text="Yes.")).after(200)
    call.hear(*once_more(announced=False)).after(140)
    assert call.last.timeline.answer is not None
    assert call.last.timeline.answer.text_stamps_perf_ns == [came]
    assert call.last.outcome == "ok"


def test_the_id_of_a_greeting_is_used_again() -> None:
    call = Call(1).hear(*once_more()).after(200)
    call.ask().after(100).hear(*once_more()).after(140)
    assert (call.last.outcome, call.last.reason) == ("ok", "response id resp_1 was used before")


def test_greeting_never_closed_leaves_its_id_to_answer() -> None:
    call = Call(1).hear(*once_more()[:2]).after(200)
    call.ask().after(100).hear(*once_more()).after(140)
    assert call.last.outcome == "ok"


def test_two_responses_of_one_turn_with_one_id_are_two() -> None:
    call = Call(1).ask().after(100)
    started = event(EventKind.RESPONSE_STARTED, response_id="resp_1")
    done = event(EventKind.RESPONSE_DONE, response_id="resp_1", status="completed", owes_response=True)
    call.hear(started, msgspec.structs.replace(done, carried=frozenset({"tool_call"}))).after(300).hear(*once_more())
    call.after(140)
    assert call.last.outcome == "ok"
    assert len(call.last.timeline.replies) == 2


def test_late_audio_is_no_answer_where_replies_are_announced() -> None:
    call = Call(2).ask().hear(*once_more()).after(140)
    call.ask().hear(audio(tone(300), "resp_1")).after(10_100)
    assert call.last.outcome == "no_reply"


def test_response_announced_twice_before_its_end_counts_once() -> None:
    started = event(EventKind.RESPONSE_STARTED, response_id="resp_1")
    call = Call(1).ask().hear(started, started, *once_more()[1:]).after(140)
    assert (call.last.outcome, call.last.reason) == ("ok", None)
    assert len(call.last.timeline.replies) == 1


def test_an_interrupted_reply_leaves_its_id_to_the_next() -> None:
    plan = make_plan()
    turns = (plan.turns[0], replace(plan.turns[0], barge_in=ReplyPoint(500 * MS)))
    world = World(replace(plan, turns=turns)).speak().hear(*once_more(ms=4_000)[:2])
    world.after(500).speech_starts().after(200).hear(event(EventKind.SPEECH_STARTED, item_id="u2"))
    world.hear(event(EventKind.RESPONSE_DONE, response_id="resp_1", status="cancelled")).after(400).speech_ends()
    world.hear(event(EventKind.SPEECH_STOPPED, item_id="u2")).after(100).hear(*once_more()).after(200)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "ok"]
    assert world.last.timeline.answer is not None


def test_turns_waiting_for_transcripts_are_bounded() -> None:
    turns = MOST_OPEN + 2
    world = World(make_plan(turns=turns), wire=WireTraits(sends_text=False))
    for number in range(turns):
        world.after(500).speech_starts().hear(event(EventKind.SPEECH_STARTED, item_id=f"u{number}"))
        world.after(500).speech_ends().hear(event(EventKind.SPEECH_STOPPED, item_id=f"u{number}"))
        world.hear(*reply(100, f"r{number}")).after(140)
    assert [exchange.awaits_more for exchange in world.exchanges] == [False] * 2 + [True] * MOST_OPEN


def report(response_id: str | None = None, **latencies_ms: int) -> VoiceEvent:
    stated = {name: value * MS for name, value in latencies_ms.items()}
    return event(EventKind.SERVICE_REPORT, response_id=response_id, service_ns=stated)


def turn(world: World, index: int = -1) -> Turn:
    return build_turn(world.exchanges[index], CALL, OPTIONS)


def test_latencies_are_kept_as_stated_and_change_no_figure() -> None:
    plain = turn(World(make_plan()).speak().after(300).hear(*reply(200)).after(300))
    world = World(make_plan()).speak().after(300).hear(report(llm_ttft=187, tts_ttfb=90))
    world.hear(*reply(200)).after(300)
    stated = turn(world)
    assert dict(zip(stated.service_reported, stated.service_reported_ns, strict=True)) == {
        "llm_ttft": 187 * MS,
        "tts_ttfb": 90 * MS,
    }
    assert stated.service_latency_reports == 1
    for name in ("first_audio_perf_ns", "llm_first_token_perf_ns", "tts_first_chunk_perf_ns", "asr_final_perf_ns"):
        assert getattr(stated, name) == getattr(plain, name)
    assert plain.service_reported == plain.service_reported_ns == ()


def test_first_reported_value_is_kept_and_names_are_bounded() -> None:
    world = World(make_plan()).speak().hear(report(tts=90), report(tts=500))
    world.hear(report(**{f"n{number}": 1 for number in range(100)}), *reply(200)).after(300)
    stated = turn(world)
    assert len(stated.service_reported) == 32
    assert dict(zip(stated.service_reported, stated.service_reported_ns, strict=True))["tts"] == 90 * MS


def test_latencies_may_come_with_any_event() -> None:
    done = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed", service_ns={"total": 5 * MS})
    world = World(make_plan()).speak().hear(*reply(200)[:2], done).after(300)
    assert turn(world).service_reported == ("total",)


def test_cache_route_and_tokens_are_those_of_the_turn() -> None:
    metrics = VoiceEvent(
        EventKind.SERVICE_REPORT,
        "metrics",
        metadata={"voice.cache_hit": "true", "voice.route": "local"},
        usage={"output_text_tokens": 12},
    )
    stated = turn(World(make_plan()).speak().hear(metrics, *reply(200)).after(300))
    assert (stated.cache_hit, stated.route, stated.llm_tokens) == (True, "local", 12)


def test_a_report_between_turns_belongs_to_none() -> None:
    world = World(make_plan(2)).speak().hear(*reply(200)).after(300)
    world.hear(report(late=1)).speak().hear(*reply(200, "r2")).after(300)
    assert [turn(world, index).service_reported for index in (0, 1)] == [(), ()]


def test_report_before_interrupting_question_is_for_old_reply() -> None:
    plan = make_plan(2)
    second = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=300 * MS))
    world = World(replace(plan, turns=(plan.turns[0], second))).speak().hear(*reply(3_000)[:2]).after(300)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().hear(report(old=1)).after(600).speech_ends()
    world.hear(report("r1", older=2), report(new=3), *reply(200, "r2")).after(4_000)
    assert [turn(world, index).service_reported for index in (0, 1)] == [("old", "older"), ("new",)]


def test_words_of_turn_are_reported_before_its_first_frame() -> None:
    world = World(make_plan()).after(500)
    begins, says = world.actions
    assert isinstance(begins, BeginTurn)
    assert isinstance(says, Say)
    assert begins.words == SpokenText("turn the light on", "en-US", 100 * MS, "u1")


def test_connection_headers_are_on_first_turn_only() -> None:
    call = replace(CALL, endpoint_headers={"upgrade.server": "uvicorn"})
    world = World(make_plan(2)).speak().after(300)
    report = {"llm.x-request-id": "req-1", "session.id": "s", "voice.route": "local"}
    world.hear(VoiceEvent(EventKind.SERVICE_REPORT, "llm", metadata=report), *reply(200)).after(300)
    world.speak().after(300).hear(*reply(200, response_id="r2")).after(300)
    first, second = (build_turn(exchange, call, OPTIONS) for exchange in world.exchanges)
    assert first.endpoint_headers == ("upgrade.server", "llm.x-request-id")
    assert first.endpoint_header_values == ("uvicorn", "req-1")
    assert second.endpoint_headers == second.endpoint_header_values == ()


def test_partials_are_kept_with_times_only_with_transcripts() -> None:
    world = World(make_plan()).speak()
    world.hear(event(EventKind.ASR_PARTIAL, text="turn")).after(40)
    world.hear(event(EventKind.ASR_PARTIAL, text=" it")).hear(event(EventKind.ASR_FINAL, text="turn it")).after(60)
    world.hear(event(EventKind.ASR_PARTIAL, text="on")).hear(event(EventKind.ASR_FINAL, text="on"))
    world.hear(*reply(200)).after(300)
    kept = build_turn(world.exchanges[-1], CALL, replace(OPTIONS, keep_transcripts=True))
    assert kept.asr_partials_pii == ("turn", "turn it", "turn it on"), "each the whole text so far"
    first, second, third = kept.asr_partials_after_ns
    assert (second - first, third - second) == (40 * MS, 60 * MS)
    assert kept.speech_start_perf_ns is not None
    assert kept.speech_start_perf_ns + first == kept.asr_first_partial_perf_ns
    plain = turn(world)
    assert plain.asr_partials_pii == plain.asr_partials_after_ns == ()
