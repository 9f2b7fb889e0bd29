"""Where a reply of a Deepgram agent begins and ends, and the traps of the wire: it names no replies.

Names of messages are those of the recording by the official package (tests/fixtures/deepgram).
"""

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.plan import CallPlan, ReplyPoint
from loadtest.protocols.base import CallerOptions, EventKind
from loadtest.protocols.deepgram.caller import MAX_CALLS, DeepgramCaller
from tests.unit.loadtest.protocols.contract.line import kinds, tone
from tests.unit.loadtest.protocols.contract.scripted_call import MS, ScriptedCall, two_turns
from tests.unit.loadtest.protocols.deepgram.test_deepgram_caller import SERVER, get, ready

KIND: Final = EventKind
SOUND: Final = b"\x10\x20" * 240
# How far the first and the last audible sample of a tone may be from its ends.
EDGE_NS: Final = 3 * MS


def does(caller: DeepgramCaller, *what: str | bytes) -> list[EventKind]:
    return [event.kind for event in get(caller, *what)]


def test_the_next_sentence_goes_on_with_the_same_reply() -> None:
    events = get(ready(), "agent-text", SOUND, "agent-text", SOUND)
    assert kinds(events) == [KIND.RESPONSE_STARTED, KIND.SPOKEN_TEXT, KIND.AUDIO, KIND.SPOKEN_TEXT, KIND.AUDIO]
    assert "".join(event.text or "" for event in events) == "It is on. It is on."


def test_speech_start_clears_unplayed_audio_already_sent() -> None:
    caller = ready()
    get(caller, "agent-text", SOUND, "agent-audio-done")
    assert does(caller, "user-started-speaking") == [KIND.CLEAR, KIND.SPEECH_STARTED]
    assert does(caller, "user-started-speaking") == [KIND.SPEECH_STARTED], "nothing has come since"


def test_interrupted_reply_ends_at_once_and_late_end_is_ignored() -> None:
    caller = ready()
    get(caller, "agent-text", SOUND)
    events = get(caller, "user-started-speaking")
    assert kinds(events) == [KIND.CLEAR, KIND.RESPONSE_DONE, KIND.SPEECH_STARTED]
    assert events[1].status == "cancelled"
    assert does(caller, SOUND) == [], "what was under way is no part of any reply"
    get(caller, "user-text", "agent-thinking")
    assert does(caller, "agent-audio-done") == [], "of the reply that was broken off, and late"
    assert does(caller, "agent-text", SOUND, "agent-audio-done")[-1] is KIND.RESPONSE_DONE


def test_interrupted_reply_may_have_no_end_from_service() -> None:
    caller = ready()
    get(caller, "agent-text", SOUND, "user-started-speaking", "user-text")
    events = get(caller, "agent-text", SOUND, "agent-audio-done")
    assert kinds(events)[-1] is KIND.RESPONSE_DONE
    assert events[-1].status == "completed"
    assert does(caller, "agent-audio-done") == []


def test_speech_without_text_is_played_after_interruption() -> None:
    caller = ready()
    get(caller, "agent-text", SOUND, "user-started-speaking", "user-text")
    assert does(caller, SOUND) == [KIND.RESPONSE_STARTED, KIND.AUDIO]


def test_split_sample_is_joined_but_never_across_replies() -> None:
    caller = ready()
    events = get(caller, b"\1", b"\2\3", b"\4")
    assert [event.audio for event in events if event.kind is KIND.AUDIO] == [b"\1\2", b"\3\4"]
    assert does(caller, b"\5", "agent-audio-done") == [KIND.AUDIO_DONE, KIND.ERROR, KIND.RESPONSE_DONE]
    assert [event.audio for event in get(caller, b"\6\7") if event.audio] == [b"\6\7"]


def test_audio_in_a_container_is_reported_once_a_reply() -> None:
    events = get(ready(), b"RIFF" + bytes(40), b"RIFF" + bytes(40))
    assert kinds(events) == [KIND.RESPONSE_STARTED, KIND.ERROR, KIND.AUDIO, KIND.AUDIO]
    assert events[1].failure is not None
    assert events[1].failure.code == "audio_header"


def test_text_before_function_call_is_no_whole_answer() -> None:
    caller = ready(tools={"*": "on"})
    *_, done = get(caller, "agent-text", SOUND, "function-call-request", "agent-audio-done")
    assert (done.kind, done.owes_response) == (KIND.RESPONSE_DONE, True)
    assert "tool_call" in done.carried
    *_, done = get(caller, "agent-text", SOUND, "agent-audio-done")
    assert not done.owes_response


def test_filler_is_no_answer_and_canceled_call_owes_none() -> None:
    caller = ready(tools={"*": "on"})
    *_, done = get(caller, "function-call-request", "agent-filler", SOUND, "agent-audio-done")
    assert done.owes_response
    functions = SERVER["function-call-request"]["functions"][:1]
    caller.receive(json.dumps({**SERVER["function-call-request"], "functions": functions}))
    *_, done = get(caller, "function-call-cancelled", SOUND, "agent-audio-done")
    assert not done.owes_response


