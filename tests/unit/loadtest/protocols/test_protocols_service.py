"""The endpoint's role: the command of each client event, and what is refused."""

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadtest.audio import g711
from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import CallerOptions, EventKind
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.dialects import BETA, GA, Dialect
from loadtest.protocols.openai_realtime.service import (
    AddUserText,
    AppendAudio,
    CancelResponse,
    Clear,
    Command,
    Commit,
    CreateResponse,
    Refused,
    ServiceSession,
    Truncate,
    UpdateSession,
)
from loadtest.protocols.openai_realtime.service_session import SessionConfig, TurnDetection


def ids() -> Callable[[str], str]:
    count = itertools.count()
    return lambda prefix: f"{prefix}_{next(count)}"


def new(*, beta: bool = False) -> ServiceSession:
    return ServiceSession(ids(), beta=beta)


def command(of: ServiceSession, kind: str, /, **fields: Any) -> Command:
    (decoded,) = of.receive(json.dumps({"type": kind} | fields))
    return decoded


def update(of: ServiceSession, /, **fields: Any) -> SessionConfig:
    decoded = command(of, "session.update", session=fields)
    assert isinstance(decoded, UpdateSession), decoded
    return of.config


def refusal(of: ServiceSession, kind: str, /, **fields: Any) -> dict[str, Any]:
    decoded = command(of, kind, **fields)
    assert isinstance(decoded, Refused), decoded
    reply = json.loads(decoded.reply)
    assert reply["type"] == "error"
    assert reply["error"]["message"]
    return reply["error"]


class TestSessionUpdate:
    def test_defaults(self) -> None:
        config = new().config
        assert config.turn_detection == TurnDetection("server_vad", 0.5, 500, 300, True, True)
        assert config.transcription_model is None
        assert config.modality == "audio"

    def test_ga(self) -> None:
        detection = {"type": "server_vad", "threshold": 0.4, "silence_duration_ms": 200, "create_response": False}
        audio_input = {"format": {"type": "audio/pcmu"}, "transcription": {"model": "w"}, "turn_detection": detection}
        audio_output = {"format": {"type": "audio/pcm", "rate": 16_000}, "voice": {"id": "custom"}}
        audio = {"input": audio_input, "output": audio_output}
        config = update(new(), type="realtime", audio=audio, output_modalities=["text"], instructions="i", model="m")
        assert config == SessionConfig(
            model="m",
            turn_detection=TurnDetection("server_vad", 0.4, 200, 300, False, True),
            input_format=AudioFormat("pcmu", 8000),
            output_format=AudioFormat("pcm16", 16_000),
            transcription_model="w",
            modality="text",
            voice="custom",
            instructions="i",
        )

    def test_beta(self) -> None:
        config = update(
            new(beta=True),
            modalities=["text", "audio"],
            input_audio_format="g711_alaw",
            output_audio_format="g711_ulaw",
            input_audio_transcription={},
            turn_detection=None,
            voice="v",
        )
        assert (config.input_format, config.output_format) == (AudioFormat("pcma", 8000), AudioFormat("pcmu", 8000))
        assert config.transcription_model == "default"
        assert config.turn_detection is None
        assert (config.modality, config.voice) == ("audio", "v")

    def test_only_named_settings_change(self) -> None:
        session = new()
        before = update(session, type="realtime", audio={"input": {"transcription": {"model": "w"}}}, instructions="i")
        assert update(session, type="realtime") == before
        after = update(session, type="realtime", audio={"input": {"transcription": None, "turn_detection": None}})
        assert after.transcription_model is None
        assert after.turn_detection is None
        assert after.instructions == "i"
        again = update(session, type="realtime", audio={"input": {"turn_detection": {"type": "semantic_vad"}}})
        assert again.turn_detection == TurnDetection("semantic_vad")

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"type": "transcription"}, "session.type"),
            ({"audio": {}}, "session.type"),
            ({"type": "realtime", "audio": 1}, "session.audio"),
            ({"type": "realtime", "audio": {"input": {"format": {"type": "audio/mp3"}}}}, "session.audio.input.format"),
            (
                {"type": "realtime", "audio": {"output": {"format": {"type": "audio/pcm", "rate": 7}}}},
                "session.audio.output.format",
            ),
            ({"type": "realtime", "audio": {"output": {"voice": 3}}}, "session.audio.output.voice"),
            ({"type": "realtime", "output_modalities": ["audio", "video"]}, "session.output_modalities"),
            ({"type": "realtime", "output_modalities": []}, "session.output_modalities"),
            ({"type": "realtime", "instructions": 5}, "session.instructions"),
            ({"turn_detection": {"type": "none"}}, "session.turn_detection.type"),
            ({"turn_detection": {"threshold": 2}}, "session.turn_detection.threshold"),
            ({"turn_detection": {"silence_duration_ms": -1}}, "session.turn_detection.silence_duration_ms"),
            ({"turn_detection": {"create_response": "yes"}}, "session.turn_detection.create_response"),
            ({"turn_detection": True}, "session.turn_detection"),
            ({"input_audio_format": "mp3"}, "session.input_audio_format"),
            ({"input_audio_transcription": {"model": 1}}, "session.input_audio_transcription.model"),
        ],
    )
    def test_an_invalid_session_is_refused_and_changes_nothing(self, fields: dict[str, Any], param: str) -> None:
        session = new()
        before = session.config
        error = refusal(session, "session.update", session=fields, event_id="mine")
        assert error["param"] == param
        assert error["event_id"] == "mine"
        assert session.config == before

    def test_no_session_at_all(self) -> None:
        assert refusal(new(), "session.update")["param"] == "session"


