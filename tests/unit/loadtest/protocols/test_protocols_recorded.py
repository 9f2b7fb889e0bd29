"""Recorded sessions of third-party servers, and every event against the official client's types."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import TypeAdapter

from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.names import BETA_NAMES, GA_ONLY, ServerEvent
from loadtest.protocols.openai_realtime.service import Retrieve, ServiceSession
from loadtest.protocols.openai_realtime.service_session import Usage
from tests.unit.loadtest.protocols.contract.line import only

FIXTURES = Path(__file__).parents[3] / "fixtures" / "openai_realtime"
UNUSED = EventKind.OTHER


def decoded(name: str) -> tuple[OpenAIRealtimeCaller, list[VoiceEvent]]:
    caller = OpenAIRealtimeCaller(CallerOptions())
    lines = (FIXTURES / name).read_text().splitlines()[1:]
    return caller, [event for line in lines for event in caller.receive(line)]


def kinds(events: list[VoiceEvent]) -> list[str]:
    """Return the kinds in order, without unused events and without adjacent repeats."""
    useful = [str(event.kind) for event in events if event.kind is not UNUSED]
    return [kind for index, kind in enumerate(useful) if index == 0 or useful[index - 1] != kind]


def texts(events: list[VoiceEvent], kind: EventKind) -> list[str | None]:
    return [event.text for event in events if event.kind is kind]


def audio(events: list[VoiceEvent]) -> bytes:
    return b"".join(event.audio or b"" for event in events if event.kind is EventKind.AUDIO)


def test_speech_to_speech() -> None:
    caller, events = decoded("s2s-1.1.0.jsonl")
    assert kinds(events) == [
        "ready",
        "speech_started",
        "asr_partial",
        "speech_stopped",
        "question_named",
        "asr_final",
        "response_started",
        "llm_text",
        "audio",
        "llm_text",
        "audio",
        "audio_done",
        "response_done",
        "error",
    ]
    assert texts(events, EventKind.ASR_FINAL) == ["what is the weather like in paris"]
    assert texts(events, EventKind.LLM_TEXT) == ["It is mild in Paris.", " Take a light coat."]
    # 0.1 s of silence and two tones of 0.5 s, resampled from 16 kHz by the server.
    assert abs(len(audio(events)) / 2 - 1.1 * 24_000) < 240
    assert {event.rate_hz for event in events if event.kind is EventKind.AUDIO} == {24_000}
    done = only(events, EventKind.RESPONSE_DONE)
    assert done.status == "completed"
    assert "stt_s" in json.loads(done.metadata["speech_to_speech.turn_latency"])
    started = only(events, EventKind.RESPONSE_STARTED)
    assert done.response_id == started.response_id
    assert {event.response_id for event in events if event.kind is EventKind.AUDIO} == {done.response_id}
    assert only(events, EventKind.SPEECH_STOPPED).item_id == only(events, EventKind.SPEECH_STARTED).item_id
    refused = only(events, EventKind.ERROR)
    assert refused.message == "Unknown or invalid event: no.such.event (unknown_or_invalid_event)"
    assert not refused.fatal
    assert len(caller.pending()) == 1


def test_beta_names() -> None:
    _, events = decoded("handmade-beta.jsonl")
    assert kinds(events) == [
        "ready",
        "speech_started",
        "speech_stopped",
        "question_named",
        "response_started",
        "llm_text",
        "audio",
        "asr_final",
        "llm_text",
        "audio",
        "audio_done",
        "response_done",
    ]
    assert audio(events) == bytes([1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0])
    assert only(events, EventKind.READY).metadata == {
        "session.id": "sess_b",
        "session.model": "gpt-4o-realtime-preview",
    }
    assert only(events, EventKind.RESPONSE_DONE).usage == {
        "total_tokens": 275,
        "input_tokens": 127,
        "output_tokens": 148,
        "cached_tokens": 64,
        "input_text_tokens": 119,
        "input_audio_tokens": 8,
        "cached_text_tokens": 64,
        "cached_audio_tokens": 0,
        "output_text_tokens": 36,
        "output_audio_tokens": 112,
    }


def test_xai() -> None:
    _, events = decoded("handmade-xai.jsonl")
    assert kinds(events) == [
        "ready",
        "error",
        "speech_started",
        "asr_partial",
        "speech_stopped",
        "asr_final",
        "response_started",
        "llm_text",
        "audio",
        "llm_text",
        "audio_done",
        "response_done",
    ]
    assert texts(events, EventKind.ASR_PARTIAL) == ["what", " is the", "re"]
    assert texts(events, EventKind.LLM_TEXT) == ["No", "thing."]
    assert only(events, EventKind.AUDIO).rate_hz == 16_000
    assert "audio/pcm at 16000 Hz" in (only(events, EventKind.ERROR).message or "")
    assert only(events, EventKind.RESPONSE_STARTED).metadata == {"voice.route": "cloud"}
    assert only(events, EventKind.RESPONSE_DONE).metadata == {"voice.route": "cloud", "voice.cache_hit": "false"}


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_fixture_states_its_origin(path: Path) -> None:
    note = json.loads(path.read_text().splitlines()[0])
    assert "made" in note or note["recorded"]["version"]


SERVER: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
CLIENT: TypeAdapter[Any] = TypeAdapter(RealtimeClientEvent)
TONE = np.arange(480, dtype=np.int16)
USAGE = Usage(
    input_text_tokens=11, input_audio_tokens=40, cached_tokens=16, output_text_tokens=7, output_audio_tokens=30
)


def ids() -> Callable[[str], str]:
    count = itertools.count()
    return lambda prefix: f"{prefix}_{next(count)}"


def strictly(adapter: TypeAdapter[Any], message: str) -> dict[str, Any]:
    """Validate an event, and check that the union picked the model of exactly this event type.

    The types allow extra fields, so a wrong model could otherwise accept the event.
    """
    event = json.loads(message)
    model = adapter.validate_python(event)
    assert model.type == event["type"]
    assert type(model).model_fields["type"].annotation.__args__ == (event["type"],)
    return event


RETRIEVE = '{"type":"conversation.item.retrieve","item_id":"item_t"}'


def whole_session(*, beta: bool = False) -> list[str]:
    """Create a service's messages for a server-VAD turn, a text turn, and everything that can go wrong."""
    session = ServiceSession(ids(), beta=beta)
    messages = [session.created(), session.updated()]
    messages += [
        session.speech_started("item_u", 640),
        session.speech_stopped("item_u", 2240),
        session.committed("item_u", None),
        *session.user_audio_item("item_u", None),
        session.transcription_delta("item_u", "what is"),
        session.transcription_completed("item_u", "what is the time", 1.6),
    ]
    spoken = session.reply(previous_item_id="item_u", metadata={"voice.cohort": "a"})
    messages += [spoken.created(), *spoken.text_delta("It is "), *spoken.audio_delta(TONE), *spoken.text_delta("noon.")]
    messages += spoken.done(usage=USAGE, metadata={"voice.cache_hit": "true"})
    written = session.reply(modality="text")
    messages += [written.created(), *written.text_delta("Noon."), *written.done()]
    for reply in (session.reply(), session.reply()):
        messages += [reply.created(), *reply.done("cancelled", reason="turn_detected")]
    cut = session.reply()
    messages += [cut.created(), *cut.text_delta("It"), *cut.done("cancelled", reason="client_cancelled", usage=USAGE)]
    broken = session.reply()
    messages += [broken.created(), *broken.done("failed", error="the language model did not answer")]
    messages += [
        *session.user_text_item("item_t", "item_u", "and in Paris?"),
        session.truncated(spoken.item_id, 0, 120),
        *(command.reply for command in session.receive(RETRIEVE) if isinstance(command, Retrieve)),
        session.deleted("item_t"),
        session.output_cleared(spoken.response_id),
        session.cleared(),
        session.error("no audio to commit", event_id="mine", code="input_audio_buffer_commit_empty"),
    ]
    return messages


