"""Dialects of OpenAI Realtime: opening, requests and events; tools answered by results from the settings.

Run as a program, it writes the messages for tests/integration/recorders/record_xai.py.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai.types.beta.realtime import SessionUpdateEvent as BetaSessionUpdate
from openai.types.realtime import RealtimeClientEvent
from pydantic import TypeAdapter

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.dialects import BETA, DIALECTS

CLIENT: TypeAdapter[Any] = TypeAdapter(RealtimeClientEvent)
FIXTURES = Path(__file__).parents[3] / "fixtures" / "openai_realtime"


def make(dialect: str, *, settings: dict[str, Any] | None = None, **options: Any) -> OpenAIRealtimeCaller:
    return OpenAIRealtimeCaller(CallerOptions(settings={"dialect": dialect, **(settings or {})}, **options))


def update(caller: OpenAIRealtimeCaller) -> str:
    caller.receive('{"type":"session.created","session":{}}')
    (message,) = caller.pending()
    assert isinstance(message, str)
    return message


def session(dialect: str, *, settings: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return json.loads(update(make(dialect, settings=settings, **options)))["session"]


@pytest.mark.parametrize(
    ("dialect", "url", "opened"),
    [
        ("openai", "wss://h", "wss://h/v1/realtime?model=m"),
        ("openai", "wss://h/own?model=x", "wss://h/own?model=x"),
        ("azure", "wss://r.example", "wss://r.example/openai/v1/realtime?model=m"),
        (
            "azure-preview",
            "wss://r.example/",
            "wss://r.example/openai/realtime?api-version=2025-04-01-preview&deployment=m",
        ),
        (
            "azure-preview",
            "wss://r.example/?api-version=2024-10-01",
            "wss://r.example/openai/realtime?api-version=2024-10-01&deployment=m",
        ),
        ("xai", "wss://h", "wss://h/v1/realtime?model=m"),
        ("localai", "ws://h:8080", "ws://h:8080/v1/realtime?model=m"),
        ("speaches", "ws://h:8000/v1/realtime", "ws://h:8000/v1/realtime?model=m"),
    ],
)
def test_the_address_is_completed_by_what_it_lacks(dialect: str, url: str, opened: str) -> None:
    assert make(dialect, model="m").upgrade(url, None).url == opened


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_token_is_in_the_header_that_the_server_reads(dialect: str) -> None:
    headers = make(dialect, token="s3cret", settings={"headers": {"X-Tenant": "7"}}).upgrade("wss://h/", "00-a").headers
    expected = ("api-key", "s3cret") if dialect.startswith("azure") else ("Authorization", "Bearer s3cret")
    assert expected in headers
    assert ("X-Tenant", "7") in headers
    assert ("traceparent", "00-a") in headers
    assert (("OpenAI-Beta", "realtime=v1") in headers) is (dialect == "openai-beta")


@pytest.mark.parametrize("dialect", ["openai", "azure", "localai", "speech-to-speech"])
def test_a_ga_session_is_read_by_the_official_types(dialect: str) -> None:
    settings = {"session": {"audio": {"output": {"voice": "alto"}}}}
    event = CLIENT.validate_json(update(make(dialect, settings=settings, transcription_model="t")))
    assert event.session.type == "realtime"
    assert event.session.audio.output.voice == "alto"
    assert event.session.audio.input.transcription.model == "t"


@pytest.mark.parametrize("dialect", ["openai-beta", "azure-preview", "speaches"])
def test_a_beta_session_is_read_by_the_official_types(dialect: str) -> None:
    asked = BetaSessionUpdate.model_validate_json(
        update(make(dialect, settings={"session": {"voice": "alto"}}, transcription_model="t"))
    ).session
    assert (asked.voice, asked.input_audio_transcription and asked.input_audio_transcription.model) == ("alto", "t")
    assert asked.turn_detection is not None
    assert asked.turn_detection.type == "server_vad"


def test_pipeline_keeps_own_transcription_unless_other_is_given() -> None:
    assert "transcription" not in session("localai")["audio"]["input"]
    assert "input_audio_transcription" not in session("speaches")
    assert session("localai", transcription_model="w")["audio"]["input"]["transcription"] == {"model": "w"}


def test_speaches_is_sent_nothing_that_it_answers_with_an_error() -> None:
    asked = session("speaches", silence_duration_ms=300)
    assert not {"input_audio_format", "output_audio_format"} & set(asked)
    assert asked["turn_detection"] == {"type": "server_vad", "silence_duration_ms": 300}
    assert make("speaches").capabilities.turn_controls == {"server"}


def xai(**settings: Any) -> OpenAIRealtimeCaller:
    session = {"voice": "eve", "instructions": "Be brief."}
    return make("xai", settings={"session": session, **settings}, silence_duration_ms=400)


def test_an_xai_session_is_read_by_pipecats_types() -> None:
    recorded = json.loads((FIXTURES / "xai-1.14.0.json").read_text())
    assert update(xai(binary_audio=True)) == recorded["given"], "record the fixture again"
    understood = recorded["understood"]
    assert understood["voice"] == "eve"
    assert understood["instructions"] == "Be brief."
    assert understood["turn_detection"] == {"type": "server_vad", "silence_duration_ms": 400}
    audio = understood["audio"]
    assert audio["input"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "transcription": {"model": "grok-transcribe"},
        "transport": "binary",
    }
    assert audio["output"] == {"format": {"type": "audio/pcm", "rate": 24000}, "transport": "binary"}


def test_pipecat_types_know_each_message_of_handmade_xai_session() -> None:
    recorded = json.loads((FIXTURES / "xai-1.14.0.json").read_text())
    assert len(recorded["server"]) == len((FIXTURES / "handmade-xai.jsonl").read_text().splitlines()) - 1


def test_binary_audio_goes_both_ways() -> None:
    caller = xai(binary_audio=True)
    update(caller)
    caller.receive('{"type":"session.updated","session":{}}')
    assert not caller.capabilities.audio_is_text
    frame = np.arange(480, dtype=np.int16)
    assert caller.audio_message(frame) == frame.astype("<i2").tobytes()
    caller.receive('{"type":"response.created","response":{"id":"r"}}')
    (event,) = caller.receive(b"\x01\x02{}")
    assert (event.kind, event.response_id, event.audio) == (EventKind.AUDIO, "r", b"\x01\x02{}")
    assert "transport" not in session("xai")["audio"]["input"]


def test_a_template_is_laid_over_the_session() -> None:
    template = {"audio": {"input": {"turn_detection": {"threshold": 0.7}, "noise_reduction": None}}, "temperature": 1}
    asked = session("openai", settings={"session": template})
    assert asked["audio"]["input"]["turn_detection"] == {"type": "server_vad", "threshold": 0.7}
    assert asked["audio"]["input"]["noise_reduction"] is None
    assert asked["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}
    assert asked["temperature"] == 1


@pytest.mark.parametrize(
    ("dialect", "settings", "expected"),
    [
        ("nothing", {}, "known dialects: openai, openai-beta, azure"),
        ("openai", {"session": {"audio": {"input": {"format": {"type": "audio/pcmu"}}}}}, "audio.input.format"),
        ("openai", {"session": {"type": "transcription"}}, "type is what the callers choose"),
        ("openai", {"headers": {"Authorization": "Bearer x"}}, "VOICEPROBE_TOKEN"),
        ("openai", {"headers": {"Host": "x"}}, "belongs to the WebSocket handshake"),
        ("azure", {"binary_audio": True}, "binary: xai"),
        ("openai", {"tool": {}}, "there is no setting 'tool'"),
    ],
)
def test_settings_that_cannot_be_used_are_reported(dialect: str, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        make(dialect, settings=settings)
    assert expected in str(raised.value)


def test_unsupported_dialect_options_are_reported_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        make("speaches", turn_control="manual", settings={"binary_audio": True})
    assert len(str(raised.value).splitlines()) == 2
    with pytest.raises(UsageError, match="a dialect of its own"):
        OpenAIRealtimeCaller(CallerOptions(settings={"dialect": "azure"}), BETA)


CALL = {"type": "function_call", "id": "item_1", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Ulm"}'}


def answered(tools: dict[str, Any], *, output: bool, times: int = 1) -> tuple[list[Any], list[dict[str, Any]]]:
    """The events of a response with a tool call, and what the caller sends for it."""
    caller = make("openai", settings={"tools": tools})
    update(caller)
    caller.receive('{"type":"response.created","response":{"id":"r"}}')
    announced = {"type": "response.output_item.added", "response_id": "r", "item": {**CALL, "name": None}}
    done = {"type": "response.output_item.done", "response_id": "r", "item": CALL}
    events: list[Any] = []
    for message in (announced, *([done] * times)):
        events += caller.receive(json.dumps(message))
    response = {"id": "r", "status": "completed", "output": [CALL] if output else []}
    events += caller.receive(json.dumps({"type": "response.done", "response": response}))
    return events, [json.loads(message) for message in caller.pending() if isinstance(message, str)]


@pytest.mark.parametrize("output", [True, False])
@pytest.mark.parametrize(
    ("tools", "result"), [({"weather": {"c": 21}}, '{"c":21}'), ({"*": "sunny", "other": 1}, "sunny")]
)
def test_a_tool_is_answered_by_its_canned_result(tools: dict[str, Any], result: str, output: bool) -> None:
    events, sent = answered(tools, output=output, times=2)
    assert [message["type"] for message in sent] == ["conversation.item.create", "response.create"]
    for message in sent:
        CLIENT.validate_python(message)
    assert sent[0]["item"] == {"type": "function_call_output", "call_id": "call_1", "output": result}
    assert sent[1]["response"] == {}
    (done,) = [event for event in events if event.kind is EventKind.RESPONSE_DONE]
    assert done.owes_response, "the conversation waits for the answer with the result"


def test_tool_without_result_is_error_only_if_results_exist() -> None:
    events, sent = answered({"other": 1}, output=True)
    (error,) = [event for event in events if event.kind is EventKind.ERROR]
    assert "'weather'" in error.message
    assert error.failure.code == "unknown_tool"
    assert sent == []
    events, sent = answered({}, output=True)
    assert sent == []
    assert EventKind.ERROR not in [event.kind for event in events], "the endpoint may run its tools itself"


if __name__ == "__main__":
    server = (FIXTURES / "handmade-xai.jsonl").read_text().splitlines()[1:]
    Path(sys.argv[1]).write_text(json.dumps({"session.update": update(xai(binary_audio=True)), "server": server}))
