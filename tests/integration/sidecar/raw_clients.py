"""Raw sockets that send HTTP and gRPC in ways in which no well-behaved client does."""

import contextlib
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from telemetry.store.reader import StoreReader
from tests.fixtures_sidecar import SidecarProcess
from tests.integration.waiting import wait_until

GRPC_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header field in HPACK: literal, not indexed, not compressed."""
    parts = [name.encode(), value.encode(errors="surrogateescape")]
    assert all(len(part) < 127 for part in parts)
    return b"\0" + b"".join(bytes([len(part)]) + part for part in parts)


SETTINGS = http2_frame(4, 0, 0, b"")
SETTINGS_ACK = http2_frame(4, 1, 0, b"")
GRPC_OPENED = GRPC_PREFACE + SETTINGS + SETTINGS_ACK


def grpc_call(stream: int = 1, path: str = TRACES) -> bytes:
    """The header of a call whose message is still to come."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a", "te": "trailers"}
    fields["content-type"] = "application/grpc"
    return http2_frame(1, 4, stream, b"".join(_literal(name, value) for name, value in fields.items()))


def http_request(body: bytes = b"", **headers: str) -> bytes:
    """A POST of traces in protobuf; an underscore in a header's name becomes a hyphen."""
    fields = {"host": "a", "content_type": "application/x-protobuf", "content_length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"POST /v1/traces HTTP/1.1\r\n{head}\r\n".encode() + body


def address(url: str) -> tuple[str, int]:
    """The host and port of an address as the sidecar states it."""
    host, _, port = url.rpartition("://")[2].rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def connections(url: str, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections, each of which begins with the same octets."""
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        for _ in range(count):
            sockets.append(stack.enter_context(socket.create_connection(address(url), timeout=60)))
            sockets[-1].setblocking(False)
            send(sockets[-1], first)
        yield sockets


def send(connection: socket.socket, octets: bytes) -> int:
    """Send as much as the connection accepts at once; how much that was, or -1 if it is closed."""
    try:
        return connection.send(octets) if octets else 0
    except BlockingIOError:
        return 0
    except OSError:
        return -1


def is_open(connection: socket.socket) -> bool:
    """Whether the other side has not closed the connection; what it sent is read and dropped."""
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def wait_until_closed(opened: Sequence[socket.socket], trickle: Callable[[], bytes] = lambda: b"") -> float:
    """Wait until every connection is closed by the other side, sending a little on each meanwhile; the seconds."""
    started = time.monotonic()
    still = list(opened)

    def all_closed() -> bool:
        for connection in still:
            send(connection, trickle())
        still[:] = [connection for connection in still if is_open(connection)]
        return not still

    wait_until(all_closed)
    return time.monotonic() - started


def send_evenly(opened: Sequence[socket.socket], octets: bytes, at_least: int = 0) -> int:
    """Send the octets on all connections side by side until `at_least` so many were accepted and no more are for a
    second; the octets accepted. The bound only ends a hopeless wait."""
    rest = {connection: memoryview(octets) for connection in opened}
    accepted = 0
    idle_since = time.monotonic()
    while rest and time.monotonic() - idle_since < (1.0 if accepted >= at_least else 60.0):
        for connection, left in list(rest.items()):
            is_open(connection)
            sent = send(connection, bytes(left[: 1 << 18]))
            if sent < 0:
                del rest[connection]
                continue
            if sent:
                idle_since = time.monotonic()
            accepted += sent
            rest[connection] = left[sent:]
            if not rest[connection]:
                del rest[connection]
    return accepted


def memory_bytes(pid: int) -> int:
    """The memory that a process uses now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def open_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@dataclass
class AskedSidecar:
    """A running sidecar, its store, and clients of it."""

    sidecar: SidecarProcess
    store: Path
    client: httpx.Client

    def ask(self, octets: bytes, answers: int = 1) -> list[tuple[int, bytes]]:
        """Send octets on a connection of their own; the statuses and bodies of the answers."""
        with socket.create_connection(address(self.sidecar.http), timeout=60) as connection:
            connection.sendall(octets)
            received = b""
            while len(complete := _answers(received)) < answers:
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                received += piece
        return complete

    def reader(self) -> StoreReader:
        """A reader that sees everything that was acknowledged."""
        return StoreReader(self.store)

    def state(self, name: str) -> int:
        """A count of its state."""
        return self.client.get("/v1/state").json()[name]


def _answers(received: bytes) -> list[tuple[int, bytes]]:
    answers: list[tuple[int, bytes]] = []
    while (start := re.match(rb"HTTP/1\.1 (\d+) [^\r]*\r\n((?:[^\r]+\r\n)*)\r\n", received)) is not None:
        length = re.search(rb"(?i)content-length: (\d+)", start[2])
        end = start.end() + (int(length[1]) if length else 0)
        if len(received) < end:
            break
        answers.append((int(start[1]), received[start.end() : end]))
        received = received[end:]
    return answers


class GrpcSender:
    """A gRPC connection with one call that keeps to HTTP/2's flow control while it sends its message."""

    _FRAME_BYTES = 16_384

    def __init__(self, connection: socket.socket, message_bytes: int) -> None:
        self.connection = connection
        self.accepted = 0
        self.closed = False
        self._received = b""
        prefix = b"\0" + message_bytes.to_bytes(4, "big")
        self._windows = dict.fromkeys((0, 1), 65_535 - len(prefix))
        send(connection, GRPC_OPENED + grpc_call() + http2_frame(0, 0, 1, prefix))

    def step(self, count: int) -> bool:
        """Read what came and send up to so many octets of the message; False when nothing more can be sent now."""
        self._read()
        room = min(count, self._FRAME_BYTES, *self._windows.values())
        if self.closed or room <= 0:
            return False
        frame = http2_frame(0, 0, 1, bytes(room))
        sent = 0
        while sent < len(frame) and not self.closed:
            step = send(self.connection, frame[sent:])
            if step < 0:
                self.closed = True
            elif step == 0:
                self.closed |= not select.select([], [self.connection], [], 5)[1]
            sent += max(step, 0)
        for stream in self._windows:
            self._windows[stream] -= room
        self.accepted += room
        return True

    def _read(self) -> None:
        try:
            octets = self.connection.recv(1 << 16)
            self.closed |= not octets
            self._received += octets
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        while len(self._received) >= 9:
            end = 9 + int.from_bytes(self._received[:3], "big")
            if len(self._received) < end:
                return
            kind, stream = self._received[3], int.from_bytes(self._received[5:9], "big")
            if kind == 8:
                self._windows[stream] += int.from_bytes(self._received[9:13], "big")
            self.closed |= kind == 3  # the call was reset
            self._received = self._received[end:]