class TestAudio:
    def test_pcm_and_telephone(self) -> None:
        session = new()
        samples = np.arange(-5, 5, dtype=np.int16)
        decoded = command(session, "input_audio_buffer.append", audio=base64.b64encode(samples.tobytes()).decode())
        assert isinstance(decoded, AppendAudio)
        assert session.config.input_format.rate_hz == 24_000
        assert decoded.pcm.tolist() == samples.tolist()
        update(session, input_audio_format="g711_ulaw")
        decoded = command(session, "input_audio_buffer.append", audio=base64.b64encode(b"\xff\x00").decode())
        assert isinstance(decoded, AppendAudio)
        assert (session.config.input_format.rate_hz, decoded.pcm.tolist()) == (
            8000,
            g711.ulaw_decode(b"\xff\x00").tolist(),
        )

    def test_bad_audio_is_refused(self) -> None:
        session = new()
        assert "not base64" in refusal(session, "input_audio_buffer.append", audio="!!!!")["message"]
        assert "end inside one" in refusal(session, "input_audio_buffer.append", audio="AAAA")["message"]
        assert "'audio' is missing" in refusal(session, "input_audio_buffer.append")["message"]
        large = base64.b64encode(bytes(15 * 2**20 + 2)).decode()
        assert "at most 15728640" in refusal(session, "input_audio_buffer.append", audio=large)["message"]


