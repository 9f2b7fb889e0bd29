"""A WebSocket on a raw non-blocking socket, served by the gevent hub.

Data is read with the kernel's receive stamp and queued; decoding happens afterwards, when the engine has time. Writes
never block: what the socket does not take waits in `outbox`, and `on_taken` is told when it has taken more.
"""

import _socket
import contextlib
import socket as socket_names
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from loadtest.caller.clock import Clocks
from loadtest.caller.outbox import Outbox
from loadtest.caller.tls import Tls

try:
    import fcntl
except ImportError:  # Windows: nobody says what has not left the machine
    fcntl = None

# What the number of an option means is another thing on another system: they are used where they are known.
_LINUX: Final = sys.platform.startswith("linux")
_KERNEL_STAMPS: Final = _LINUX and hasattr(_socket.socket, "recvmsg_into")
_READ: Final = 1
_WRITE: Final = 2
_SO_TIMESTAMPNS: Final = 35  # Linux; the ancillary message has the same number
_SIOCOUTQNSD: Final = 0x894B  # Linux: bytes in the send queue which the kernel has not sent yet
# How much the kernel may hold without having sent it. Left alone it takes some 4 MB, a minute of speech, before it
# shows that an endpoint does not read; so bounded it is half a second. Audio in flight to a distant endpoint does not
# count. A small send buffer would count it, and block on a long line: it is the bound only where there is no other.
_TCP_NOTSENT_LOWAT: Final = getattr(socket_names, "TCP_NOTSENT_LOWAT", 25 if _LINUX else None)
_UNSENT_BYTES: Final = 4096
_SEND_BUFFER_BYTES: Final = 64 * 1024
READ_BYTES: Final = 256 * 1024
_READS_PER_WAKE: Final = 4
_ANCILLARY_SIZE: Final = 64
_TIMESPEC: Final = struct.Struct("qq")

# (stamp, seen): when the kernel received the data and when the program saw it, both on the monotonic clock.
Chunk = tuple[int, int, bytes]


class Connection:
    """One socket. `on_data()` tells the engine that `chunks` is not empty or that `closed` has a reason.

    `read_into` is room for one read. All connections of a hub share it: what was read is copied out before the next.
    """

    def __init__(
        self,
        loop: Any,
        fd: int,
        family: int,
        clocks: Clocks,
        on_data: Callable[[], None],
        tls: Tls | None,
        read_into: memoryview,
    ) -> None:
        self._sock = _socket.socket(family, socket_names.SOCK_STREAM, 0, fileno=fd)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket_names.IPPROTO_TCP, socket_names.TCP_NODELAY, 1)
        self._clocks = clocks
        self._on_data = on_data
        self._tls = tls
        self._bound_unsent()
        self._view = read_into
        self.stamp_kind = self._ask_for_stamps()
        self.chunks: deque[Chunk] = deque()
        self.outbox = Outbox(self._sock.send)
        self.on_taken: Callable[[], None] = _nobody
        self.closed: str | None = None
        self._heard = False
        self._breaking = False
        self.clock_fault = False
        self._reader = loop.io(fd, _READ)
        self._writer = loop.io(fd, _WRITE)
        self._reader.start(self._readable)
        if tls is not None:
            self._write_plain(tls.step())

    def _bound_unsent(self) -> None:
        try:
            if _TCP_NOTSENT_LOWAT is None:
                self._sock.setsockopt(socket_names.SOL_SOCKET, socket_names.SO_SNDBUF, _SEND_BUFFER_BYTES)
            else:
                self._sock.setsockopt(socket_names.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        except OSError:  # An older kernel: the evidence at the end of speech still tells.
            return

    def _ask_for_stamps(self) -> str:
        if not _KERNEL_STAMPS:
            return "user"
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
                self._lost(self._why(f"the connection broke: {error.strerror or error}"))
                return
            seen = self._clocks.perf_ns()
            if size == 0:
                self._lost(self._why("the endpoint closed the connection without a goodbye"))
                return
            self._heard = True
            data = bytes(self._view[:size])
            if self._tls is not None:
                data = self._decrypt(data)
            if data:
                self.chunks.append((self._stamp(ancillary, seen), seen, data))
            if size < len(self._view):
                break
        # The end of a TLS handshake brings no data, and is what the upgrade waits for.
        if self.chunks or self._tls is not None:
            self._on_data()

    def _stamp(self, ancillary: list[tuple[int, int, bytes]], seen_perf_ns: int) -> int:
        for level, kind, payload in ancillary:
            if level == socket_names.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(payload) >= 16:
                seconds, nanoseconds = _TIMESPEC.unpack_from(payload)
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
            # The alert tells the endpoint why. It is a courtesy: nothing depends on its arrival.
            with contextlib.suppress(OSError):
                self._sock.send(self._tls.step())
            self._lost(self._tls.sentence(error))
            return b""
        self._write_plain(self._tls.step())
        return plain

    def send(self, data: bytes) -> bool:
        """Send now what the socket takes; the rest goes as soon as it can, before anything else.

        Whether it took all of it. What is given to a connection that is gone goes nowhere, and nothing waits.
        """
        return self._write_plain(data if self._tls is None else self._tls.encrypt(data))

    def _write_plain(self, data: bytes) -> bool:
        if not data or self.closed is not None:
            return True
        try:
            taken = self.outbox.push(data)
        except OSError as error:
            self._broke(error)
            return True
        if not taken and not self._writer.active:
            self._writer.start(self._writable)
        return taken

    def _writable(self) -> None:
        try:
            if self.outbox.flush():
                self._writer.stop()
        except OSError as error:
            self._broke(error)
            return
        self.on_taken()

    @property
    def secured(self) -> bool:
        """Whether application data may be sent: always, but under TLS only after its handshake."""
        return self._tls is None or self._tls.done

    def unsent_bytes(self) -> int | None:
        """Bytes accepted from us that have not left this machine; None where the system does not say."""
        waiting = self.outbox.waiting_bytes
        if fcntl is None or not _LINUX:
            return waiting or None
        try:
            answer = fcntl.ioctl(self._sock.fileno(), _SIOCOUTQNSD, b"\0\0\0\0")
        except OSError:
            return waiting or None
        return waiting + struct.unpack("i", answer)[0]

    def _why(self, reason: str) -> str:
        if self._tls is not None:
            return self._tls.why_it_ended(reason)
        return reason if self._heard else f"{reason} before it said anything; does it want wss://?"

    def _broke(self, error: OSError) -> None:
        """Nothing can be sent any more. What the endpoint said before may still lie here, and say why."""
        if not self._breaking:
            self._breaking = True
            self._readable()
            self._lost(self._why(f"the connection broke: {error.strerror or error}"))

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


def _nobody() -> None:
    """Nobody waits to hear that more was taken."""