WHATEVER: Final = st.lists(
    st.sampled_from(sorted(SERVER)) | st.sampled_from([b"\1", b"\1\0", SOUND, b"", b"RIFF"]), max_size=30
)


@given(what=WHATEVER)
def test_replies_are_whole_and_never_overlap_in_any_order(what: list[str | bytes]) -> None:
    caller = DeepgramCaller(CallerOptions(settings={"tools": {"*": "on"}}))
    is_open, heard, readies = False, 0, 0
    for event in get(caller, *what):
        if event.kind is KIND.RESPONSE_STARTED:
            assert not is_open
            is_open = True
        elif event.kind is KIND.RESPONSE_DONE:
            assert is_open
            is_open = False
        elif event.kind in (KIND.AUDIO, KIND.SPOKEN_TEXT, KIND.REASONING_TEXT, KIND.AUDIO_DONE):
            assert is_open
        heard += len(event.audio or b"")
        readies += event.kind is KIND.READY
    assert heard <= sum(len(one) for one in what if isinstance(one, bytes))
    assert readies <= 1


def conversation(plan: CallPlan | None = None) -> ScriptedCall:
    return ScriptedCall("deepgram-agent", plan)


def test_a_reply_that_comes_all_at_once_is_heard_to_its_end() -> None:
    call = conversation()
    call.ask()
    call.after(100)
    call.step("final")
    call.step("text")
    for _ in range(10):
        call.step("audio", tone(24_000, 400))
    sent = call.step("reply_done")
    call.after(3_900)
    assert not call.exchanges, "all of it was sent 3.9 s ago, and the caller still hears it"
    call.after(400)
    (turn,) = call.turns
    assert (turn.outcome, turn.underrun_count) == ("ok", 0)
    assert turn.reply_end_perf_ns == pytest.approx(sent + 4_000 * MS, abs=EDGE_NS)


def test_barge_in_after_all_audio_was_sent_stops_playback() -> None:
    call = conversation(two_turns(barge_in=ReplyPoint(after_ns=300 * MS)))
    call.ask()
    call.after(100)
    call.step("final")
    call.step("text")
    call.step("audio", tone(24_000, 3_000))
    sent = call.step("reply_done")
    began = call.until_speaking().now
    assert began > sent
    call.after(200)
    call.deliver(call.line.script.speech_started())
    stopped = call.now
    call.after(800).stop_speaking()
    answered = call.answer(("final", "text", "audio", "reply_done"))
    call.after(3_000)
    old, new = call.turns
    assert (old.cut_short, new.turn_kind, new.outcome) == (True, "barge_in", "ok")
    assert new.barge_in_stop_ns == pytest.approx(stopped - began, abs=EDGE_NS)
    assert new.first_audio_perf_ns == pytest.approx(answered["audio"], abs=EDGE_NS)


def test_a_greeting_is_heard_out_and_answers_nothing() -> None:
    call = conversation()
    call.step("text")
    call.step("audio", tone(24_000, 2_000))
    greeted = call.step("reply_done")
    asked = call.ask()
    assert asked["speech_start"] >= greeted + 2_000 * MS
    moments = call.answer()
    call.after(2_000)
    (turn,) = call.turns
    assert turn.outcome == "ok"
    assert turn.first_audio_perf_ns == pytest.approx(moments["audio"], abs=EDGE_NS)


def test_a_flood_of_calls_is_not_remembered_without_end() -> None:
    caller = ready(tools={"*": "on"})
    for number in range(30):
        calls = [{"id": f"{number}-{place}", "name": "light", "client_side": False} for place in range(100)]
        caller.receive(json.dumps({"type": "FunctionCallRequest", "functions": calls}))
    assert len(caller._reply._calls) == MAX_CALLS  # pyright: ignore[reportPrivateUsage]
    assert get(caller, SOUND, "agent-audio-done")[-1].owes_response
    assert caller.pending() == (), "the service calls them itself"


def test_latencies_of_service_never_replace_caller_measurement() -> None:
    call = conversation()
    asked = call.ask()
    moments = call.answer()
    call.deliver(call.line.script.service_report())
    call.after(2_000)
    (turn,) = call.turns
    stated = dict(zip(turn.service_reported, turn.service_reported_ns, strict=True))
    assert stated["AgentStartedSpeaking.total_latency"] == 1_200 * MS
    assert stated["LatencyReport.tts_latency"] == 180 * MS
    assert "LatencyReport.stt_latency" not in stated, "it came before the caller had asked"
    assert turn.first_audio_perf_ns == pytest.approx(moments["audio"], abs=EDGE_NS)
    assert moments["audio"] - asked["speech_end"] == 500 * MS
    assert turn.llm_first_token_perf_ns is None
    assert {"llm_first_token_latency", "endpointing", "asr_partial_latency"} <= set(turn.withheld_metrics)
