"""Frames that count are the right JSON for any counter and template, read by a library that did not encode them."""

import base64
import json
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Opcode

from loadtest.protocols.base import CallerOptions, CallerProtocol, Pcm16
from loadtest.protocols.declared.caller import DeclaredCaller
from loadtest.protocols.declared.spec import spec_of
from loadtest.protocols.transports.masked_frames import MASKS, joining, preparation
from tests.properties.test_audio_heads_properties import decoded
from tests.unit.loadtest.protocols.telephony.calls import make

PCM = np.arange(-160, 160, dtype=np.int16)
counts = st.one_of(st.integers(0, 10_000), st.integers(0, 2**40))
TELEPHONY = ("twilio", "telnyx", "telnyx-alaw", "plivo", "exotel", "exotel-16k")
# Texts around a place that could be mistaken for a part of a number, of a format or of a place.
pieces = st.lists(
    st.sampled_from(["{sequence}", "{timestamp_ms}", "%", "%d", "1", "10", "0", "7", '"', "\\", "ä", "{", "}", " "]),
    max_size=6,
).map("".join)
templates = st.recursive(
    pieces | st.just("{sequence}") | st.just("{timestamp_ms}") | st.integers(-(2**53), 2**53) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab%{}1", max_size=3), inner, max_size=3),
    max_leaves=6,
)


def on_the_wire(caller: CallerProtocol, pcm: Pcm16, mask_mode: str) -> Any:
    """The JSON of the next frame, prepared, joined and masked as in a call."""
    prepare, join = preparation(caller.capabilities, mask_mode, 5), joining(caller.capabilities, mask_mode)
    assert join is not None
    ((opcode, payload),) = decoded(join(caller.audio_head() or b"", prepare(caller.audio_message(pcm))), [])
    assert opcode is Opcode.TEXT
    return json.loads(payload)


def expected(template: Any, sequence: int, at_ms: int, audio: str) -> Any:
    """A template filled in, by replacing texts alone."""
    if isinstance(template, str):
        whole = {"{sequence}": sequence, "{timestamp_ms}": at_ms, "{audio}": audio}
        if template in whole:
            return whole[template]
        return template.replace("{sequence}", str(sequence)).replace("{timestamp_ms}", str(at_ms))
    if isinstance(template, dict):
        return {key: expected(value, sequence, at_ms, audio) for key, value in template.items()}
    if isinstance(template, list):
        return [expected(value, sequence, at_ms, audio) for value in template]
    return template


@given(template=templates, before=counts, mask_mode=st.sampled_from(MASKS))
def test_any_declared_template_counts(template: Any, before: int, mask_mode: str) -> None:
    frame = {"head": template, "n": "{sequence}", "data": "{audio}"}
    spec = spec_of({"name": "x", "audio": {"frame": frame}, "reply": {"end": "silence"}, "events": []}, "x")
    caller = DeclaredCaller(CallerOptions(), spec)
    head = caller._frames.head
    assert head is not None
    for at, step in enumerate(head.steps):
        head.numbers[at] = before + 1 if step == 1 else 20 * before
    audio = base64.b64encode(PCM.astype("<i2").tobytes()).decode()
    for number in (before, before + 1):
        assert on_the_wire(caller, PCM, mask_mode) == expected(frame, number + 1, number * 20, audio)


@pytest.mark.parametrize("variant", TELEPHONY)
@given(others=counts, before=counts, mask_mode=st.sampled_from(MASKS))
def test_telephone_frames_count(variant: str, others: int, before: int, mask_mode: str) -> None:
    caller = make(variant)
    frame_ms = 100 if variant.startswith("exotel") else 20
    assert caller._head is not None
    caller._head.numbers[:] = array("q", (before + others + 1, before + 1, before * frame_ms))
    for number in (before, before + 1):
        message = on_the_wire(caller, PCM, mask_mode)
        sequence = message.get("sequenceNumber", message.get("sequence_number"))
        assert (message["event"], int(sequence)) == ("media", number + others + 1)
        assert int(message["media"]["chunk"]) == number + 1
        assert int(message["media"]["timestamp"]) == number * frame_ms
        octets = base64.b64decode(message["media"]["payload"], validate=True)
        assert len(octets) == len(PCM) * (2 if variant.startswith("exotel") else 1)
