"""The messages between the engine and its WebRTC process, however their bytes are cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine.webrtc.messages import Arrived, Command, Deframer, LinkKind, arrived, command, frame_command

PIECES = st.lists(st.integers(1, 40), min_size=1)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(data[at : at + size])
        at += size
    return chunks


@given(sizes=PIECES, payloads=st.lists(st.binary(max_size=50), max_size=5))
def test_commands_come_whole(sizes: list[int], payloads: list[bytes]) -> None:
    wanted = [Command(LinkKind.TEXT, call, data) for call, data in enumerate(payloads)]
    stream = b"".join(command(LinkKind.TEXT, call, data) for call, data in enumerate(payloads))
    deframer = Deframer()
    assert [received for piece in cut(stream, sizes) for received in deframer.commands(piece)] == wanted


@given(sizes=PIECES, payloads=st.lists(st.binary(max_size=50), max_size=5), stamp=st.integers(0, 2**62))
def test_messages_are_read_whole_in_any_fragments(sizes: list[int], payloads: list[bytes], stamp: int) -> None:
    wanted = [Arrived(LinkKind.AUDIO, call, stamp, 7, data) for call, data in enumerate(payloads)]
    stream = b"".join(arrived(LinkKind.AUDIO, call, stamp, 7, data) for call, data in enumerate(payloads))
    deframer = Deframer()
    assert [received for piece in cut(stream, sizes) for received in deframer.arrivals(piece)] == wanted


def test_a_frame_carries_the_moment_at_which_it_was_handed_over() -> None:
    (received,) = Deframer().commands(frame_command(3, 1234, b"\1\2"))
    assert received == Command(LinkKind.FRAME, 3, struct.pack("<q", 1234) + b"\1\2")


@pytest.mark.parametrize("length", [0, 4, 2**32 - 1])
def test_invalid_message_length_is_fault(length: int) -> None:
    with pytest.raises(ValueError, match=f"a message of {length} bytes"):
        list(Deframer().commands(struct.pack("<I", length) + bytes(20)))
