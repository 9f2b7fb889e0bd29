"""Whole conversations over every registered protocol, under an injected clock, give the turns that were scripted."""

from dataclasses import replace
from functools import cache

import pytest

from loadtest.conversation.plan import ReplyPoint
from loadtest.conversation.state import State
from loadtest.protocols.base import EventKind
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.world import make_plan
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, Line, having, kinds, tone
from tests.unit.loadtest.protocols.contract.scripted_call import MS, REPLY_MS, ScriptedCall, two_turns

# How far a lossy encoding may move the first and the last audible sample.
LOSSY_NS = 25 * MS


# Wires whose stages are requests of their own, each made of the result of the one before.
SERIAL = frozenset({"http-cascade", "wyoming"})


@cache
def speaks(name: str) -> bool:
    return "voice_to_voice" not in Line(name).caller.capabilities.not_observable


def comes(name: str, kind: EventKind) -> bool:
    line = Line(name)
    line.open()
    return kind in kinds(line.turn())


every_wire = pytest.mark.parametrize("name", sorted(SCRIPTS))
every_voice = pytest.mark.parametrize("name", [name for name in sorted(SCRIPTS) if speaks(name)])


def assert_turn(name: str, turn: Turn, moments: dict[str, int]) -> None:
    """A turn has the moments of the script, and no others."""
    script = SCRIPTS[name]
    assert (turn.outcome, turn.outcome_reason) == ("ok", None)
    assert (turn.speech_start_perf_ns, turn.speech_end_perf_ns) == (moments["speech_start"], moments["speech_end"])
    for field, stage, kind in (
        ("endpoint_perf_ns", "speech_stopped", EventKind.SPEECH_STOPPED),
        ("asr_first_partial_perf_ns", "partial", EventKind.ASR_PARTIAL),
        ("asr_final_perf_ns", "final", EventKind.ASR_FINAL),
        ("llm_first_token_perf_ns", "text", EventKind.LLM_TEXT),
        ("tts_first_chunk_perf_ns", "audio", EventKind.AUDIO),
    ):
        assert getattr(turn, field) == (moments[stage] if comes(name, kind) else None), field
    moved_ns = MS if script.exact_audio else LOSSY_NS
    assert turn.first_audio_perf_ns == pytest.approx(moments["audio"], abs=moved_ns)
    assert turn.reply_end_perf_ns == pytest.approx(moments["audio"] + REPLY_MS * MS, abs=moved_ns)
    assert METRICS["voice_to_voice"].value(turn) == pytest.approx(
        moments["audio"] - moments["speech_end"], abs=moved_ns
    )
    assert turn.reply_audio_ns == pytest.approx(REPLY_MS * MS, abs=moved_ns)
    assert turn.underrun_count == 0


@every_voice
def test_two_turns_have_the_moments_of_their_scripts(name: str) -> None:
    call = ScriptedCall(name, make_plan(2))
    scripted: list[dict[str, int]] = []
    for _ in range(2):
        scripted.append(call.ask() | call.answer())
        call.after(2_000)
    assert len(call.turns) == 2
    for turn, moments in zip(call.turns, scripted, strict=True):
        assert_turn(name, turn, moments)
    assert call.conversation.state is State.OVER
    assert len(call.hung_up) == 1


@every_voice
def test_a_cold_first_session_is_timed_like_any_other(name: str) -> None:
    call = ScriptedCall(name)
    asked = call.ask()
    call.after(6_000)
    moments = call.answer()
    call.after(2_000)
    (turn,) = call.turns
    assert turn.outcome == "ok"
    waited_ns = METRICS["voice_to_voice"].value(turn)
    assert waited_ns == pytest.approx(moments["audio"] - asked["speech_end"], abs=LOSSY_NS)
    assert waited_ns is not None
    assert waited_ns > 6_000 * MS


@every_voice
def test_a_server_that_never_answers_gave_no_reply(name: str) -> None:
    call = ScriptedCall(name, make_plan(reply_ms=3_000))
    call.ask()
    call.after(5_000)
    (turn,) = call.turns
    assert turn.outcome == "no_reply"


def transcribes_during_reply(name: str) -> bool:
    """Whether a final transcript may come after the first audio without having been that late in the script."""
    order = SCRIPTS[name].order
    return name not in SERIAL and comes(name, EventKind.ASR_FINAL) and order.index("final") < order.index("audio")


@pytest.mark.parametrize("name", [name for name in sorted(SCRIPTS) if speaks(name) and transcribes_during_reply(name)])
def test_a_transcript_may_come_after_the_reply_has_begun(name: str) -> None:
    call = ScriptedCall(name)
    moments = call.ask()
    order = [stage for stage in SCRIPTS[name].order if stage not in ("speech_started", "partial", "final")]
    order.insert(order.index("audio") + 1, "final")
    moments |= call.answer(order)
    call.after(2_000)
    (turn,) = call.turns
    assert turn.outcome == "ok"
    assert turn.asr_final_perf_ns == moments["final"]
    assert turn.first_audio_perf_ns == pytest.approx(moments["audio"], abs=LOSSY_NS)
    assert METRICS["llm_ttft"].value(turn) is None, "a transcript that came during the reply is not a stage before it"


