"""The callers and Pipecat's serializers understand each other; signatures and TwiML are those of the vendors' packages.

How the fixtures were recorded: tests/integration/recorders/record_telephony.py and record_telephony_packages.py.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.audio import pcm
from loadtest.protocols.base import EventKind, Message
from loadtest.protocols.telephony.webhook import stream_of
from loadtest.protocols.telephony.wires import plivo_signature, twilio_signature
from tests.unit.loadtest.protocols.telephony.calls import (
    PARAMETERS,
    TRACE_ID,
    TRACEPARENT,
    VARIANTS,
    as_json,
    make,
    messages,
    spoken,
)

FIXTURES = Path(__file__).parents[4] / "fixtures" / "telephony"
PACKAGES = json.loads((FIXTURES / "packages.json").read_text())


def recorded(variant: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What Pipecat recognized, and the lines after it."""
    _, known, *lines = [json.loads(line) for line in (FIXTURES / f"{variant}.jsonl").read_text().splitlines()]
    return known, lines


def whole(message: Any) -> Message:
    return base64.b64decode(message["binary"]) if isinstance(message, dict) else message


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_agent_says_is_decoded_as_it_was_meant(variant: str) -> None:
    caller = make(variant)
    for line in (line for line in recorded(variant)[1] if "agent" in line):
        events = list(caller.receive(whole(line["message"])))
        if line["agent"] == "audio":
            (event,) = events
            assert (event.kind, event.rate_hz) == (EventKind.AUDIO, line["rate_hz"])
            assert event.audio == base64.b64decode(line["pcm"]), "decoded by Python's audioop in the recording"
        elif line["agent"] == "mark":
            assert [(event.kind, event.text) for event in events] == [(EventKind.MARK, line["name"])]
        else:
            assert [event.kind for event in events] == [EventKind.CLEAR]


@pytest.mark.parametrize("variant", VARIANTS)
def test_pipecat_hears_the_whole_call(variant: str) -> None:
    caller = make(variant)
    lines = [line for line in recorded(variant)[1] if "caller" in line]
    assert [as_json(message) for message in messages(caller)] == [line["caller"] for line in lines], (
        "the messages are no longer those that Pipecat was given; record the fixture again"
    )
    heard = [line["heard"] for line in lines if line["heard"] is not None]
    assert [each["key"] for each in heard if "key" in each] == ["5"]
    audio = b"".join(base64.b64decode(each["audio"]) for each in heard if "audio" in each)
    assert {each["rate_hz"] for each in heard if "audio" in each} == {caller.capabilities.input_rate_hz}
    difference = pcm.from_bytes(audio).astype(int) - spoken(caller)
    # G.711 keeps 13 or 14 bits of a loud sample: its steps near half of full scale are 1024 wide at most.
    assert np.abs(difference).max() <= (0 if VARIANTS[variant][0] in ("exotel", "vonage") else 512)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "vonage"])
def test_pipecat_recognizes_the_provider_and_the_call(variant: str) -> None:
    known, _ = recorded(variant)
    assert known["detected"] == VARIANTS[variant][0]
    call = known["call"]
    assert TRACE_ID in call["call_id"].replace("-", "")
    assert TRACE_ID in call["stream_id"].replace("-", "")
    carried = {**PARAMETERS, "traceparent": TRACEPARENT}
    if variant == "twilio":
        assert call["body"] == carried
    elif variant.startswith("exotel"):
        assert call["custom_parameters"] == carried
        assert (call["from"], call["to"]) == ("+15005550006", "+15005550001")
    elif variant.startswith("telnyx"):
        assert call["outbound_encoding"] == ("PCMA" if variant == "telnyx-alaw" else "PCMU")


@pytest.mark.parametrize("vector", PACKAGES["twilio"])
def test_the_signature_is_that_of_twilios_package(vector: dict[str, Any]) -> None:
    assert twilio_signature(PACKAGES["recorded"]["token"], vector["url"], vector["form"]) == vector["signature"]


@pytest.mark.parametrize("vector", PACKAGES["plivo"])
def test_the_signature_is_that_of_plivos_package(vector: dict[str, Any]) -> None:
    token, url, nonce = PACKAGES["recorded"]["token"], vector["url"], vector["nonce"]
    assert plivo_signature(token, url, nonce, vector.get("form")) == vector["signature"]


def test_twiml_of_twilios_package_is_read() -> None:
    found = stream_of(PACKAGES["twiml"]["connect"].encode(), "https://agent.example/voice")
    assert found.url == "wss://agent.example/media"
    assert found.parameters == {"customer": 'Ada & "Bob" <x>', "tier": "gold"}
    assert found.skipped == ()
    after = stream_of(PACKAGES["twiml"]["after"].encode(), "https://agent.example/voice")
    assert (after.url, after.skipped) == ("wss://agent.example/media", ("Say", "Pause"))
