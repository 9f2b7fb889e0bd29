"""Data that waits for an endpoint over TLS is encrypted when it can be sent, and arrives whole and in order."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import gevent
import gevent.event
import pytest

from loadtest.engine.clock import Clocks
from loadtest.engine.connection import Connection, ConnectionParts, OpenedSocket
from loadtest.engine.tls import tls_client
from loadtest.engine.watch import SocketWatch
from loadtest.protocols.failure import Failure
from tests.integration.certificates import authority

pytestmark = pytest.mark.nightly

FRAMES = [b"%07d" % number * 190 for number in range(2000)]  # 1,330 bytes each, and no two are the same


class Owner:
    """Records its calls."""

    def __init__(self) -> None:
        self.ready, self.heard, self.gone = gevent.event.Event(), bytearray(), list[str]()

    def secured(self) -> None:
        self.ready.set()

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        self.heard += data

    def settle(self) -> None:
        pass

    def disconnected(self, reason: str, failure: Failure) -> None:
        self.gone.append(reason)
        self.ready.set()

    def failed(self, error: Exception) -> None:
        raise error


class DeafServer:
    """A TLS server of one connection in a thread: it reads nothing until it may, and says a word now and then."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.may_read, self.heard = threading.Event(), bytearray()
        self._context = context
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        accepted, _ = self.listener.accept()
        with self._context.wrap_socket(accepted, server_side=True) as secured:
            secured.sendall(b"welcome")
            self.may_read.wait(60)
            while len(self.heard) < sum(map(len, FRAMES)) and (data := secured.recv(65_536)):
                self.heard += data
            secured.sendall(b"heard")


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[DeafServer, Path]]:
    ca = authority(tmp_path / "ca")
    signed = ca.sign("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = request.param
    context.load_cert_chain(signed.cert, signed.key)
    running = DeafServer(context)
    yield running, ca.cert
    running.may_read.set()
    running.thread.join(60)
    running.listener.close()


def test_frames_that_waited_for_a_deaf_endpoint_arrive_in_order(server: tuple[DeafServer, Path]) -> None:
    deaf, ca = server
    clocks, loop, callbacks = Clocks(), gevent.get_hub().loop, Owner()
    watch = SocketWatch(loop, clocks.perf_ns)
    sock = socket.create_connection(deaf.listener.getsockname())
    tls = tls_client(str(ca)).begin("localhost")
    parts, opened = ConnectionParts(loop, watch, clocks), OpenedSocket(sock.detach(), sock.family, "127.0.0.1:0", tls)
    connection = Connection(parts, opened, callbacks)
    try:
        connection.begin()
        assert callbacks.ready.wait(60)
        assert not callbacks.gone
        taken = [connection.send(frame) for frame in FRAMES]
        assert taken[0]
        assert not taken[-1], "the endpoint reads nothing"
        waiting = connection.outbox.waiting_bytes
        assert waiting > len(FRAMES[0]) * 100
        deaf.may_read.set()
        with gevent.Timeout(30):
            while not callbacks.heard.endswith(b"heard"):
                gevent.sleep(0.002)
                watch.tick(clocks.perf_ns() + 1_000_000)
        assert connection.outbox.waiting_bytes == 0
        assert deaf.heard == b"".join(FRAMES)
        assert callbacks.heard == b"welcomeheard"
    finally:
        connection.close()
        watch.close()
