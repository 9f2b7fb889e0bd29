"""Frames with a head of their own, decoded by a library that did not encode them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from loadtest.protocols.transports.masked_frames import MASKS, FramePreparer, headed_frames, masked_rest

heads = st.one_of(st.binary(max_size=140), st.integers(0, 70_000).map(lambda size: b"h" * size))


def decoded(stream: bytes, cuts: list[int]) -> list[tuple[Opcode, bytes]]:
    """What the library reads from a stream that arrives in pieces."""
    server = ServerProtocol(max_size=None)
    server.state = State.OPEN
    server.parser = server.parse()
    next(server.parser)
    start = 0
    for cut in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        server.receive_data(stream[start:cut])
        start = cut
    assert server.parser_exc is None
    frames = [event for event in server.events_received() if isinstance(event, Frame)]
    return [(event.opcode, bytes(event.data)) for event in frames]


@pytest.mark.slow
@given(
    st.lists(heads, max_size=6),
    st.binary(max_size=700),
    st.booleans(),
    st.sampled_from(MASKS),
    st.lists(st.integers(0)),
)
def test_one_rest_joins_every_head(
    beginnings: list[bytes], payload: bytes, text: bool, mask_mode: str, cuts: list[int]
) -> None:
    rest = FramePreparer(mask_mode, seed=7).rest(payload)
    stream = b"".join(headed_frames(mask_mode, text=text)(head, rest) for head in beginnings)
    opcode = Opcode.TEXT if text else Opcode.BINARY
    assert decoded(stream, cuts) == [(opcode, head + payload) for head in beginnings]


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=200), st.binary(max_size=700))
def test_any_mask_masks_head_and_rest(mask: bytes, head: bytes, payload: bytes) -> None:
    frame = headed_frames("random", text=False)(head, masked_rest(payload, mask=mask))
    assert decoded(frame, []) == [(Opcode.BINARY, head + payload)]
