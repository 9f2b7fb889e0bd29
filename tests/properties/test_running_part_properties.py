"""OpenAI Realtime: whatever responses, parts and names audio comes with, one step or many give the same reply."""

import base64
import json
from typing import Any, Final, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from tests.unit.loadtest.protocols.contract.two_ways import Step, assert_same

# Each member's values as JSON; an empty text leaves the member out.
MEMBERS: Final = {
    "type": ['"response.output_audio.delta"', '"response.audio.delta"'],
    "response_id": ['"a"', '"b"', "null", ""],
    "item_id": ['"a"', '"b"', "null", ""],
    "content_index": ["0", "1", "0.0", "false", "1e0", "null", "", str(2**70), str(2**70 + 1), "9" * 400],
    "output_index": ["0", "", '"x"', "1e400", "9" * 400],
    "event_id": ["", '"e1"', '"e2"', '"e3"', '""', "7", '"\\ud800"'],
    "delta": ['"AAE="', '"AAECAw=="', '"AA=="', '"AAEC"', '""', '"*"', "null"],
}
Encoding = Literal["pcm16", "pcmu", "pcma"]


def created(response_id: str | None, **members: Any) -> str:
    return json.dumps({"type": "response.created", "response": {"id": response_id, **members}})


OTHERS: Final[tuple[Step, ...]] = (
    *(created(each, conversation_id=None) for each in (None, "a", "b")),
    *(created(each, conversation_id="conv") for each in ("a", "b")),
    *(created("a", audio={"output": {"format": {"type": kind}}}) for kind in ("audio/pcm", "audio/pcmu", "audio/pcma")),
    *(json.dumps({"type": "response.done", "response": {"id": each}}) for each in (None, "a", "b")),
    '{"type":"response.output_audio_transcript.delta","response_id":"b","item_id":"a","delta":"Yes"}',
    '{"type":"response.output_audio.done","response_id":"a","item_id":"a"}',
    '{"type":"response.audio.done"}',
    b"\1\2\3",
    ("interrupt", (0,)),
    ("interrupt", (1,)),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Step]:
    """Pieces of audio, each like the one before it but for a member or two, and now and then something else."""
    piece = {name: draw(st.sampled_from(values[:2])) for name, values in MEMBERS.items()}
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 14))):
        for name in draw(st.sampled_from(((), (), *((name,) for name in MEMBERS), ("event_id", "delta")))):
            piece[name] = draw(st.sampled_from(MEMBERS[name]))
        shown = dict(piece) if draw(st.integers(0, 3)) else {**piece, "event_id": f'"own-{number}"'}
        steps.append("{" + ",".join(f'"{name}":{value}' for name, value in shown.items() if value) + "}")
        if not draw(st.integers(0, 3)):
            steps.append(draw(st.sampled_from(OTHERS)))
    return [*steps, ("interrupt", (1,))]


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(conversations(), st.sampled_from(("pcm16", "pcm16", "pcmu", "pcma")))
def test_the_same_reply_with_and_without_the_reader(steps: list[Step], encoding: Encoding) -> None:
    assert_same(lambda: OpenAIRealtimeCaller(CallerOptions(output_format=encoding)), steps)


def delta(audio: bytes, **members: str) -> str:
    encoded = base64.b64encode(audio).decode()
    return json.dumps({"type": "response.audio.delta", "response_id": "a", "item_id": "a", "delta": encoded, **members})


def test_what_comes_between_pieces_finds_all_of_those_before_it_accounted_for() -> None:
    piece = delta(bytes(480))
    for between in (b"\1\2\3", delta(b"\1\2\3"), delta(bytes(4), item_id="b"), *OTHERS):
        steps = [created("a"), piece, piece, piece, between, piece, piece, ("interrupt", (15,)), piece, piece]
        assert_same(lambda: OpenAIRealtimeCaller(CallerOptions()), steps)


@given(st.lists(st.binary(max_size=5)))
def test_pieces_that_end_inside_samples_are_the_same_audio(pieces: list[bytes]) -> None:
    caller = OpenAIRealtimeCaller(CallerOptions())
    heard = b""
    for piece in pieces:
        for event in caller.receive(delta(piece)):
            heard += event.audio or b""
    whole = b"".join(pieces)
    assert heard == whole[: len(whole) // 2 * 2]
