"""Frames that begin with something of their call: whole, numbered and in order, however the socket accepts them."""

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.conversation.state import State
from loadtest.engine.call import Call
from loadtest.engine.clock import Clocks
from loadtest.engine.hub_sender import HubSender
from loadtest.engine.outbox import Outbox
from loadtest.engine.transports.stream import AudioHeads, StreamTransport
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.masked_frames import joining, preparation
from loadtest.protocols.transports.websocket import WebSocketClient
from tests.properties.test_framings_properties import decoded
from tests.unit.loadtest.conversation.world import make_plan
from tests.unit.loadtest.engine.test_engine_call import FRAME, FakeEngine

SECRET = bytes(reversed(range(256)))  # a cipher that the test can take off again


class Socket:
    """A socket that accepts as much as is set, with the connection's own outbox before it."""

    def __init__(self, room: Callable[[], int], *, secured: bool) -> None:
        self.on_wire, self.room = bytearray(), room
        self.outbox = Outbox(self._take, (lambda data: data.translate(SECRET)) if secured else None)
        self.closed, self.stamped, self.stamp_kind, self.has_rest = None, False, "user", False

    def _take(self, data: bytes | memoryview) -> int:
        size = min(self.room(), len(data))
        if not size:
            raise BlockingIOError
        self.on_wire += data[:size]
        return size

    def send(self, data: bytes) -> bool:
        return self.outbox.push(data)

    def begin(self) -> None:
        pass

    def readable(self) -> None:
        pass

    def unsent_bytes(self) -> int:
        return self.outbox.waiting_bytes


class NumberedCaller(OpenAIRealtimeCaller):
    """A wire whose frames are numbered by their call, with numbers of any length."""

    def __init__(self) -> None:
        super().__init__(CallerOptions())
        self.capabilities = replace(self.capabilities, audio_heads=True)
        self.numbered = 0

    def audio_head(self) -> bytes:
        self.numbered += 1
        return b"%d:" % self.numbered**5


class Numbered:
    """A call whose frames are numbered."""

    def __init__(self, socket: Any, mask_mode: str = "fixed") -> None:
        protocol, engine = NumberedCaller(), FakeEngine()
        prepare, join = preparation(protocol.capabilities, mask_mode, 3), joining(protocol.capabilities, mask_mode)
        assert join is not None
        plan = make_plan(think_ms=200)
        clip = plan.turns[0].clip
        assert clip is not None
        spoken = replace(clip, frames=tuple(map(prepare, clip.frames)))
        plan = replace(plan, turns=(replace(plan.turns[0], clip=spoken),), background=(prepare(b"silence"),))
        request = protocol.upgrade("ws://127.0.0.1:1/", None)
        parts: Any = SimpleNamespace(connections=SimpleNamespace(clocks=engine.clocks))
        heads = AudioHeads(protocol, join, mask_mode)
        self.transport = StreamTransport(parts, parse_address(request.url), WebSocketClient(request), heads)
        self.call = Call(engine, plan, protocol, self.transport, "rms-10ms")
        self.transport.take_over(socket, self.call)
        self.now = 1000 * FRAME
        engine.clocks = Clocks(lambda: self.now, lambda: self.now)
        self.hub = HubSender(0, lambda: self.now, lambda stream, error: engine.internal_error(self.call, error))
        self.stream = self.hub.add(self.transport, FRAME)
        self.call.begin_audio(self.stream, self.now)
        self.call.begin(self.now)

    def row(self) -> None:
        """Send one frame as the engine does."""
        self.now = self.stream.due_perf_ns
        for _ in self.hub.collect(self.now)[0]:
            self.call.on_sent(self.now)


def unsealed(socket: Socket, *, secured: bool) -> bytes:
    return bytes(socket.on_wire).translate(SECRET) if secured else bytes(socket.on_wire)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "secured"])
@pytest.mark.parametrize("mask_mode", ["fixed", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_frames_are_whole_numbered_and_in_order(secured: bool, mask_mode: str, seed: int) -> None:
    drawn = random.Random(seed)
    socket = Socket(lambda: drawn.choice((0, 3, 9, 30, *[1000] * 8)), secured=secured)
    caller = Numbered(socket, mask_mode)
    while caller.call.conversation.state is not State.WAITING:
        caller.row()
        if drawn.random() < 0.4:
            socket.outbox.flush()
    socket.room = lambda: 1000
    while not socket.outbox.flush():
        pass
    payloads = [payload for _, payload in decoded(unsealed(socket, secured=secured), [])]
    spoken = [f"frame-{index}".encode() for index in range(55)]
    silent = len(payloads) - len(spoken)
    expected = [*[b"silence"] * silent, *spoken]
    assert payloads == [b"%d:%b" % ((number + 1) ** 5, rest) for number, rest in enumerate(expected)]


def test_the_evidence_counts_the_whole_frame() -> None:
    caller = Numbered(Socket(lambda: 100_000, secured=False))
    while caller.call.conversation.state is not State.WAITING:
        caller.row()
    exchange = caller.call.conversation.exchange
    assert exchange is not None
    message = b"%d:frame-%d" % (caller.call.protocol.numbered**5, 54)  # type: ignore[attr-defined]  # a NumberedCaller
    assert exchange.evidence.frame_bytes_at_speech_end == 2 + 4 + len(message)