def test_server_events() -> None:
    for message in whole_session():
        strictly(SERVER, message)


def test_the_session_above_contains_every_event_that_we_can_send() -> None:
    sent = {json.loads(message)["type"] for message in whole_session()}
    never = {
        ServerEvent.CONVERSATION_CREATED,
        ServerEvent.TRANSCRIPTION_UPDATED,
        ServerEvent.TRANSCRIPTION_FAILED,
        ServerEvent.RATE_LIMITS,
        ServerEvent.REASONING_DELTA,
        ServerEvent.PING,
    }
    assert sent == {str(event) for event in ServerEvent} - never


def test_session_objects_are_read_back_by_the_official_types() -> None:
    created = SERVER.validate_json(whole_session()[0])
    assert created.session.audio.input.format.type == "audio/pcm"
    assert created.session.audio.input.format.rate == 24_000
    assert created.session.audio.input.turn_detection.silence_duration_ms == 500
    assert created.session.output_modalities == ["audio"]


def test_the_response_is_read_back_by_the_official_types() -> None:
    done = next(e for m in whole_session() if (e := SERVER.validate_json(m)).type == "response.done")
    assert done.response.status == "completed"
    assert done.response.output[0].content[0].transcript == "It is noon."
    assert done.response.output[0].content[0].type == "output_audio"
    assert done.response.metadata == {"voice.cohort": "a", "voice.cache_hit": "true"}
    assert done.response.usage.total_tokens == 88
    assert done.response.usage.input_token_details.cached_tokens == 16


