"""A call between its connection and its conversation, driven by hand."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from loadtest.caller.call import Call
from loadtest.caller.clock import Clocks
from loadtest.caller.health import EngineHealth
from loadtest.caller.pacing import Slot
from loadtest.caller.session import State
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.websocket import WebSocketClient
from tests.unit.loadtest_caller.caller_world import MS, make_plan, reply

FRAME = 20 * MS


class Wire:
    """A connection that takes everything, or nothing, and whose `arrives` happens when it is read."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.takes = True
        self.arrives: Callable[[], object] = lambda: None
        self.outbox = SimpleNamespace(waiting_bytes=0, queued_bytes=0, drained_bytes=0)
        self.closed = None

    def begin(self) -> None:
        pass

    def write(self, frame: bytes) -> int:
        self.sent.append(frame)
        return len(frame)

    def send(self, data: bytes) -> bool:
        if self.takes:
            self.sent.append(data)
        else:
            self.outbox.waiting_bytes += len(data)
            self.outbox.queued_bytes += len(data)
        return self.takes

    def readable(self) -> None:
        arrives, self.arrives = self.arrives, lambda: None
        arrives()

    def unsent_bytes(self) -> int:
        return 0


class Board:
    """Stands in for the engine."""

    def __init__(self) -> None:
        self.clocks, self.health = Clocks(), EngineHealth()

    def hang_up(self, call: Call, reason: str) -> None:
        call.ended = True

    def our_fault(self, call: Call, fault: Exception) -> None:
        raise fault


class Caller:
    """A call on a slot, with a wire that is seen through."""

    def __init__(self, **plan: Any) -> None:
        protocol = registry.make_caller("openai-realtime", CallerOptions())
        websocket = WebSocketClient(protocol.upgrade("ws://127.0.0.1:1/", None))
        self.call = Call(Board(), make_plan(**plan), protocol, websocket, "rms-10ms")
        self.wire: Any = Wire()
        self.call.opened_socket(self.wire)
        self.slot: Slot[Call] = Slot(1000 * FRAME, FRAME)
        self.slot.add(self.call.seat, self.call, self.slot.due_perf_ns)
        self.call.begin(self.slot.due_perf_ns)

    def rows(self, count: int) -> list[bytes | None]:
        """Serve rows as the engine does; what was laid out in each."""
        laid = []
        for _ in range(count):
            due = self.slot.due_perf_ns
            for call, write, frame, _ in self.slot.take_row(due):
                laid.append(frame)
                if frame is None:
                    call.send_frame(due, due)
                else:
                    write(frame)
        return laid

    def speak(self) -> None:
        """Through think time and utterance, until the caller waits."""
        while self.call.session.state is not State.WAITING:
            self.rows(1)


def test_the_conversation_is_asked_just_when_it_wants_to_be() -> None:
    caller = Caller(think_ms=500)
    laid = caller.rows(26)
    assert caller.call.session.state is State.SPEAKING, "after 500 ms of thinking the caller speaks"
    asked = [number for number, frame in enumerate(laid) if frame is None]
    assert asked[-1] == 25
    assert len(asked) <= 4, "between two looks of 16 frames nobody is asked"


def test_what_has_arrived_counts_before_time_does() -> None:
    caller = Caller(patience_ms=400)
    caller.speak()
    caller.rows(10)
    heard = caller.slot.due_perf_ns
    # The reply lies unread for longer than the caller's patience.
    caller.wire.arrives = lambda: [
        caller.call.perform(caller.call.session.on_event(event, heard)) for event in reply(ms=3000)
    ]
    caller.rows(30)
    assert not caller.call.ended
    assert caller.call.session.state is State.HEARING


def test_without_anything_that_arrived_patience_ends_the_call() -> None:
    caller = Caller(patience_ms=400)
    caller.speak()
    caller.rows(30)
    assert caller.call.ended
    assert caller.call.exchanges.get_nowait().outcome == "abandoned"


def test_a_deadline_that_moves_forward_is_kept() -> None:
    caller = Caller(think_ms=10_000)
    caller.rows(2)
    assert caller.call.seat.ahead > 0
    caller.call.wind_down()
    assert caller.call.seat.ahead == 0
    caller.rows(1)
    assert caller.call.ended


def test_frames_go_behind_what_the_socket_has_not_taken() -> None:
    caller = Caller(think_ms=10_000)
    caller.rows(2)
    caller.wire.takes = False
    caller.call._transmit(b"a pong")
    assert caller.call.seat.ahead == 0, "none of them may overtake"
    assert caller.rows(3) == [None, None, None]
    assert len(caller.call.held) == 3
    caller.wire.takes, caller.wire.outbox.waiting_bytes = True, 0
    assert caller.rows(3)[1:] != [None, None], "the socket is free again"


def test_a_frame_due_before_the_caller_joined_is_not_his() -> None:
    caller = Caller()
    seat = caller.call.seat
    seat.joined_perf_ns = caller.slot.due_perf_ns + 1
    assert not caller.call.send_frame(caller.slot.due_perf_ns, caller.slot.due_perf_ns + 5)
    assert caller.wire.sent == []
