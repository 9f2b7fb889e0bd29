"""What a caller of an ElevenLabs agent sends first, and its settings."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.registry import guess, make_caller
from tests.g711_reference import ULAW
from tests.unit.loadtest.protocols.contract.scripts.elevenlabs import EVERY_EVENT

TRACE = f"00-{1:032x}-{2:016x}-01"
EVENTFUL = {"client_events": EVERY_EVENT}


def first(**options: Any) -> dict[str, Any]:
    caller = make_caller("elevenlabs", CallerOptions(**options))
    caller.upgrade("wss://h/", TRACE)
    (opening,) = caller.opened()
    return json.loads(opening)  # type: ignore[arg-type]


def test_the_trace_goes_by_header_and_as_a_dynamic_variable() -> None:
    caller = make_caller("elevenlabs", CallerOptions(token="sk", headers=(("x-tenant", "a"),)))
    request = caller.upgrade("wss://h/v1/convai/conversation?agent_id=a", TRACE)
    assert request.url == "wss://h/v1/convai/conversation?agent_id=a"
    assert request.headers == (("xi-api-key", "sk"), ("traceparent", TRACE), ("x-tenant", "a"))
    opening = json.loads(caller.opened()[0])  # type: ignore[arg-type]
    assert opening["dynamic_variables"] == {"traceparent": TRACE}
    assert opening["custom_llm_extra_body"] == {}


def test_the_trace_goes_to_the_language_model_only_if_asked() -> None:
    assert first(settings={"trace_in_llm_body": True})["custom_llm_extra_body"] == {"traceparent": TRACE}


def test_without_a_trace_none_is_sent() -> None:
    caller = make_caller("elevenlabs", CallerOptions())
    assert caller.upgrade("wss://h/", None).headers == ()
    assert json.loads(caller.opened()[0])["dynamic_variables"] == {}  # type: ignore[arg-type]


def test_what_a_setting_overrides_wins_and_nothing_is_overridden_unasked() -> None:
    assert first()["conversation_config_override"] == {}
    overrides = {"agent": {"prompt": {"llm": "other"}, "language": "de"}}
    found = first(model="gpt", instructions="Be brief.", settings={"overrides": overrides})
    prompt = {"prompt": "Be brief.", "llm": "other"}
    assert found["conversation_config_override"] == {"agent": {"prompt": prompt, "language": "de"}}


def test_a_frame_has_the_format_of_the_settings() -> None:
    tone = (8000 * np.sin(np.arange(160))).astype(np.int16)
    caller = make_caller("elevenlabs", CallerOptions(settings={"user_input_audio_format": "ulaw_8000"}))
    assert caller.capabilities.input_rate_hz == 8000
    frame = json.loads(caller.audio_message(tone))
    assert list(frame) == ["user_audio_chunk"]
    encoded = base64.b64decode(frame["user_audio_chunk"])
    assert list(encoded) == [ULAW.encode(int(sample)) for sample in tone]


# Settings.


def test_all_faults_are_reported_at_once() -> None:
    options = CallerOptions(
        turn_control="manual",
        transcription_model="scribe",
        silence_duration_ms=200,
        output_format="pcmu",
        metadata=(("traceparent", "x"),),
        settings={
            "user_input_audio_format": "mp3_44100",
            "frame_ms": 25,
            "client_events": ["interruption", "tentativ"],
            "overrides": {"conversation": {"text_only": True}},
            "dynamic_variables": {"system__time": "now"},
            "initiation": {"dynamic_variables": {}},
            "color": "red",
        },
    )
    with pytest.raises(UsageError) as caught:
        make_caller("elevenlabs", options)
    lines = str(caught.value).splitlines()
    wanted = [
        "'transcription_model'",
        "'silence_duration_ms'",
        "'manual'",
        "formats",
        "traceparent",
        "'user_input_audio_format'",
        "'frame_ms'",
        "tentativ",
        "text_only",
        "system__time",
        "dynamic_variables",
        "'color'",
    ]
    assert len(lines) == len(wanted)
    for line, word in zip(lines, wanted, strict=True):
        assert line.startswith("elevenlabs: ")
        assert word in line


def test_an_agent_without_audio_cannot_be_called() -> None:
    with pytest.raises(UsageError, match="'audio' is missing"):
        make_caller("elevenlabs", CallerOptions(settings={"client_events": ["interruption"]}))


def test_the_trace_is_no_setting() -> None:
    with pytest.raises(UsageError, match="the callers set traceparent themselves"):
        make_caller("elevenlabs", CallerOptions(settings={"dynamic_variables": {"traceparent": "x"}}))


@pytest.mark.parametrize(
    "url",
    [
        "wss://api.elevenlabs.io/v1/convai/conversation?agent_id=a",
        "wss://api.us.elevenlabs.io/v1/convai/conversation",
        "wss://api.eu.residency.elevenlabs.io/anything",
        "ws://127.0.0.1:9000/v1/convai/conversation?agent_id=a&conversation_signature=c",
    ],
)
def test_the_address_names_the_protocol(url: str) -> None:
    assert guess(url) == "elevenlabs"


def test_what_can_be_observed_follows_from_the_agents_events() -> None:
    usual = make_caller("elevenlabs", CallerOptions()).capabilities
    assert usual.reply_end == "silence"
    assert {"endpointing", "asr_partial_latency", "llm_first_token_latency", "itl"} <= set(usual.not_observable)
    assert {"asr_final_latency", "voice_to_voice"}.isdisjoint(usual.not_observable)
    every = make_caller("elevenlabs", CallerOptions(settings=EVENTFUL)).capabilities
    assert (every.reply_end, set(every.not_observable)) == ("event", {"endpointing"})
