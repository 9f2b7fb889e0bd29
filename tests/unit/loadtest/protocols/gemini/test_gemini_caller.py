"""The caller of Gemini Live: its settings and messages, compared with what the vendor's client makes of the same.

Recorded from google-genai 3.4.0 by tests/integration/recorders/record_gemini.py, which
tests/integration/wires/test_gemini_wire.py repeats with the installed package.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText, VoiceEvent
from loadtest.protocols.failure import Failure
from loadtest.protocols.gemini.caller import GeminiCaller

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HOST = "generativelanguage.googleapis.com"
SERVICE = "google.ai.generativelanguage"

VOICE = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Puck"}}}


def setup_of(options: CallerOptions, url: str = f"wss://{HOST}") -> dict[str, Any]:
    caller = GeminiCaller(options)
    caller.upgrade(url, None)
    (message,) = caller.opened()
    return json.loads(str(message))["setup"]


@pytest.mark.parametrize(
    ("url", "token", "completed", "header"),
    [
        (
            f"wss://{HOST}",
            "key-1",
            f"wss://{HOST}/ws/{SERVICE}.v1.GenerativeService.BidiGenerateContent",
            ("x-goog-api-key", "key-1"),
        ),
        (
            f"wss://{HOST}/",
            "auth_tokens/7",
            f"wss://{HOST}/ws/{SERVICE}.v1alpha.GenerativeService.BidiGenerateContentConstrained",
            ("Authorization", "Token auth_tokens/7"),
        ),
        (
            "wss://europe-west4-aiplatform.googleapis.com",
            "ya29.a",
            "wss://europe-west4-aiplatform.googleapis.com"
            "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent",
            ("Authorization", "Bearer ya29.a"),
        ),
        ("wss://gateway.example/live?key=k", "key-1", "wss://gateway.example/live?key=k", None),
        (
            "wss://gateway.example/live?alt=ws",
            "key-1",
            "wss://gateway.example/live?alt=ws",
            ("x-goog-api-key", "key-1"),
        ),
        ("wss://gateway.example/live", None, "wss://gateway.example/live", None),
    ],
)
def test_address_is_completed_and_key_is_where_service_reads_it(
    url: str, token: str | None, completed: str, header: tuple[str, str] | None
) -> None:
    request = GeminiCaller(CallerOptions(token=token, headers=(("x-own", "1"),))).upgrade(url, TRACE)
    assert request.url == completed
    expected = [*([] if header is None else [header]), ("traceparent", TRACE), ("x-own", "1")]
    assert list(request.headers) == expected


def test_trace_is_only_in_header_and_absent_without_one() -> None:
    caller = GeminiCaller(CallerOptions(model="m"))
    assert caller.upgrade(f"wss://{HOST}", None).headers == ()
    caller.upgrade(f"wss://{HOST}", TRACE)
    sent = [*caller.opened(), *caller.begin_turn(SpokenText("x")), *caller.goodbye()]
    assert not any("0af7651916cd43dd" in str(message) for message in sent)


def test_the_version_of_an_address_without_a_path_is_a_setting() -> None:
    caller = GeminiCaller(CallerOptions(settings={"api_version": "v1alpha"}))
    assert "/ws/google.ai.generativelanguage.v1alpha." in caller.upgrade(f"wss://{HOST}", None).url


def test_setup_has_chosen_options_and_leaves_rest_to_service() -> None:
    assert setup_of(CallerOptions(model="gemini-live")) == {
        "model": "models/gemini-live",
        "generationConfig": {"responseModalities": ["AUDIO"]},
        "inputAudioTranscription": {},
        "outputAudioTranscription": {},
    }
    options = CallerOptions(
        model="models/gemini-live",
        silence_duration_ms=300,
        settings={
            "language": "de-DE",
            "start_sensitivity": "high",
            "end_sensitivity": "low",
            "prefix_padding_ms": 20,
            "interruptible": False,
            "output_transcription": False,
            "voice_activity": True,
            "setup": {
                "generationConfig": {"temperature": 0, "speechConfig": VOICE},
                "systemInstruction": {"parts": [{"text": "Be brief."}], "role": "user"},
                "tools": [{"googleSearch": {}}],
            },
        },
    )
    assert setup_of(options) == {
        "model": "models/gemini-live",
        "generationConfig": {
            "responseModalities": ["AUDIO"],
            "speechConfig": {**VOICE, "languageCode": "de-DE"},
            "temperature": 0,
        },
        "systemInstruction": {"parts": [{"text": "Be brief."}], "role": "user"},
        "realtimeInputConfig": {
            "automaticActivityDetection": {
                "startOfSpeechSensitivity": "START_SENSITIVITY_HIGH",
                "endOfSpeechSensitivity": "END_SENSITIVITY_LOW",
                "prefixPaddingMs": 20,
                "silenceDurationMs": 300,
            },
            "activityHandling": "NO_INTERRUPTION",
        },
        "inputAudioTranscription": {},
        "explicitVadSignal": True,
        "tools": [{"googleSearch": {}}],
    }


def test_models_have_full_names() -> None:
    enterprise = "wss://us-central1-aiplatform.googleapis.com"
    assert setup_of(CallerOptions(model="m"), enterprise)["model"] == "publishers/google/models/m"
    assert setup_of(CallerOptions(model="projects/p/models/m"), enterprise)["model"] == "projects/p/models/m"
    assert "model" not in setup_of(CallerOptions()), "the service says itself that it is missing"


def test_manual_turns_mark_speech_and_never_end_the_stream() -> None:
    caller = GeminiCaller(CallerOptions("manual", model="m"))
    (message,) = caller.opened()
    assert json.loads(str(message))["setup"]["realtimeInputConfig"] == {
        "automaticActivityDetection": {"disabled": True}
    }
    (begin,), (end,) = caller.begin_turn(SpokenText("x")), caller.end_turn()
    assert json.loads(str(begin)) == {"realtimeInput": {"activityStart": {}}}
    assert json.loads(str(end)) == {"realtimeInput": {"activityEnd": {}}}
    assert caller.goodbye() == (), "audioStreamEnd belongs to automatic detection only"


def test_automatic_detection_announces_only_end_of_stream() -> None:
    caller = GeminiCaller(CallerOptions(model="m"))
    assert caller.begin_turn(SpokenText("x")) == ()
    assert caller.end_turn() == ()
    (goodbye,) = caller.goodbye()
    assert json.loads(str(goodbye)) == {"realtimeInput": {"audioStreamEnd": True}}


def test_a_frame_is_pcm_at_16_khz_and_the_same_for_every_caller() -> None:
    caller = GeminiCaller(CallerOptions())
    assert (caller.capabilities.input_rate_hz, caller.capabilities.frame_ms) == (16_000, 20)
    frame = json.loads(caller.audio_message(np.array([1, -2], np.int16)))
    audio = frame["realtimeInput"]["audio"]
    assert audio == {"mimeType": "audio/pcm;rate=16000", "data": base64.b64encode(b"\1\0\xfe\xff").decode()}
    assert caller.audio_head() is None


def test_all_faults_of_settings_are_reported_at_once() -> None:
    settings = {
        "voice_activty": True,
        "replies": "video",
        "setup": {"model": "m", "generation_config": {}, "generationConfig": {"responseModalities": ["TEXT"]}},
    }
    with pytest.raises(UsageError) as caught:
        GeminiCaller(CallerOptions(transcription_model="t", settings=settings))
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert "'transcription_model'" in lines[0]
    text = "\n".join(lines[1:])
    assert "there is no setting 'voice_activty'; known: api_version, " in text
    assert "the setting 'replies' is not valid: input should be 'audio' or 'text'" in text
    assert "model follows from options" in text
    assert "generationConfig.responseModalities follows from options" in text
    assert "write the names as the wire does: generation_config" in text


def test_detection_settings_are_refused_with_manual_turns() -> None:
    settings = {"start_sensitivity": "low", "prefix_padding_ms": 0, "voice_activity": True}
    with pytest.raises(UsageError) as caught:
        GeminiCaller(CallerOptions("manual", settings=settings))
    assert [line.split("'")[1] for line in str(caught.value).splitlines()] == [
        "start_sensitivity",
        "prefix_padding_ms",
        "voice_activity",
    ]


@pytest.mark.parametrize(
    ("options", "hidden", "shown"),
    [
        (CallerOptions(), {"endpointing", "llm_first_token_latency", "itl"}, {"voice_to_voice", "wer"}),
        (CallerOptions("manual"), {"endpointing"}, {"asr_final_latency"}),
        (CallerOptions(settings={"voice_activity": True}), {"llm_ttft"}, {"endpointing", "barge_in_stop"}),
        (
            CallerOptions(settings={"replies": "text"}),
            {"voice_to_voice", "barge_in_stop"},
            {"llm_first_token_latency", "llm_ttft"},
        ),
        (
            CallerOptions(settings={"input_transcription": False}),
            {"wer", "asr_partial_latency", "asr_final_latency"},
            {"voice_to_voice"},
        ),
    ],
)
def test_observable_metrics_follow_from_settings(options: CallerOptions, hidden: set[str], shown: set[str]) -> None:
    declared = GeminiCaller(options).capabilities.not_observable
    assert hidden <= set(declared)
    assert not shown & set(declared)


@pytest.mark.parametrize(
    ("code", "reason", "cause"),
    [
        # A real one, cut off where a close frame ends: 123 bytes.
        (
            1011,
            "Request trace id: f1, [ORIGINAL ERROR] generic::resource_exhausted: RESOURCE_EXHAUSTED: Maximum concurr",
            Failure("endpoint_error", "RESOURCE_EXHAUSTED"),
        ),
        (
            1011,
            "You exceeded your current quota, please check your plan and billing details.",
            Failure("endpoint_error", "RESOURCE_EXHAUSTED"),
        ),
        (1011, "Internal error encountered.", None),
        (1007, "API key not valid. Please pass a valid API key.", None),
        (1008, "models/gemini-none is not found for API version v1beta", None),
    ],
)
def test_limit_is_distinguished_from_internal_error_by_reason(code: int, reason: str, cause: Failure | None) -> None:
    actual = GeminiCaller(CallerOptions()).close_cause(code, reason)
    assert actual == cause


FIXTURE = Path(__file__).parents[4] / "fixtures" / "gemini" / "google-genai-3.4.0.json"
NAMES = ("at once", "in words", "after a tool", "until it is stopped", "manual")
every_session = pytest.mark.parametrize("name", NAMES)
# The types' counts of tokens and ours.
COUNTS = {
    "prompt_token_count": "input_tokens",
    "response_token_count": "output_tokens",
    "total_token_count": "total_tokens",
    "cached_content_token_count": "cached_tokens",
}


@cache
def recording() -> dict[str, Any]:
    return json.loads(FIXTURE.read_text())


def session(name: str) -> dict[str, Any]:
    (recorded,) = [entry for entry in recording()["sessions"] if entry["name"] == name]
    return recorded


def caller(name: str) -> GeminiCaller:
    """A caller with the options that the vendor's client had."""
    manual = name == "manual"
    options = CallerOptions(
        "manual" if manual else "server",
        model="gemini-live",
        silence_duration_ms=None if manual else 300,
        token="key-1",
        settings={
            "language": "en-US",
            "voice_activity": name == "in words",
            "setup": {
                "generationConfig": {"speechConfig": VOICE},
                "systemInstruction": {"parts": [{"text": name}], "role": "user"},
                "tools": [{"functionDeclarations": [{"name": "light"}]}],
            },
            "tools": {"light": {"state": "on"}},
        },
    )
    return GeminiCaller(options)


