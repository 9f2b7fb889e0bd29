"""The stated interval of an arrival contains the moment at which the sender's kernel sent it, however much was read
with it, with and without TLS."""

import contextlib
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from loadtest.conversation.evidence import Evidence
from loadtest.engine.arrival_evidence import note_arrival
from loadtest.engine.clock import Clocks
from loadtest.engine.connection import Connection, ConnectionParts, OpenedSocket
from loadtest.engine.health import EngineHealth
from loadtest.engine.tls import tls_client
from loadtest.engine.transports.base import TransportCallbacks, TransportItem
from loadtest.engine.transports.stream import StreamTransport
from loadtest.engine.watch import SocketWatch
from loadtest.protocols.address import Address
from loadtest.protocols.base import OpenRequest
from loadtest.protocols.failure import Failure
from loadtest.protocols.transports.websocket import WebSocketClient
from tests.integration import raw_endpoint
from tests.integration.certificates import Authority, authority
from tests.integration.engine.tls_door import served

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's stamps are Linux's")

# Linux: of each segment, the moment at which the kernel passed it to the device, from the socket's queue of errors.
SO_TIMESTAMPING, SENT_BY_SOFTWARE = 37, 1 << 1 | 1 << 4 | 1 << 7 | 1 << 11
GAP_S = 0.02  # between two segments that are read together
FIRST, SECOND = raw_endpoint.text(b"a" * 500), raw_endpoint.text(b"b" * 500)
PING = b"\x89\x00"


class Endpoint:
    """The endpoint's side of one connection, which sends on command and knows when that left."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None, clocks: Clocks) -> None:
        self.sock, self._clocks = sock, clocks
        sock.settimeout(20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context and context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self, go_on: Callable[[], None]) -> None:
        """Accept TLS and the upgrade, while the client goes on after each step."""
        while self._tls is not None:
            go_on()
            self._incoming.write(self.sock.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                break
            self.sock.sendall(self._outgoing.read())
        if self._tls is not None:
            self.sock.sendall(self._outgoing.read())
            go_on()
        self.sock.sendall(self.record(raw_endpoint.accepting(self._request())))
        go_on()
        self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SENT_BY_SOFTWARE)

    def _request(self) -> bytes:
        """Return the upgrade request, which can have come with the end of the handshake of TLS."""
        if self._tls is None:
            return self.sock.recv(65_536)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                return self._tls.read(65_536)
            self._incoming.write(self.sock.recv(65_536))

    def record(self, data: bytes) -> bytes:
        """Return what carries these bytes: one record of TLS, or the bytes themselves."""
        if self._tls is None:
            return data
        self._tls.write(data)
        return self._outgoing.read()

    def send(self, data: bytes) -> int:
        """Send one segment; return when the kernel did so, on the monotonic clock."""
        self.sock.sendall(data)
        _, notes, _, _ = self.sock.recvmsg(1, 512, socket.MSG_ERRQUEUE)
        (stamp,) = (note for level, kind, note in notes if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING))
        seconds, nanoseconds = struct.unpack_from("qq", stamp)
        return seconds * 1_000_000_000 + nanoseconds - self._clocks.offset_ns


class Call(TransportCallbacks):
    """A caller's connection and the endpoint of it, and the interval in which each message is said to have come."""

    def __init__(self, sock: socket.socket, endpoint: Endpoint, tls: Any, clocks: Clocks) -> None:
        self.endpoint, self._clocks, self._health = endpoint, clocks, EngineHealth()
        self.came_within: dict[str, tuple[int, int]] = {}
        loop = gevent.get_hub().loop
        self.watch = SocketWatch(loop, clocks.perf_ns, self._health.note_looked)
        parts: Any = SimpleNamespace(connections=ConnectionParts(loop, self.watch, clocks))
        framing = WebSocketClient(OpenRequest("ws://localhost/"))
        self._transport = StreamTransport(parts, cast(Address, None), framing)
        opened = OpenedSocket(sock.detach(), socket.AF_INET, "localhost:1", tls)
        connection = Connection(parts.connections, opened, self._transport)
        self._transport.take_over(connection, self)
        self._transport.begin()

    def look(self) -> None:
        """Read what is there, as with a tick."""
        self.watch.tick(self._clocks.perf_ns() + 1_000_000_000)

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Sequence[TransportItem]) -> None:
        evidence = Evidence(stamp_error_ns=self._clocks.error_ns)
        note_arrival(evidence, self._transport, self._health, (stamp_perf_ns, seen_perf_ns), items)
        earliest = stamp_perf_ns - evidence.doubt_ns(stamp_perf_ns) - evidence.stamp_error_ns
        for item in items:
            self.came_within[str(item)[:1]] = earliest, stamp_perf_ns + evidence.stamp_error_ns

    def disconnected(self, reason: str, failure: Failure) -> None:
        raise AssertionError(reason)

    def failed(self, error: Exception) -> None:
        raise error

    def close(self) -> None:
        self._transport.close()
        self.watch.close()
        self.endpoint.sock.close()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


