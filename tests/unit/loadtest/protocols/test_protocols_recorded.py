"""The caller decodes recorded sessions of third-party servers, and handwritten sessions of other dialects."""

import json
from pathlib import Path

import pytest

from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller

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


def of_kind(events: list[VoiceEvent], kind: EventKind) -> VoiceEvent:
    (event,) = [event for event in events if event.kind is kind]
    return event


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
    done = of_kind(events, EventKind.RESPONSE_DONE)
    assert done.status == "completed"
    assert "stt_s" in json.loads(done.metadata["speech_to_speech.turn_latency"])
    started = of_kind(events, EventKind.RESPONSE_STARTED)
    assert done.response_id == started.response_id
    assert {event.response_id for event in events if event.kind is EventKind.AUDIO} == {done.response_id}
    assert of_kind(events, EventKind.SPEECH_STOPPED).item_id == of_kind(events, EventKind.SPEECH_STARTED).item_id
    refused = of_kind(events, EventKind.ERROR)
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
    assert of_kind(events, EventKind.READY).metadata == {
        "session.id": "sess_b",
        "session.model": "gpt-4o-realtime-preview",
    }
    assert of_kind(events, EventKind.RESPONSE_DONE).usage == {
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
    assert of_kind(events, EventKind.AUDIO).rate_hz == 16_000
    assert "audio/pcm at 16000 Hz" in (of_kind(events, EventKind.ERROR).message or "")
    assert of_kind(events, EventKind.RESPONSE_STARTED).metadata == {"voice.route": "cloud"}
    assert of_kind(events, EventKind.RESPONSE_DONE).metadata == {"voice.route": "cloud", "voice.cache_hit": "false"}


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_fixture_states_its_origin(path: Path) -> None:
    note = json.loads(path.read_text().splitlines()[0])
    assert "made" in note or note["recorded"]["version"]