def camel(value: Any) -> Any:
    """A JSON value with names as the wire has them: the vendor's client writes both kinds."""
    if isinstance(value, list):
        return [camel(element) for element in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    renamed: dict[str, Any] = {}
    for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
        head, *rest = str(name).split("_")  # pyright: ignore[reportUnknownArgumentType]
        renamed["".join((head, *(word.title() for word in rest)))] = camel(inner)
    return renamed


def sent_by_vendor(name: str) -> dict[str, Any]:
    """Return what the client sent, by the member of the message."""
    merged: dict[str, Any] = {}
    for message in camel(session(name)["sent"]):
        ((place, inner),) = message.items()
        merged |= inner if place == "realtimeInput" else {place: inner}
    return merged


def compare(parsed: Mapping[str, Any], events: Sequence[VoiceEvent]) -> None:
    """The vendor's reading of one message, and ours."""
    kinds = [event.kind for event in events]
    content: Mapping[str, Any] = parsed.get("server_content", {})
    heard = b"".join(event.audio or b"" for event in events if event.kind is EventKind.AUDIO)
    assert heard == base64.b64decode(parsed["data"])
    for part in content.get("model_turn", {}).get("parts", []):
        stated = part["inline_data"]["mime_type"].partition("rate=")[2]
        assert {event.rate_hz for event in events if event.audio} == {int(stated or 24_000)}
    assert (EventKind.CLEAR in kinds) == bool(content.get("interrupted"))
    ended = bool(content.get("generation_complete") or content.get("interrupted"))
    assert (EventKind.RESPONSE_DONE in kinds) == ended
    transcription = content.get("input_transcription", {})
    partial = content.get("interim_input_transcription") or ({} if transcription.get("finished") else transcription)
    assert "".join(event.text or "" for event in events if event.kind is EventKind.ASR_PARTIAL) == partial.get(
        "text", ""
    )
    if transcription.get("finished"):
        assert [event.text for event in events if event.kind is EventKind.ASR_FINAL] == [transcription["text"]]
    activity = parsed.get("voice_activity", {}).get("voice_activity_type")
    assert (EventKind.SPEECH_STARTED in kinds) == (activity == "ACTIVITY_START")
    assert (EventKind.SPEECH_STOPPED in kinds) == (activity == "ACTIVITY_END")
    usage = parsed.get("usage_metadata", {})
    counted = {COUNTS[key]: value for key, value in usage.items() if key in COUNTS}
    for details in usage.get("prompt_tokens_details", []):
        counted[f"input_{details['modality'].lower()}_tokens"] = details["token_count"]
    assert [dict(event.usage) for event in events if event.usage] == ([counted] if counted else [])
    assert EventKind.ERROR not in kinds
    assert EventKind.UNKNOWN not in kinds


@every_session
def test_both_make_the_same_of_every_message(name: str) -> None:
    ours, recorded = caller(name), session(name)
    (ready,) = ours.receive(recorded["ready"]["message"].encode())
    assert ready.metadata == {"session.id": recorded["ready"]["session_id"]}
    ours.begin_turn(SpokenText("turn the light on"))
    answers: list[Any] = []
    for entry in recorded["received"]:
        events = ours.receive(entry["message"].encode())
        compare(entry["parsed"], events)
        if "tool_call" in entry["parsed"]:
            assert events[0].kind is EventKind.RESPONSE_STARTED
            answers += ours.pending()
    assert [json.loads(answer)["toolResponse"] for answer in answers] == [
        inner for place, inner in sent_by_vendor(name).items() if place == "toolResponse"
    ]


@every_session
def test_message_rewritten_by_vendor_types_is_equivalent(name: str) -> None:
    """The types write URL-safe base64 and names with underscores, and wrap nothing else otherwise."""
    theirs, ours = caller(name), caller(name)
    for entry in session(name)["received"]:
        parsed = {key: value for key, value in entry["parsed"].items() if key not in ("data", "text")}
        assert ours.receive(json.dumps(parsed)) == theirs.receive(entry["message"])


@every_session
def test_both_open_the_session_alike(name: str) -> None:
    ours, opened = caller(name), session(name)["opened"]
    request = ours.upgrade("wss://localhost", None)
    assert request.url == f"wss://localhost{opened['path']}"
    assert dict(request.headers) == opened["headers"]
    (setup,) = ours.opened()
    sent = json.loads(str(setup))["setup"]
    assert sent.pop("explicitVadSignal", None) is (True if name == "in words" else None)
    assert sent == sent_by_vendor(name)["setup"]


@every_session
def test_both_send_the_same_for_the_same_acts(name: str) -> None:
    ours, theirs = caller(name), sent_by_vendor(name)
    pcm = np.resize(np.array([6000, -6000, -1, -257], np.int16), 320)
    frame = json.loads(ours.audio_message(pcm))["realtimeInput"]["audio"]
    data = theirs["audio"].pop("data")
    assert base64.b64decode(frame.pop("data")) == base64.urlsafe_b64decode(data) == pcm.astype("<i2").tobytes()
    assert "_" in data, "the vendor's client writes the other alphabet: a server must take both"
    assert frame == theirs["audio"]
    acts = [*ours.begin_turn(SpokenText("x")), *ours.end_turn(), *ours.goodbye()]
    members = {"activityStart", "activityEnd"} if name == "manual" else {"audioStreamEnd"}
    expected = [{"realtimeInput": {key: theirs[key]}} for key in sorted(members, reverse=True)]
    assert [json.loads(str(act)) for act in acts] == expected


def test_close_with_known_reason_is_a_refusal() -> None:
    causes = {
        refusal["name"]: GeminiCaller(CallerOptions()).close_cause(refusal["code"], refusal["reason"])
        for refusal in refused()
    }
    assert {name for name, cause in causes.items() if cause is not None} == {"full"}


def refused() -> list[dict[str, Any]]:
    return recording()["refused"]