@contextlib.contextmanager
def calling(ca: Authority | None, folder: Path, version: ssl.TLSVersion | None) -> Generator[Call]:
    clocks, context, tls = Clocks(), None, None
    if ca is not None and version is not None:
        context, tls = served(ca.sign("localhost")), tls_client(str(ca.cert)).begin("localhost")
        context.maximum_version = version
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    call = Call(ours, Endpoint(theirs, context, clocks), tls, clocks)
    try:
        call.endpoint.shake_hands(call.look)
        yield call
    finally:
        call.close()


WIRES = {"ws": None, "wss, TLS 1.2": ssl.TLSVersion.TLSv1_2, "wss, TLS 1.3": ssl.TLSVersion.TLSv1_3}


@pytest.fixture(params=WIRES)
def call(request: pytest.FixtureRequest, ca: Authority, tmp_path: Path) -> Iterator[Call]:
    with calling(ca, tmp_path, WIRES[request.param]) as made:
        yield made


def behind_a_message(call: Call, then: bytes, share: float = 1.0) -> None:
    """The endpoint sends a message, and a share of more after a while; the program looks only after both."""
    call.look()
    sent_perf_ns = call.endpoint.send(call.endpoint.record(FIRST))
    time.sleep(GAP_S)
    record = call.endpoint.record(then)
    call.endpoint.send(record[: round(len(record) * share)])
    call.look()
    earliest, latest = call.came_within["a"]
    assert earliest <= sent_perf_ns <= latest
    assert latest - sent_perf_ns >= GAP_S * 1e9, "both were read at once, and have the stamp of what came last"


@pytest.mark.parametrize(
    "then", [PING, SECOND, SECOND[:300], SECOND[:1], PING + SECOND[:300], b"\x01" + SECOND[1:]], ids=range(6)
)
def test_data_behind_message_does_not_move_its_time(call: Call, then: bytes) -> None:
    behind_a_message(call, then)


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_part_of_a_record_behind_a_message_does_not_move_it(call: Call, share: float) -> None:
    behind_a_message(call, SECOND, share)


def test_messages_in_two_records_of_segment_share_arrival_time(call: Call) -> None:
    call.look()
    sent_perf_ns = call.endpoint.send(call.endpoint.record(FIRST) + call.endpoint.record(SECOND))
    call.look()
    for name in "ab":
        earliest, latest = call.came_within[name]
        assert earliest <= sent_perf_ns <= latest


@pytest.mark.parametrize("before", [FIRST[:200], PING + FIRST[:200], PING])
@pytest.mark.parametrize("looks_between", [True, False])
def test_a_message_came_when_its_last_part_did(call: Call, before: bytes, looks_between: bool) -> None:
    rest = FIRST[len(before.removeprefix(PING)) :]
    call.look()
    began_perf_ns = call.endpoint.send(call.endpoint.record(before))
    if looks_between:
        call.look()
    time.sleep(GAP_S)
    sent_perf_ns = call.endpoint.send(call.endpoint.record(rest))
    call.look()
    earliest, latest = call.came_within["a"]
    assert earliest <= sent_perf_ns + 2 * (latest - sent_perf_ns), "of its own, with the error of the clocks"
    assert began_perf_ns + GAP_S * 1e9 / 2 < earliest, "nothing came behind it: its stamp is in no doubt"
    assert sent_perf_ns <= latest
