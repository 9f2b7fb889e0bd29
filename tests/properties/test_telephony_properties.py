"""Whatever an agent sends on a telephone call: nothing raises, and how audio is cut does not change what is heard."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.protocols.base import EventKind, VoiceEvent
from tests.unit.loadtest.protocols.telephony.calls import VARIANTS, make, tone

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
# Members that the wires know, with anything in them.
MESSAGES = st.dictionaries(
    st.sampled_from(["event", "action", "media", "mark", "name", "payload", "streamSid", "stream_id", "dtmf"]),
    st.sampled_from(["media", "mark", "clear", "playAudio", "checkpoint", "clearAudio", "notify"])
    | st.dictionaries(st.sampled_from(["payload", "name", "contentType", "sampleRate"]), JSON, max_size=4)
    | JSON,
)


@pytest.mark.slow
@given(st.sampled_from(sorted(VARIANTS)), st.lists(MESSAGES.map(json.dumps) | JSON.map(json.dumps) | st.binary()))
def test_no_message_raises_and_each_makes_an_event(variant: str, messages: list[str | bytes]) -> None:
    caller = make(variant, reply_end_mark="*")
    for message in messages:
        events = caller.receive(message)
        assert events
        for event in events:
            if event.kind is EventKind.MARK:
                assert event.text is not None
                caller.played(event.text)
        caller.pending()
    caller.goodbye()


@given(st.sampled_from(["exotel", "exotel-16k", "vonage", "twilio", "telnyx-alaw"]), st.data())
def test_audio_cut_anywhere_is_the_same_audio(variant: str, data: Any) -> None:
    caller = make(variant)
    spoken = tone(caller.capabilities.input_rate_hz, 60)
    wire = caller.audio_message(spoken)
    octets = wire if variant == "vonage" else base64.b64decode(wire.partition(b'"')[0])
    cuts = data.draw(st.lists(st.integers(0, len(octets)), max_size=8).map(sorted))
    events: list[VoiceEvent] = []
    for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
        piece = octets[begin:end]
        payload = base64.b64encode(piece).decode()
        message = piece if variant == "vonage" else json.dumps({"event": "media", "media": {"payload": payload}})
        events += caller.receive(message)
    heard = np.frombuffer(b"".join(event.audio or b"" for event in events), "<i2").astype(int)
    assert len(heard) == len(spoken)
    assert {event.kind for event in events} <= {EventKind.AUDIO, EventKind.OTHER}
    assert np.abs(heard - spoken).max() <= (0 if variant.startswith(("exotel", "vonage")) else 512)