@every_voice
def test_the_end_of_sending_is_not_the_end_of_hearing(name: str) -> None:
    call = ScriptedCall(name)
    call.ask()
    for stage in SCRIPTS[name].order[SCRIPTS[name].order.index(SCRIPTS[name].first_after_speech) :]:
        if stage == "audio":
            for _ in range(10):  # 4 s at once
                call.step("audio", tone(SCRIPTS[name].reply_rate_hz, REPLY_MS))
        else:
            call.step(stage)
    began = call.now
    call.after(3_900)
    assert not call.exchanges, "the reply still plays"
    call.after(2_000)
    (turn,) = call.turns
    assert turn.reply_end_perf_ns == pytest.approx(began + 4_000 * MS, abs=LOSSY_NS)


@every_voice
def test_interrupting_caller_is_answered_again(name: str) -> None:
    call = ScriptedCall(name, two_turns(barge_in=ReplyPoint(after_ns=300 * MS)))
    script = SCRIPTS[name]
    call.ask()
    first = [stage for stage in script.order[script.order.index(script.first_after_speech) :] if stage != "reply_done"]
    heard = 0
    for stage in first:
        call.after(100)
        moment = call.step(stage, tone(script.reply_rate_hz, 3_000) if stage == "audio" else None)
        heard = moment if stage == "audio" else heard
    began = call.until_speaking().now
    assert began - heard >= 180 * MS, "not before the point at which the caller breaks in"
    stopped = call.after(200).now
    broken_off = call.line.script.broken_off()
    call.deliver(broken_off)
    if broken_off is None and call.line.caller.capabilities.reply_end == "event":
        call.step("reply_done")  # an endpoint that gets no message, or cannot stop, sends all of it
    asked = call.after(800).stop_speaking()
    if broken_off is not None and not call.manual and comes(name, EventKind.SPEECH_STOPPED):
        call.after(100).step("speech_stopped")
    answered = call.answer([stage for stage in first if stage != "speech_stopped"] + _done(name))
    call.after(6_000)
    old, new = call.turns
    assert (old.outcome, old.cut_short) == ("ok", True)
    assert (new.outcome, new.turn_kind) == ("ok", "barge_in")
    assert new.speech_end_perf_ns == asked
    assert new.first_audio_perf_ns is not None
    if broken_off is not None and not call.manual:
        if name == "declared":  # its spec has events for speech, and none that breaks off a reply
            assert (new.barge_in_end, new.barge_in_stop_ns) == ("never_stopped", None)
        else:
            assert new.barge_in_stop_ns == pytest.approx(stopped - began, abs=LOSSY_NS)
        assert new.first_audio_perf_ns == pytest.approx(answered["audio"], abs=LOSSY_NS)


def _done(name: str) -> list[str]:
    return ["reply_done"] if "reply_done" in SCRIPTS[name].order else []


@pytest.mark.parametrize("name", having("error"))
def test_an_error_that_is_not_fatal_ends_no_call(name: str) -> None:
    call = ScriptedCall(name)
    call.ask()
    call.deliver(call.line.script.error())
    assert call.conversation.state is not State.OVER
    call.answer()
    call.after(4_000)
    (turn,) = call.turns
    if speaks(name):
        assert turn.outcome == "ok"


@pytest.mark.parametrize("name", having("fatal_error"))
def test_a_fatal_error_ends_the_call_with_its_cause(name: str) -> None:
    call = ScriptedCall(name, make_plan(2))
    call.ask()
    fatal = call.line.script.fatal_error()
    call.deliver(fatal.messages)
    (turn,) = call.turns
    assert (turn.outcome, turn.failure_kind, turn.failure_code) == ("error", fatal.kind, fatal.code)
    assert call.conversation.state is State.OVER


@every_wire
def test_repeated_and_unknown_messages_change_no_figure(name: str) -> None:
    plain, noisy = ScriptedCall(name), ScriptedCall(name)
    for call in (plain, noisy):
        call.ask()
        if call is noisy:
            call.deliver(call.line.script.unknown())
        call.answer()
        call.after(4_000)
    (one,), (other,) = plain.turns, noisy.turns
    unknown = noisy.line.script.unknown()
    assert other.unknown_events == len(unknown or ())
    assert replace_counts(other) == replace_counts(one)


def replace_counts(turn: Turn) -> dict[str, object]:
    """Return a turn without its counts of events outside the conversation."""
    return {
        name: getattr(turn, name)
        for name in Turn.__struct_fields__
        if name not in ("unknown_events", "unknown_event_names", "duplicate_events")
    }


@every_voice
def test_unanswered_silent_caller_is_no_fault_of_service(name: str) -> None:
    plan = make_plan()
    silent = replace(plan.turns[0], clip=None, silence_ns=1_000 * MS)
    call = ScriptedCall(name, replace(plan, turns=(silent,)))
    call.after(3_000)
    (turn,) = call.turns
    assert (turn.outcome, turn.reprompted) == ("ok", False)
