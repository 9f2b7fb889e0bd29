"""How much is read of one connection before others have their turn."""

import socket
from collections.abc import Iterator
from unittest.mock import Mock

import gevent
import pytest

from loadtest.engine.clock import Clocks
from loadtest.engine.connection import READ_BYTES, Connection, ConnectionParts, OpenedSocket
from loadtest.engine.watch import SocketWatch

MS = 1_000_000


class Flooded:
    """A connection that always has more to read, and a manual clock that each reading moves on."""

    def __init__(self) -> None:
        self.now, self.reading_ns, self.reads = 0, MS // 10, 0
        clocks, loop = Clocks(lambda: self.now, lambda: self.now), gevent.get_hub().loop
        self.watch = SocketWatch(loop, clocks.perf_ns)
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            self.theirs, _ = server.accept()
        opened = OpenedSocket(ours.detach(), socket.AF_INET, "127.0.0.1:1", None)
        self.connection = Connection(ConnectionParts(loop, self.watch, clocks), opened, Mock())
        self.connection._read = self._read

    def _read(self) -> int:
        self.reads += 1
        self.now += self.reading_ns
        return READ_BYTES

    def close(self) -> None:
        self.connection.close()
        self.theirs.close()
        self.watch.close()


@pytest.fixture
def flooded() -> Iterator[Flooded]:
    made = Flooded()
    yield made
    made.close()


def test_a_connection_is_read_several_times_while_there_is_time(flooded: Flooded) -> None:
    flooded.watch.tick(flooded.now, flooded.now + MS)
    flooded.connection.readable()
    assert flooded.reads == 5


def test_once_the_next_tick_is_due_the_rest_waits(flooded: Flooded) -> None:
    flooded.watch.tick(flooded.now, flooded.now + MS)
    flooded.reading_ns = MS // 2
    flooded.connection.readable()
    assert flooded.reads == 2
    flooded.connection.readable()
    assert flooded.reads == 3, "one piece in any case"
