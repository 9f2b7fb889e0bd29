"""Limit on what is read from one connection before others have their turn."""

import socket
from collections.abc import Iterator
from unittest.mock import Mock

import gevent
import pytest

from loadtest.engine.clock import Clocks
from loadtest.engine.connection import READ_BYTES, Connection, ConnectionParts, OpenedSocket
from loadtest.engine.watch import SocketWatch


class Flooded:
    """A connection that always has more to read."""

    def __init__(self) -> None:
        self.reads = 0
        clocks, loop = Clocks(), gevent.get_hub().loop
        self.watch = SocketWatch(loop, clocks.perf_ns)
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            self.theirs, _ = server.accept()
        opened = OpenedSocket(ours.detach(), socket.AF_INET, "127.0.0.1:1", None)
        self.connection = Connection(ConnectionParts(loop, self.watch, clocks), opened, Mock())
        self.connection._read = self._read

    def _read(self) -> int:
        self.reads += 1
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


def test_connection_is_read_several_times_before_others(flooded: Flooded) -> None:
    flooded.connection.readable()
    assert flooded.reads == 4
