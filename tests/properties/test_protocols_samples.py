"""OpenAI Realtime: however a reply's audio is cut into pieces, the caller hears the same samples."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller


@given(st.lists(st.binary(max_size=5)))
def test_pieces_that_end_inside_samples_are_the_same_audio(pieces: list[bytes]) -> None:
    caller = OpenAIRealtimeCaller(CallerOptions())
    heard = b""
    for piece in pieces:
        fields = {"response_id": "a", "item_id": "a", "delta": base64.b64encode(piece).decode()}
        for event in caller.receive(json.dumps({"type": "response.audio.delta", **fields})):
            heard += event.audio or b""
    whole = b"".join(pieces)
    assert heard == whole[: len(whole) // 2 * 2]
