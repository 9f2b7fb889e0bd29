"""Frames that the pacer thread numbers: byte for byte what the protocol itself would send, read by a real decoder."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from loadtest.engine.pacer import FrameHead, PacedSocket, Pacer, open_pacer
from loadtest.protocols.base import CountedHead
from loadtest.protocols.transports.masked_frames import MASKS, FramePreparer, frame, headed_frames, joining, preparation
from tests.properties.test_framings_properties import decoded
from tests.unit.loadtest.engine.test_engine_pacer import ignore, pair, received, until
from tests.unit.loadtest.protocols.telephony.calls import make

MS = 1_000_000
PCM = [np.full(160, 1000 * number, np.int16) for number in range(1, 4)]


@pytest.fixture(scope="module")
def pacer() -> Iterator[Pacer]:
    made, reason = open_pacer()
    assert made is not None, reason
    yield made
    made.close()


def begin(pacer: Pacer, sock: socket.socket, head: FrameHead, background: tuple[bytes, ...]) -> PacedSocket:
    paced = pacer.add(sock.fileno(), MS, ignore, head)
    assert paced is not None
    paced.begin(background, MS, 0)  # long overdue: a frame at every pass of the thread
    return paced


def finish(paced: PacedSocket, ours: socket.socket, theirs: socket.socket) -> bytes:
    """Send no more frames, and read what is left once everything has gone."""
    paced.stop()
    theirs.setblocking(False)
    rest = b""
    while True:
        try:
            rest += theirs.recv(1 << 20)
        except BlockingIOError:
            if not paced.waiting_bytes:
                break
    paced.close()
    ours.close()
    theirs.close()
    return rest


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("variant", ["twilio", "telnyx", "plivo", "exotel"])
def test_telephone_frames_equal_those_of_their_protocol(pacer: Pacer, variant: str, mask: str) -> None:
    caller, twin = make(variant), make(variant)
    head = twin.counted_head()
    assert head is not None
    prepare, join = preparation(caller.capabilities, mask, 5), joining(caller.capabilities, mask)
    assert join is not None
    background = tuple(prepare(caller.audio_message(pcm)) for pcm in PCM)
    expected = b"".join(join(head.next(), background[number % 3]) for number in range(1200))
    counted = caller.counted_head()
    assert counted is not None
    ours, theirs = pair()
    paced = begin(pacer, ours, FrameHead(counted, mask, is_text=True), background)
    assert received(theirs, len(expected)) == expected
    messages = [json.loads(payload) for _, payload in decoded(expected, [])]
    assert [int(message["media"]["chunk"]) for message in messages] == list(range(1, 1201))
    finish(paced, ours, theirs)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", [0, 1, 60, 117, 118, 119, 120, 121, 125, 126, 65_000, 65_520, 65_530, 70_000])
def test_headers_of_every_length_and_numbers_of_any_size(pacer: Pacer, size: int, mask: str) -> None:
    numbers, steps = (0, 9, 2**62), (1, 91, 10**15)
    head, twin = (CountedHead(b"%%%d-%%d%d%d:", numbers, steps) for _ in range(2))
    rest = FramePreparer(mask, 3).rest(b"r" * size)
    expected = b"".join(headed_frames(mask, text=False)(twin.next(), rest) for _ in range(12))
    assert [payload for _, payload in decoded(expected, [])] == [
        b"%%%d-%%d%d%d:" % (at, 9 + 91 * at, 2**62 + 10**15 * at) + b"r" * size for at in range(12)
    ]
    ours, theirs = pair()
    paced = begin(pacer, ours, FrameHead(head, mask, is_text=False), (rest,))
    assert received(theirs, len(expected)) == expected
    finish(paced, ours, theirs)


@pytest.mark.parametrize("mask", MASKS)
def test_messages_and_frames_are_numbered_in_order_of_sending(pacer: Pacer, mask: str) -> None:
    ours, theirs = pair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # most frames have to wait, many for their second half
    head = CountedHead(b'{"n":%d,"at":%d,"audio":"', (1, 0), (1, 20))
    rest = FramePreparer(mask, 3).rest(b"x" * 300 + b'"}')
    paced = begin(pacer, ours, FrameHead(head, mask, is_text=True), (rest,))
    data, messages = b"", 0
    while messages < 300:
        with paced:
            number, head.numbers[0] = head.numbers[0], head.numbers[0] + 1
            paced.push(frame(json.dumps({"n": number, "mark": messages}), mask=b"abcd", text=True))
        messages += 1
        data += theirs.recv(1 << 12)
        while paced.sent * 5 < messages:
            time.sleep(0.001)
    until(lambda: paced.held_up > 0)
    data += finish(paced, ours, theirs)
    messages: list[Any] = [json.loads(payload) for _, payload in decoded(data, [])]
    assert [message["n"] for message in messages] == list(range(1, len(messages) + 1))
    assert [message["mark"] for message in messages if "mark" in message] == list(range(300))
    audio = [message for message in messages if "audio" in message]
    assert [message["at"] for message in audio] == [20 * number for number in range(len(audio))]
    assert {message["audio"] for message in audio} == {"x" * 300}
    assert len(audio) > 30


def test_call_may_end_while_numbered_message_breaks_connection(pacer: Pacer) -> None:
    ours, theirs = pair()
    paced = begin(pacer, ours, FrameHead(CountedHead(b"%d", (1,), (1,)), "fixed", is_text=True), (b"x" * 30,))
    theirs.close()
    with paced:
        with pytest.raises(BrokenPipeError):
            paced.push(b"mark")
        paced.stop()
        assert paced.blocked_ns(0) == 0
        sent = paced.sent
    assert paced.sent == sent
    with paced:  # the lock was given back, once
        pass
    paced.close()
    ours.close()


def test_waiting_bytes_above_bound_end_the_connection(pacer: Pacer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.engine.pacer._WAITING_BYTES", 20_000)
    errors: list[OSError] = []
    ours, theirs = pair()
    head = FrameHead(CountedHead(b"%d", (1,), (1,)), "fixed", is_text=True)
    paced = pacer.add(ours.fileno(), MS, errors.append, head)
    assert paced is not None
    paced.begin((b"x" * 3000,), MS, 0)
    until(lambda: bool(pacer.collect(0)) and bool(errors))
    assert type(errors[0]) is TimeoutError
    for end in (paced, ours, theirs):
        end.close()