class TestOtherCommands:
    def test_plain_ones(self) -> None:
        session = new()
        assert command(session, "input_audio_buffer.commit", event_id="e") == Commit("e")
        assert command(session, "input_audio_buffer.clear") == Clear()
        assert command(session, "response.cancel") == CancelResponse(None)
        assert command(session, "response.cancel", response_id="r", event_id="e") == CancelResponse("r", "e")
        truncate = {"item_id": "i", "content_index": 0, "audio_end_ms": 120}
        assert command(session, "conversation.item.truncate", **truncate) == Truncate("i", 0, 120)

    def test_create_response(self) -> None:
        session = new()
        assert command(session, "response.create") == CreateResponse()
        response = {"metadata": {"a": "b", "n": None}, "instructions": "short", "output_modalities": ["text"]}
        expected = CreateResponse({"a": "b"}, "short", "text", "e")
        assert command(session, "response.create", response=response, event_id="e") == expected
        both = command(session, "response.create", response={"modalities": ["text", "audio"]})
        assert both == CreateResponse(modality="audio")
        assert refusal(session, "response.create", response={"output_modalities": "x"})["param"]

    def test_user_text(self) -> None:
        session = new()
        content = [{"type": "input_text", "text": "one "}, {"type": "input_text", "text": "two"}]
        item = {"type": "message", "role": "user", "content": content}
        decoded = command(session, "conversation.item.create", item=item | {"id": "i"})
        assert decoded == AddUserText("i", "one two")
        decoded = command(session, "conversation.item.create", item=item)
        assert isinstance(decoded, AddUserText)
        assert decoded.item_id.startswith("item_")

    @pytest.mark.parametrize(
        "item",
        [
            None,
            {"type": "function_call_output"},
            {"type": "message", "role": "system", "content": []},
            {"type": "message", "role": "user", "content": []},
            {"type": "message", "role": "user", "content": [{"type": "input_audio"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text"}]},
        ],
    )
    def test_items_that_are_refused(self, item: object) -> None:
        assert refusal(new(), "conversation.item.create", item=item)["code"] == "invalid_event"

    @pytest.mark.parametrize("fields", [{"item_id": "i"}, {"audio_end_ms": 1}, {"item_id": "i", "audio_end_ms": -1}])
    def test_truncations_that_are_refused(self, fields: dict[str, Any]) -> None:
        assert refusal(new(), "conversation.item.truncate", **fields)["code"] == "invalid_event"

    @pytest.mark.parametrize("message", ["", "x", "[]", "{}", '{"type":1}', b"\xff\xfe", b"\x00" * 20, "\ud800"])
    def test_malformed_events_are_refused(self, message: str | bytes) -> None:
        (decoded,) = new().receive(message)
        assert isinstance(decoded, Refused)

    def test_unknown_and_unsupported_events(self) -> None:
        assert "not an event of this protocol" in refusal(new(), "no.such", event_id="e")["message"]
        error = refusal(new(), "transcription_session.update", event_id="e")
        assert "is not supported here" in error["message"]
        assert (error["event_id"], error["code"]) == ("e", "unknown_event")


class TestReply:
    def test_misuse_is_refused(self) -> None:
        reply = new().reply(modality="text")
        with pytest.raises(ValueError, match="text only"):
            reply.audio_delta(np.zeros(4, np.int16))
        reply.done()
        with pytest.raises(ValueError, match="has already ended"):
            reply.done()

    def test_a_reply_cancelled_before_it_began(self) -> None:
        reply = new().reply()
        (done,) = [json.loads(message) for message in reply.done("cancelled", reason="turn_detected")]
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        assert done["response"]["output"] == []


@pytest.mark.parametrize("dialect", [GA, BETA], ids=lambda dialect: dialect.name)
def test_the_two_roles_complete_a_turn_together(dialect: Dialect) -> None:
    """Other tests find symmetric mistakes; this one shows that the two roles work together."""
    options = CallerOptions(turn_control="manual")
    caller, session = OpenAIRealtimeCaller(options, dialect), new(beta=dialect is BETA)
    caller.receive(session.created())
    ((asked,),) = [session.receive(message) for message in caller.pending()]
    assert isinstance(asked, UpdateSession)
    assert session.config.turn_detection is None
    assert caller.receive(session.updated())[0].kind is EventKind.READY
    tone = (3000 * np.sin(np.arange(480) / 9)).astype(np.int16)
    (append,) = session.receive(caller.audio_message(tone))
    assert isinstance(append, AppendAudio)
    assert append.pcm.tolist() == tone.tolist()
    assert [type(c) for m in caller.end_turn() for c in session.receive(m)] == [Commit, CreateResponse]
    reply = session.reply(metadata={"k": "v"})
    messages = [reply.created(), *reply.text_delta("hi"), *reply.audio_delta(tone), *reply.done()]
    events = [event for message in messages for event in caller.receive(message) if event.kind is not EventKind.OTHER]
    assert [str(event.kind) for event in events] == [
        "response_started",
        "llm_text",
        "audio",
        "audio_done",
        "response_done",
    ]
    assert events[2].rate_hz == reply.rate_hz
    assert events[-1].metadata == {"k": "v"}
