"""A WebSocket on a raw non-blocking socket, served by the gevent hub.

Data is read with the kernel's receive stamp and queued; decoding happens afterwards, when the engine has time. Writes
never block: what the socket does not take waits in `outbox` and goes first, before anything else on that socket.
"""

import _socket
import fcntl
import socket as socket_names
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from loadtest.caller.clock import Clocks

_READ: Final = 1
_WRITE: Final = 2
_SO_TIMESTAMPNS: Final = 35  # Linux; the ancillary message has the same number
_SIOCOUTQNSD: Final = 0x894B  # Linux: bytes in the send queue which the kernel has not sent yet
_READ_SIZE: Final = 256 * 1024
_READS_PER_WAKE: Final = 4
_ANCILLARY_SIZE: Final = 64

# (stamp, seen): when the kernel received the data and when the program saw it, both on the monotonic clock.
Chunk = tuple[int, int, bytes]


class Connection:
    """One socket. `on_data()` tells the engine that `chunks` is not empty or that `closed` has a reason."""

    def __init__(
        self, loop: Any, fd: int, family: int, clocks: Clocks, on_data: Callable[[], None], tls: "Tls | None"
    ) -> None:
        self._sock = _socket.socket(family, socket_names.SOCK_STREAM, 0, fileno=fd)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket_names.IPPROTO_TCP, socket_names.TCP_NODELAY, 1)
        self._clocks = clocks
        self._on_data = on_data
        self._tls = tls
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self.stamp_kind = self._ask_for_stamps()
        self.chunks: deque[Chunk] = deque()
        self.outbox: deque[memoryview] = deque()
        self.blocked_count = 0  # how often the socket took less than it was given: evidence about the endpoint
        self.closed: str | None = None
        self.clock_fault = False
        self._reader = loop.io(fd, _READ)
        self._writer = loop.io(fd, _WRITE)
        self._reader.start(self._readable)
        if tls is not None:
            self._write_plain(tls.step())

    def _ask_for_stamps(self) -> str:
        try:
            self._sock.setsockopt(socket_names.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError:
            return "user"
        return "kernel"

    def _readable(self) -> None:
        for _ in range(_READS_PER_WAKE):
            try:
                if self.stamp_kind == "kernel":
                    size, ancillary, _, _ = self._sock.recvmsg_into([self._view], _ANCILLARY_SIZE)
                else:
                    size, ancillary = self._sock.recv_into(self._view), []
            except BlockingIOError:
                break
            except OSError as error:
                self._lost(f"the connection broke: {error.strerror or error}")
                return
            seen = self._clocks.perf_ns()
            if size == 0:
                self._lost("the endpoint closed the connection without a goodbye")
                return
            data = bytes(self._view[:size])
            if self._tls is not None:
                data = self._decrypt(data)
            if data:
                self.chunks.append((self._stamp(ancillary, seen), seen, data))
            if size < _READ_SIZE:
                break
        # The end of a TLS handshake brings no data, and is what the upgrade waits for.
        if self.chunks or self._tls is not None:
            self._on_data()

    def _stamp(self, ancillary: list[tuple[int, int, bytes]], seen_perf_ns: int) -> int:
        for level, kind, payload in ancillary:
            if level == socket_names.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(payload) >= 16:
                seconds, nanoseconds = struct.unpack_from("qq", payload)
                stamp = self._clocks.to_perf_ns(seconds * 1_000_000_000 + nanoseconds)
                if stamp > seen_perf_ns:
                    # Received after it was seen: the offset between the clocks is off by at least that much.
                    self.clock_fault = self.clock_fault or stamp - seen_perf_ns > 1_000_000
                    return seen_perf_ns
                return stamp
        return seen_perf_ns

    def _decrypt(self, data: bytes) -> bytes:
        assert self._tls is not None  # noqa: S101 - the caller asked
        try:
            plain = self._tls.feed(data)
        except ssl.SSLError as error:
            self._lost(f"TLS failed: {error.reason or error}")
            return b""
        self._write_plain(self._tls.step())
        return plain

    def send(self, data: bytes) -> None:
        """Send now what the socket takes; the rest goes as soon as it can, before anything else."""
        if self._tls is not None:
            data = self._tls.encrypt(data)
        self._write_plain(data)

    def _write_plain(self, data: bytes) -> None:
        if not data or self.closed is not None:
            return
        if self.outbox:
            self.outbox.append(memoryview(data))
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lost(f"the connection broke: {error.strerror or error}")
            return
        if sent < len(data):
            self.blocked_count += 1
            self.outbox.append(memoryview(data)[sent:])
            self._writer.start(self._writable)

    def _writable(self) -> None:
        while self.outbox:
            head = self.outbox[0]
            try:
                sent = self._sock.send(head)
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(f"the connection broke: {error.strerror or error}")
                return
            if sent < len(head):
                self.outbox[0] = head[sent:]
                return
            self.outbox.popleft()
        self._writer.stop()

    @property
    def secured(self) -> bool:
        """Whether application data may be sent: always, but under TLS only after its handshake."""
        return self._tls is None or self._tls.done

    def unsent_bytes(self) -> int | None:
        """Bytes accepted from us that have not left this machine; None where the system does not say."""
        waiting = sum(len(part) for part in self.outbox)
        try:
            answer = fcntl.ioctl(self._sock.fileno(), _SIOCOUTQNSD, b"\0\0\0\0")
        except OSError:
            return waiting or None
        return waiting + struct.unpack("i", answer)[0]

    def _lost(self, reason: str) -> None:
        if self.closed is None:
            self.closed = reason
            self._reader.stop()
            self._writer.stop()
            self._on_data()

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self.closed is None:
            self.closed = "closed by the caller"
        for watcher in (self._reader, self._writer):
            watcher.stop()
            watcher.close()
        self._sock.close()


class Tls:
    """TLS over memory buffers, because a socket wrapped by the ssl module gives no kernel stamps."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.done = False

    def step(self) -> bytes:
        """Go on with the handshake; bytes to send. Raises ssl.SSLError when the peer cannot be trusted."""
        if not self.done:
            try:
                self._object.do_handshake()
                self.done = True
            except ssl.SSLWantReadError:
                pass
        return self._outgoing.read()

    def feed(self, data: bytes) -> bytes:
        """Encrypted bytes in, plain bytes out. Raises ssl.SSLError."""
        self._incoming.write(data)
        if not self.done:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.done = True
        plain = bytearray()
        while True:
            try:
                piece = self._object.read(65536)
            except ssl.SSLWantReadError:
                return bytes(plain)
            except ssl.SSLZeroReturnError:
                return bytes(plain)
            if not piece:
                return bytes(plain)
            plain += piece

    def encrypt(self, data: bytes) -> bytes:
        """Plain bytes in, encrypted bytes out."""
        self._object.write(data)
        return self._outgoing.read()
