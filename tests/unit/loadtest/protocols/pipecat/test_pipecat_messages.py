"""What a caller of a Pipecat bot sends, and what it refuses to be asked."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText
from loadtest.protocols.pipecat.caller import PipecatCaller, PipecatEvalCaller
from tests.unit.loadtest.protocols.contract.scripts.pipecat import field

TRACE = f"00-{7:032x}-{9:016x}-01"
TURN = SpokenText("hello")


def read(message: object) -> dict[str, Any]:
    """An RTVI message in a Frame, its protobuf read by hand: the lengths here have one or two bytes."""
    assert isinstance(message, bytes)
    text = message[message.index(b"{") :]
    assert message == field(4, field(1, text))
    return json.loads(text)


def test_the_version_is_stated_first() -> None:
    (ready,) = map(read, PipecatCaller(CallerOptions()).opened())
    assert (ready["label"], ready["type"], ready["data"]["version"]) == ("rtvi-ai", "client-ready", "2.2.0")
    assert ready["data"]["about"] == {"library": "voiceprobe"}
    (other,) = map(read, PipecatCaller(CallerOptions(settings={"rtvi_version": "1.4.0"})).opened())
    assert other["data"]["version"] == "1.4.0"


def test_the_evaluation_wire_is_chosen_before_that() -> None:
    chosen, ready = (json.loads(message) for message in PipecatEvalCaller(CallerOptions()).opened())
    assert (chosen["type"], chosen["id"], chosen["data"]["t"]) == ("client-message", "eval-connect", "eval-connect")
    assert chosen["data"]["d"] == {"skip_tts": False, "capture_bot_audio": True, "capture_bot_images": False}
    assert ready["type"] == "client-ready"


def test_the_trace_goes_into_the_handshake_and_before_each_turn() -> None:
    caller = PipecatCaller(CallerOptions(token="secret", headers=(("x-a", "b"),), metadata=(("cohort", "new"),)))
    request = caller.upgrade("ws://host/ws-client", TRACE)
    assert request.url == "ws://host/ws-client"
    assert request.headers == (("Authorization", "Bearer secret"), ("traceparent", TRACE), ("x-a", "b"))
    turns = [read(message) for _ in range(2) for message in caller.begin_turn(TURN)]
    wanted = {"traceparent": TRACE, "metadata": {"cohort": "new"}}
    assert [each["type"] for each in turns] == ["client-message"] * 2
    assert [each["data"] for each in turns] == [{"t": "trace", "d": {**wanted, "turn": turn}} for turn in (1, 2)]


def test_without_a_trace_nothing_precedes_a_turn() -> None:
    caller = PipecatCaller(CallerOptions())
    assert caller.upgrade("ws://host/", None).headers == ()
    assert caller.begin_turn(TURN) == ()


def test_a_bot_that_does_not_know_what_a_trace_is_does_no_harm() -> None:
    caller = PipecatEvalCaller(CallerOptions())
    caller.upgrade("ws://host/", TRACE)
    (message,) = caller.begin_turn(TURN)
    assert isinstance(message, str)
    answer = {"label": "rtvi-ai", "type": "error-response", "id": json.loads(message)["id"], "data": {"error": "what?"}}
    assert [event.kind for event in caller.receive(json.dumps(answer))] == [EventKind.OTHER]


def test_an_unsuitable_version_is_an_error_and_not_the_end() -> None:
    caller = PipecatEvalCaller(CallerOptions())
    ready = json.loads(list(caller.opened())[1])
    refused = {"label": "rtvi-ai", "type": "error-response", "id": ready["id"], "data": {"error": "not compatible"}}
    (error,) = caller.receive(json.dumps(refused))
    assert error.failure is not None
    assert (error.kind, error.fatal, error.failure.code) == (EventKind.ERROR, False, "client_ready")
    answer = {"label": "rtvi-ai", "type": "bot-ready", "id": ready["id"], "data": {"version": "3.0.0"}}
    assert [event.kind for event in caller.receive(json.dumps(answer))] == [EventKind.READY, EventKind.ERROR]


def test_a_goodbye_ends_the_bots_pipeline() -> None:
    (message,) = PipecatCaller(CallerOptions()).goodbye()
    assert read(message)["type"] == "disconnect-bot"


@pytest.mark.parametrize("rate_hz", [8000, 16000, 48000])
def test_a_frame_of_audio(rate_hz: int) -> None:
    pcm = np.arange(rate_hz // 50, dtype=np.int16)
    options = CallerOptions(settings={"input_rate_hz": rate_hz})
    caller = PipecatCaller(options)
    assert caller.capabilities.input_rate_hz == rate_hz
    raw = pcm.astype("<i2").tobytes()
    assert caller.audio_message(pcm) == field(2, field(3, raw) + field(4, rate_hz) + field(5, 1))
    message = json.loads(PipecatEvalCaller(options).audio_message(pcm))
    assert message.pop("data") == {
        "sampleRate": rate_hz,
        "numChannels": 1,
        "base64Audio": base64.b64encode(raw).decode(),
    }
    assert message == {"label": "rtvi-ai", "type": "raw-audio", "id": "audio"}


def test_every_fault_of_the_settings_is_named_at_once_and_no_value_is_shown() -> None:
    options = CallerOptions(
        turn_control="manual",
        voice="v-secret",
        output_format="pcmu",
        settings={"input_rate_hz": 44100, "rtvi_version": "two", "speed": "s-secret"},
    )
    with pytest.raises(UsageError) as caught:
        PipecatCaller(options)
    text = str(caught.value)
    for name in ("'voice'", "'manual'", "pcm16", "'input_rate_hz'", "'rtvi_version'", "'speed'"):
        assert name in text
    assert len(text.splitlines()) == 6
    assert "secret" not in text
    with pytest.raises(UsageError, match="pipecat-eval: the wire cannot set 'model'"):
        PipecatEvalCaller(CallerOptions(model="m"))


def test_audio_that_names_no_channels_has_one() -> None:
    sound = b"\x10\x20" * 4
    *_, event = PipecatCaller(CallerOptions()).receive(field(2, field(3, sound) + field(4, 24_000)))
    assert (event.kind, event.audio) == (EventKind.AUDIO, sound)


def test_metadata_goes_to_the_bot_without_a_trace_too() -> None:
    (message,) = PipecatCaller(CallerOptions(metadata=(("cohort", "new"),))).begin_turn(TURN)
    assert read(message)["data"]["d"] == {"metadata": {"cohort": "new"}, "turn": 1}


def test_a_text_that_names_the_type_of_audio_is_a_text() -> None:
    text = {"label": "rtvi-ai", "type": "llm-raw-text", "data": {"text": "eval-bot-audio"}}
    *_, event = PipecatEvalCaller(CallerOptions()).receive(json.dumps(text))
    assert (event.kind, event.text) == (EventKind.LLM_TEXT, "eval-bot-audio")
