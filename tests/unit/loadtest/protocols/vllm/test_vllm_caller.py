"""Realtime transcription of vLLM and SGLang, message by message; vLLM's are as its server's source has them."""

import json

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText
from loadtest.protocols.vllm.caller import VllmCaller
from tests.unit.loadtest.protocols.contract.line import Line, kinds
from tests.unit.loadtest.protocols.contract.scripts.vllm import SglangScript, VllmScript

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RESULT = [EventKind.ASR_FINAL, EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE]


def test_model_is_named_first_and_trace_is_in_header() -> None:
    caller = VllmCaller(CallerOptions("manual", model="voxtral", token="key", settings={"language": "en"}))
    headers = dict(caller.upgrade("ws://h/v1/realtime", TRACE).headers)
    assert headers == {"Authorization": "Bearer key", "traceparent": TRACE}
    assert caller.opened() == ()
    (ready,) = caller.receive('{"type":"session.created","id":"sess-7","created":1}')
    assert (ready.kind, ready.metadata) == (EventKind.READY, {"session.id": "sess-7"})
    (update,) = caller.pending()
    assert json.loads(str(update)) == {"type": "session.update", "model": "voxtral", "language": "en"}


def test_an_utterance_is_begun_and_ended_by_commits() -> None:
    caller = VllmCaller(CallerOptions("manual"))
    (begin,), (end,) = caller.begin_turn(SpokenText("x")), caller.end_turn()
    assert json.loads(str(begin)) == {"type": "input_audio_buffer.commit", "final": False}
    assert json.loads(str(end)) == {"type": "input_audio_buffer.commit", "final": True}
    frame = json.loads(caller.audio_message(np.array([1, -2], np.int16)))
    assert frame == {"type": "input_audio_buffer.append", "audio": "AQD+/w=="}


@pytest.mark.parametrize("script", [VllmScript, SglangScript])
def test_a_turn_is_its_transcript(script: type[VllmScript]) -> None:
    line = Line("vllm-realtime", script())
    line.open()
    for turn in (1, 2):
        events = line.turn()
        assert kinds(events) == [EventKind.ASR_PARTIAL, *RESULT]
        assert {event.item_id for event in events if event.text} == {f"utterance-{turn}"}
        assert events[-1].response_id == f"result-{turn}"
        assert events[-1].status == "completed"


@pytest.mark.parametrize("script", [VllmScript, SglangScript])
def test_unrecognizable_utterance_fails_its_turn(script: type[VllmScript]) -> None:
    line = Line("vllm-realtime", script())
    line.open()
    line.say()
    line.finish()
    events = line.deliver(line.script.asr_failed())
    assert kinds(events) == [EventKind.ASR_FAILED, EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE]
    assert events[-1].status == "failed"
    assert events[-1].failure is not None
    assert kinds(line.turn())[-3:] == RESULT, "the session goes on"


@pytest.mark.parametrize("repeats", ["delta", "completed", "failed"])
def test_sglang_repeats_of_earlier_utterance_are_ignored(repeats: str) -> None:
    caller = VllmCaller(CallerOptions("manual", settings={"server": "sglang"}))

    def kinds_of(what: str, item: str) -> list[EventKind]:
        kind = what if what == "committed" else f"conversation.item.input_audio_transcription.{what}"
        kind = f"input_audio_buffer.{what}" if what == "committed" else kind
        fields = {"type": kind, "item_id": item, "delta": "one", "transcript": "one", "error": {"message": "no"}}
        return [event.kind for event in caller.receive(json.dumps(fields))]

    for item in ("item_1", "item_2"):
        caller.begin_turn(SpokenText("one"))
        caller.end_turn()
        assert kinds_of("committed", item) == [EventKind.OTHER]
        if item == "item_2":
            assert kinds_of(repeats, "item_1") == [EventKind.OTHER]
        assert kinds_of("completed", item) == RESULT


def test_vllm_counts_tokens_by_other_names() -> None:
    line = Line("vllm-realtime")
    line.open()
    (final,) = [event for event in line.turn() if event.kind is EventKind.ASR_FINAL]
    assert final.usage == {"input_tokens": 40, "output_tokens": 4, "total_tokens": 44}


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="'sever'; known: language, rate_hz, server"):
        VllmCaller(CallerOptions("manual", settings={"sever": "vllm"}))
