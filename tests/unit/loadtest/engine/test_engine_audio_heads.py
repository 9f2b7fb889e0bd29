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
from loadtest.engine.outbox import Outbox
from loadtest.engine.timing_wheel import WheelSlot
from loadtest.engine.transports.stream import AudioHeads, StreamTransport
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.masked_frames import joining, preparation
from loadtest.protocols.transports.websocket import WebSocketClient
from tests.properties.test_audio_heads_properties import decoded
from tests.unit.loadtest.conversation.world import make_plan
from tests.unit.loadtest.engine.test_engine_call import FRAME, FakeEngine

SECRET = bytes(reversed(range(256)))  # a cipher that the test can take off again


class Socket:
    """A socket that accepts as much as it is told to, with the connection's own outbox before it."""

    def __init__(self, room: Callable[[], int], *, secured: bool) -> None:
        self.on_wire, self.room = bytearray(), room
        self.outbox = Outbox(self._take, (lambda data: data.translate(SECRET)) if secured else None)
        self.write = self._write_secured if secured else self._take
        self.closed, self.stamped, self.stamp_kind, self.clock_fault = None, False, "user", False
        self.refusals: list[OSError] = []

    def _take(self, data: bytes | memoryview) -> int:
        size = min(self.room(), len(data))
        if not size:
            raise BlockingIOError
        self.on_wire += data[:size]
        return size

    def _write_secured(self, frame: bytes) -> int:
        return len(frame) if self.send(frame) else -1

    def send(self, data: bytes) -> bool:
        return self.outbox.push(data)

    def keep(self, frame: bytes, sent: int) -> None:
        if sent >= 0:
            self.outbox.keep(frame, sent)

    def refused(self, error: OSError) -> None:
        self.refusals.append(error)

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
    """A call whose frames are numbered, in a slot."""

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
        heads = AudioHeads(protocol.audio_head, join)
        self.transport = StreamTransport(parts, parse_address(request.url), WebSocketClient(request), heads)
        self.call = Call(engine, plan, protocol, self.transport, "rms-10ms")
        self.transport.take_over(socket, self.call)
        self.call.entry.write = self.transport.write
        self.slot: WheelSlot[Call] = WheelSlot(1000 * FRAME, FRAME)
        engine.clocks = Clocks(lambda: self.slot.due_perf_ns, lambda: self.slot.due_perf_ns)
        self.slot.add(self.call.entry, self.call, self.slot.due_perf_ns)
        self.call.begin(self.slot.due_perf_ns)

    def row(self) -> bool:
        """Send one row as the engine does; return whether its frame was scheduled."""
        due = self.slot.due_perf_ns
        ((call, write, frame, counted),) = self.slot.take_row(due)
        if frame is None:
            call.send_frame(due, due)
        elif (sent := write(frame)) != len(frame):
            call.held_up(frame, sent, counted is not None, due)
        return frame is not None


def unsealed(socket: Socket, *, secured: bool) -> bytes:
    return bytes(socket.on_wire).translate(SECRET) if secured else bytes(socket.on_wire)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "secured"])
@pytest.mark.parametrize("mask_mode", ["fixed", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_frames_are_whole_numbered_and_in_order(secured: bool, mask_mode: str, seed: int) -> None:
    drawn = random.Random(seed)
    socket = Socket(lambda: drawn.choice((0, 3, 9, 30, *[1000] * 8)), secured=secured)
    caller = Numbered(socket, mask_mode)
    scheduled = 0
    while caller.call.conversation.state is not State.WAITING:
        scheduled += caller.row()
        if drawn.random() < 0.4:
            socket.outbox.flush()
    assert scheduled > 0, "not all by themselves"
    socket.room = lambda: 1000
    while not socket.outbox.flush():
        pass
    payloads = [payload for _, payload in decoded(unsealed(socket, secured=secured), [])]
    spoken = [f"frame-{index}".encode() for index in range(55)]
    silent = len(payloads) - len(spoken)
    expected = [*[b"silence"] * silent, *spoken]
    assert payloads == [b"%d:%b" % ((number + 1) ** 5, rest) for number, rest in enumerate(expected)]
    assert not [error for error in socket.refusals if not isinstance(error, BlockingIOError)]


def test_a_frame_goes_out_in_one_write() -> None:
    socket = Socket(lambda: 100_000, secured=False)
    writes = list[int]()
    caller = Numbered(socket)
    taken = caller.transport._write
    caller.transport._write = lambda frame: (writes.append(len(frame)), taken(frame))[1]
    assert [caller.row() for _ in range(4)][1:] == [True] * 3
    assert len(decoded(bytes(socket.on_wire), [])) == 4
    assert len(writes) == 3, "and the first one by `send`"


def test_the_evidence_counts_the_whole_frame() -> None:
    caller = Numbered(Socket(lambda: 100_000, secured=False))
    while caller.call.conversation.state is not State.WAITING:
        caller.row()
    exchange = caller.call.conversation.exchange
    assert exchange is not None
    message = b"%d:frame-%d" % (caller.call.protocol.numbered**5, 54)  # type: ignore[attr-defined]  # a NumberedCaller
    assert exchange.evidence.frame_bytes_at_speech_end == 2 + 4 + len(message)