def test_event_ids_are_unique() -> None:
    seen = [json.loads(message)["event_id"] for message in whole_session()]
    assert len(set(seen)) == len(seen)


def test_beta_clients_get_beta_names_only() -> None:
    sent = {json.loads(message)["type"] for message in whole_session(beta=True)}
    assert set(BETA_NAMES.values()) <= sent
    assert not sent & {str(event) for event in BETA_NAMES.keys() | GA_ONLY}


def test_beta_session_and_response_are_flat() -> None:
    events = [json.loads(message) for message in whole_session(beta=True)]
    session = events[0]["session"]
    assert session["input_audio_format"] == session["output_audio_format"] == "pcm16"
    assert session["modalities"] == ["audio", "text"]
    assert "audio" not in session
    done = next(event for event in events if event["type"] == "response.done")["response"]
    assert done["output"][0]["content"][0]["type"] == "audio"
    assert done["modalities"] == ["audio", "text"]


OPTIONS = {
    "defaults": CallerOptions(),
    "manual": CallerOptions(turn_control="manual"),
    "silence": CallerOptions(silence_duration_ms=300),
    "all": CallerOptions(
        model="m",
        transcription_model="whisper-1",
        settings={"session": {"instructions": "Be brief.", "audio": {"output": {"voice": "alloy"}}}},
    ),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_client_events(options: CallerOptions) -> None:
    caller = OpenAIRealtimeCaller(options)
    caller.receive('{"type":"session.created","session":{}}')
    (update,) = caller.pending()
    caller.receive('{"type":"response.created","response":{"id":"resp_1"}}')
    delta = {"type": "response.output_audio.delta", "response_id": "resp_1", "item_id": "item_1", "delta": "AAAAAA=="}
    caller.receive(json.dumps(delta))
    sent = [update, caller.audio_message(TONE).decode(), *caller.end_turn(), *caller.interrupt(0), *caller.goodbye()]
    for message in sent:
        assert isinstance(message, str)
        strictly(CLIENT, message)
    types = [json.loads(message)["type"] for message in sent]
    assert types[:2] == ["session.update", "input_audio_buffer.append"]
    assert types[-2:] == ["response.cancel", "conversation.item.truncate"]


def test_the_session_update_is_read_by_the_official_types() -> None:
    caller = OpenAIRealtimeCaller(OPTIONS["silence"])
    caller.receive('{"type":"session.created"}')
    session = CLIENT.validate_json(str(caller.pending()[0])).session
    assert session.audio.input.format.type == "audio/pcm"
    assert session.audio.output.format.type == "audio/pcm"
    assert session.audio.input.turn_detection.silence_duration_ms == 300
    assert session.audio.input.transcription.model == "gpt-4o-mini-transcribe"
