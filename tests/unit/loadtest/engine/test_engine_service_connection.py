"""The connection of one service: when it is opened again, what is sent again, and what is lost."""

from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from loadtest.engine.outbox import Outbox
from loadtest.engine.transports import services
from loadtest.engine.transports.base import ConnectionFailed
from loadtest.engine.transports.services import ServiceConnection
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure

MS = 1_000_000
GONE = Failure("tcp", "EOF")
ANSWER = b'{"type":"info"}\n'


class Wire:
    """A connection that accepts everything."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.outbox = Outbox(len)
        self.stamped, self.has_rest = True, False

    def send(self, data: bytes) -> bool:
        self.sent.append(data)
        return True

    def begin(self) -> None:
        pass

    def close(self) -> None:
        pass


class World:
    """The owner of one service's connections, under an injected clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.wires: list[Wire] = []
        self.lost_for: list[str] = []
        self.is_down = False
        clocks = SimpleNamespace(perf_ns=lambda: self.now)
        parts: Any = SimpleNamespace(connections=SimpleNamespace(clocks=clocks), max_message_bytes=1000)
        monkeypatch.setattr(services, "dial", self._dial)
        owner: Any = self
        self.service = ServiceConnection(parts, "asr", Address("h", 1, tls=False), owner, 1.0)
        self.service.open()
        self.service.secured()

    def _dial(self, *_: object) -> Wire:
        if self.is_down:
            raise ConnectionFailed("nobody answers", Failure("tcp", "ECONNREFUSED"))
        self.wires.append(Wire())
        return self.wires[-1]

    def run(self) -> None:
        """Let what was started in the background happen."""
        gevent.sleep(0)
        if self.service.connection is not None and not self.service.is_open:
            self.service.secured()

    def close(self) -> None:
        self.service.disconnected("the endpoint closed the connection", GONE)
        self.run()

    # What the connection calls.

    def opened(self, *_: object) -> None: ...

    def arrived(self, *_: object) -> None: ...

    def settle(self) -> None: ...

    def lost(self, _service: object, reason: str, _failure: Failure) -> None:
        self.lost_for.append(reason)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def ask(world: World, message: bytes = b"ask", *, answered: bool = True) -> None:
    world.service.send(message)
    if answered:
        world.service.receive(world.now, world.now, ANSWER)


def test_a_connection_that_was_used_is_opened_again_at_once(world: World) -> None:
    ask(world)
    world.close()
    assert len(world.wires) == 2
    assert world.service.is_open
    assert world.lost_for == ["the endpoint closed the connection"], "the protocol knows whether something was due"


def test_unused_closed_connection_is_reopened_for_next_message(world: World) -> None:
    world.close()
    assert len(world.wires) == 1, "an endpoint that closes at once is not dialed again and again"
    world.service.send(b"ask")
    world.run()
    assert world.wires[1].sent == [b"ask"]


def test_peer_that_closes_repeatedly_is_not_redialed_each_time(world: World) -> None:
    for _ in range(20):
        if world.service.is_open:
            ask(world)
            world.close()
    assert len(world.wires) == 3
    world.service.send(b"ask")
    world.run()
    assert world.wires[-1].sent == [b"ask"]


def test_message_in_flight_at_close_is_sent_again(world: World) -> None:
    ask(world)
    world.service.send(b"next")
    world.service.send_frame(b"frame")
    world.now += 100 * MS
    world.close()
    assert world.wires[1].sent == [b"next", b"frame"]
    assert world.lost_for == []


def test_message_taken_without_answer_is_lost(world: World) -> None:
    ask(world)
    world.service.send(b"next")
    world.now += 300 * MS
    world.close()
    assert world.wires[1].sent == []
    assert world.lost_for == ["the endpoint closed the connection"]


def test_first_request_is_not_sent_again(world: World) -> None:
    ask(world, answered=False)
    world.close()
    assert world.lost_for == ["the endpoint closed the connection"]
    assert world.wires[1].sent == []


def test_frames_wait_behind_message_and_are_dropped_without_one(world: World) -> None:
    world.close()
    assert world.service.send_frame(b"silence")
    assert not world.service.send(b"ask")
    assert not world.service.send_frame(b"speech")
    assert world.service.backlog.waiting_bytes == len(b"askspeech")
    world.run()
    assert world.wires[1].sent == [b"ask", b"speech"]
    assert world.service.backlog.waiting_bytes == 0


def test_unreachable_service_is_lost_once_per_request(world: World) -> None:
    ask(world)
    world.is_down = True
    world.close()
    assert world.lost_for == ["the endpoint closed the connection"]
    world.service.send(b"next")
    world.run()
    assert world.lost_for[1:] == ["nobody answers"]
    assert world.service.backlog.waiting_bytes == 0
    world.run()
    assert len(world.lost_for) == 2, "and is not dialed again until something is asked"


def test_nothing_is_passed_on_after_the_call(world: World) -> None:
    ask(world)
    world.service.close()
    world.close()
    assert world.lost_for == []
    assert len(world.wires) == 1
