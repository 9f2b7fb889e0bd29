"""Our caller beside the vendor's client: what both make of the same messages, and what both send for the same acts.

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

from loadtest.protocols.base import CallerOptions, EventKind, SpokenText, VoiceEvent
from loadtest.protocols.gemini.caller import GeminiCaller

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
    (found,) = [each for each in recording()["sessions"] if each["name"] == name]
    return found


def caller(name: str) -> GeminiCaller:
    """A caller with the options that the vendor's client had."""
    manual = name == "manual"
    options = CallerOptions(
        "manual" if manual else "server",
        model="gemini-live",
        voice="Puck",
        instructions=name,
        silence_duration_ms=None if manual else 300,
        token="key-1",
        settings={
            "language": "en-US",
            "voice_activity": name == "in words",
            "setup": {"tools": [{"functionDeclarations": [{"name": "light"}]}]},
            "tools": {"light": {"state": "on"}},
        },
    )
    return GeminiCaller(options)


def camel(value: Any) -> Any:
    """A JSON value with names as the wire has them: the vendor's client writes both kinds."""
    if isinstance(value, list):
        return [camel(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
        head, *rest = str(name).split("_")  # pyright: ignore[reportUnknownArgumentType]
        found["".join((head, *(word.title() for word in rest)))] = camel(inner)
    return found


def sent_by_vendor(name: str) -> dict[str, Any]:
    """What the client sent, by the member of the message."""
    found: dict[str, Any] = {}
    for message in camel(session(name)["sent"]):
        ((place, inner),) = message.items()
        found |= inner if place == "realtimeInput" else {place: inner}
    return found


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
    for each in recorded["received"]:
        events = ours.receive(each["message"].encode())
        compare(each["parsed"], events)
        if "tool_call" in each["parsed"]:
            assert events[0].kind is EventKind.RESPONSE_STARTED
            answers += ours.pending()
    assert [json.loads(answer)["toolResponse"] for answer in answers] == [
        inner for place, inner in sent_by_vendor(name).items() if place == "toolResponse"
    ]


@every_session
def test_a_message_that_a_gateway_of_the_vendors_types_has_written_anew_is_the_same(name: str) -> None:
    """The types write URL-safe base64 and names with underscores, and wrap nothing else otherwise."""
    theirs, anew = caller(name), caller(name)
    for each in session(name)["received"]:
        parsed = {key: value for key, value in each["parsed"].items() if key not in ("data", "text")}
        assert anew.receive(json.dumps(parsed)) == theirs.receive(each["message"])


@every_session
def test_both_open_the_session_alike(name: str) -> None:
    ours, opened = caller(name), session(name)["opened"]
    request = ours.upgrade("wss://localhost", None)
    assert request.url == f"wss://localhost{opened['path']}"
    assert dict(request.headers) == opened["headers"]
    (setup,) = ours.opened()
    found = json.loads(str(setup))["setup"]
    assert found.pop("explicitVadSignal", None) is (True if name == "in words" else None)
    assert found == sent_by_vendor(name)["setup"]


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


def test_refusals_are_closes_whose_reason_both_show() -> None:
    found = {
        each["name"]: GeminiCaller(CallerOptions()).close_cause(each["code"], each["reason"]) for each in refused()
    }
    assert {name for name, cause in found.items() if cause is not None} == {"full"}


def refused() -> list[dict[str, Any]]:
    return recording()["refused"]
