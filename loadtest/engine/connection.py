"""One TCP or TLS connection on a raw non-blocking socket, served by the gevent hub.

Data is read with the kernel's receive timestamp and passed on at once. Writes never block: what the socket does not
accept waits in `outbox`.
"""

import _socket
import contextlib
import errno
import socket as socket_names
import ssl
import struct
import sys
from dataclasses import dataclass
from typing import Any, Final, Protocol

from loadtest.engine import tls_mismatch
from loadtest.engine.clock import Clocks
from loadtest.engine.local_limits import buffers_exhausted
from loadtest.engine.outbox import Outbox
from loadtest.engine.pacer import FrameHead, PacedSocket, Pacer
from loadtest.engine.tls import Tls
from loadtest.engine.watch import SocketWatch
from loadtest.protocols.failure import Failure, code_of

try:
    import fcntl
except ImportError:  # Windows: the amount of unsent data is not available
    fcntl = None

# Option numbers differ between systems, so they are used only where they are known.
_LINUX: Final = sys.platform.startswith("linux")
_KERNEL_STAMPS: Final = _LINUX and hasattr(_socket.socket, "recvmsg")
_WRITE: Final = 2
_SO_TIMESTAMPNS: Final = 35  # Linux; the ancillary message has the same number
_SIOCOUTQNSD: Final = 0x894B  # Linux: bytes in the send queue which the kernel has not sent yet
# How much unsent data the kernel may hold. By default it accepts about 4 MB, a minute of speech, before it shows that
# an endpoint does not read; with this limit it is half a second. Audio in flight to a distant endpoint does not count.
# A small send buffer would count it and block on a slow path, so it is only the fallback.
_TCP_NOTSENT_LOWAT: Final = getattr(socket_names, "TCP_NOTSENT_LOWAT", 25 if _LINUX else None)
_UNSENT_BYTES: Final = 4096
_SEND_BUFFER_BYTES: Final = 64 * 1024
READ_BYTES: Final = 64 * 1024
_READS_PER_WAKE: Final = 4
_ANCILLARY_SIZE: Final = 64
_unpack_timespec: Final = struct.Struct("qq").unpack


def broken_by(error: OSError) -> Failure:
    """Return the cause of a socket error."""
    return Failure("tcp", errno.errorcode.get(error.errno or 0))


class ConnectionCallbacks(Protocol):
    """The owner of a connection, called in the order in which things happen."""

    def secured(self) -> None:
        """Called when application data may be sent: at once, or after the TLS handshake."""
        ...

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        """Called with received data, when the kernel received it and when the program saw it (monotonic clock)."""
        ...

    def settle(self) -> None:
        """Called when the socket has accepted more of what was waiting."""
        ...

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Called when the connection is gone."""
        ...

    def failed(self, error: Exception) -> None:
        """Called on an internal error."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionParts:
    """The parts of an engine that all its connections share. `loop` is the gevent hub's."""

    loop: Any
    watch: SocketWatch
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class OpenedSocket:
    """A connected socket, which its Connection then owns. `server` is HOST:PORT of the side that was connected to.

    `other_scheme` is that of an address which differs in nothing but TLS, for error sentences.
    """

    fd: int
    family: int
    server: str
    tls: Tls | None
    accepted: bool = False  # the other side has connected to us
    other_scheme: str = ""


class Connection:
    """One socket. `closed` is the reason why the connection ended, None while it is open."""

    def __init__(self, parts: ConnectionParts, opened: OpenedSocket, callbacks: ConnectionCallbacks) -> None:
        fd, tls = opened.fd, opened.tls
        self._sock = _socket.socket(opened.family, socket_names.SOCK_STREAM, 0, fileno=fd)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket_names.IPPROTO_TCP, socket_names.TCP_NODELAY, 1)
        self._fd = fd
        self._clocks = parts.clocks
        self._callbacks = callbacks
        self._tls = tls
        self._server, self._other_scheme = opened.server, opened.other_scheme
        self._accepted = opened.accepted
        self._bound_unsent()
        self.stamped = self._ask_for_stamps()
        self.outbox: Outbox | PacedSocket = Outbox(self._sock.send, None if tls is None else tls.encrypt)
        self.closed: str | None = None
        self.has_rest = False  # more was read with what is being passed on, which has the stamp of the last of it
        self._first = b""  # the first bytes from the endpoint, which show whether it speaks TLS
        self._is_secured = False
        self._reading = False
        self._broken: OSError | None = None
        self._watch = parts.watch
        self._writer = parts.loop.io(fd, _WRITE)
        self._watch.add(fd, self, stamped=self.stamped)

    def begin(self) -> None:
        """Begin the TLS handshake; without TLS, call `secured` at once."""
        if self._tls is None:
            self._callbacks.secured()
        else:
            self._write_handshake()

    def _bound_unsent(self) -> None:
        try:
            if _TCP_NOTSENT_LOWAT is None:
                self._sock.setsockopt(socket_names.SOL_SOCKET, socket_names.SO_SNDBUF, _SEND_BUFFER_BYTES)
            else:
                self._sock.setsockopt(socket_names.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        except OSError:  # An older kernel: the unsent bytes at the end of speech are still recorded.
            return

    def _ask_for_stamps(self) -> bool:
        if not _KERNEL_STAMPS:
            return False
        try:
            self._sock.setsockopt(socket_names.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError:
            return False
        return True

    @property
    def stamp_kind(self) -> str:
        """The source of receive timestamps: "kernel" or "user", part of each turn's evidence."""
        return "kernel" if self.stamped else "user"

    def readable(self) -> None:
        """Read what has arrived and pass it on."""
        if self._reading or self.closed is not None:
            return
        self._reading = True
        try:
            for _ in range(_READS_PER_WAKE):
                if self._read() < READ_BYTES or self.closed is not None:
                    break
        finally:
            self._reading = False
        if self._broken is not None:
            self._end_broken(self._broken)

    def failed(self, error: Exception) -> None:
        """Pass an internal error on to the owner."""
        self._callbacks.failed(error)

    def _read(self) -> int:
        """Read once, pass the data on and return its size in bytes."""
        try:
            if self.stamped:
                data, ancillary, _, _ = self._sock.recvmsg(READ_BYTES, _ANCILLARY_SIZE)
            else:
                data, ancillary = self._sock.recv(READ_BYTES), ()
        except BlockingIOError:
            return 0
        except OSError as error:
            self._lost_by(error)
            return 0
        seen = self._clocks.perf_ns()
        size = len(data)
        if not size:
            if self._broken is not None and self._broken.errno == errno.ECONNRESET:
                self._lost_by(self._broken)  # a send has already reported the reset
                return 0
            cut = Failure("tls" if self._handshaking else "tcp", "EOF")
            self._lost(self._why("the endpoint closed the connection unexpectedly"), cut)
            return 0
        if len(self._first) < 2 and self._is_mismatch(data):
            return 0
        stamp, self.has_rest = seen, True  # where the kernel gave no stamp: it came before it was seen
        if ancillary:
            _, kind, payload = ancillary[0]
            if kind == _SO_TIMESTAMPNS and len(payload) == 16:
                seconds, nanoseconds = _unpack_timespec(payload)
                stamp = self._clocks.received_perf_ns(seconds * 1_000_000_000 + nanoseconds, seen)
                self.has_rest = size == READ_BYTES  # the kernel's stamp may be that of bytes behind these
        if self._tls is not None:
            data = self._decrypt(data)
            self.has_rest = self.has_rest or self._tls.has_rest
        if data:
            self._callbacks.receive(stamp, seen, data)
        return size

    @property
    def _handshaking(self) -> bool:
        return self._tls is not None and not self._tls.done

    def _is_mismatch(self, data: bytes) -> bool:
        """Check whether the first bytes show that only one side speaks TLS; if so, end the connection."""
        self._first += data[: 2 - len(self._first)]
        if self._tls is not None and tls_mismatch.cannot_be_tls(self._first):
            self._lost(tls_mismatch.not_tls_sentence(self._server, self._other_scheme), tls_mismatch.NOT_TLS)
        elif self._tls is None and tls_mismatch.is_alert(self._first):
            self._lost(tls_mismatch.tls_required_sentence(self._server, self._other_scheme), tls_mismatch.TLS_REQUIRED)
        return self.closed is not None

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why an open connection has no session after `waited_s` seconds; `awaited` is the message of it."""
        hint = "" if self._first and not self._handshaking else self._hint
        if self._handshaking:
            reason = f"the endpoint accepted the connection but did not finish the TLS handshake within {waited_s:g} s"
            return reason + hint, Failure("timeout", "tls_handshake")
        did = "connected to" if self._accepted else "accepted"
        what = self._server if self._accepted else "the connection"
        missing = "did not open a session" if awaited is None else f"sent no {awaited}"
        reason = f"the endpoint {did} {what} but {missing} within {waited_s:g} s"
        return reason + hint, Failure("timeout", "session")

    @property
    def _hint(self) -> str:
        if self._accepted:
            return ""
        return f"; {tls_mismatch.hint(self._server, self._other_scheme, tls=self._tls is not None)}"

    def _decrypt(self, data: bytes) -> bytes:
        assert self._tls is not None  # noqa: S101 - the caller checks it
        try:
            plain = self._tls.feed(data)
        except ssl.SSLError as error:
            # The alert gives the endpoint the reason. Nothing depends on its arrival.
            with contextlib.suppress(OSError):
                self._sock.send(self._tls.step())
            self._lost(self._tls.sentence(error), Failure("tls", code_of(error.reason)))
            return b""
        if not self._tls.done or self._tls.has_output:
            self._write_handshake()
        if self._tls.done and not self._is_secured:
            self._is_secured = True
            self._callbacks.secured()
        return plain

    def send(self, data: bytes) -> bool:
        """Send what the socket accepts now and queue the rest; return whether it accepted everything.

        Data for a connection that is gone is discarded and counts as accepted.
        """
        if not data or self.closed is not None:
            return True
        try:
            taken = self.outbox.push(data)
        except OSError as error:
            self._broke(error)
            return True
        if not taken and isinstance(self.outbox, Outbox) and not self._writer.active:
            self._writer.start(self._writable)
        return taken

    def pace(self, pacer: Pacer, frame_ns: int, head: FrameHead | None = None) -> PacedSocket | None:
        """Hand the socket to the pacer thread for writing; None if it cannot: the hub continues to write.

        The pacer thread cannot write encrypted records: only the hub knows their order.
        """
        if self._tls is not None or self.closed is not None or self.outbox.waiting_bytes:
            return None
        paced = pacer.add(self._fd, frame_ns, self._broke, head)
        if paced is not None:
            self.outbox = paced
        return paced

    def _write_handshake(self) -> None:
        """Send TLS's own records. If messages are waiting, the records go before the next encrypted one."""
        outbox = self.outbox
        if self._tls is None or self.closed is not None or not isinstance(outbox, Outbox) or outbox.waiting_bytes:
            return
        try:
            records = self._tls.step()
            if records and not outbox.push_wire(records) and not self._writer.active:
                self._writer.start(self._writable)
        except OSError as error:
            self._broke(error)

    def _writable(self) -> None:
        if not isinstance(self.outbox, Outbox) or not self._watch.has_time():
            return  # the hub calls again as long as there is room
        try:
            if self.outbox.flush():
                self._writer.stop()
                self._write_handshake()
        except OSError as error:
            self._broke(error)
            return
        try:
            self._callbacks.settle()
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            self._callbacks.failed(error)

    def unsent_bytes(self) -> int | None:
        """Return the bytes that have not left this machine; None if the system does not report them."""
        waiting = self.outbox.waiting_bytes
        if fcntl is None or not _LINUX:
            return waiting or None
        try:
            answer = fcntl.ioctl(self._sock.fileno(), _SIOCOUTQNSD, b"\0\0\0\0")
        except OSError:
            return waiting or None
        return waiting + struct.unpack("i", answer)[0]

    def _why(self, reason: str) -> str:
        if self._tls is not None and self._tls.done:
            return self._tls.why_it_ended(reason)
        if self._first:
            return f"{reason} during the TLS handshake" if self._handshaking else reason
        return f"{reason} before it sent anything{self._hint}"

    def _broke(self, error: OSError) -> None:
        """Handle a failed send. Data that the endpoint sent before may be unread and contain the reason."""
        if self._broken is None:
            self._broken = error
            if not self._reading:
                self.readable()

    def _end_broken(self, error: OSError) -> None:
        self._reading = True
        try:
            while self.closed is None and self._read():
                pass
        finally:
            self._reading = False
        self._lost_by(error)

    def _lost_by(self, error: OSError) -> None:
        exhausted = buffers_exhausted(error)
        if exhausted is not None:
            self._lost(str(exhausted), exhausted.failure)
            return
        cause = broken_by(error)
        failure = Failure("tls", cause.code) if self._handshaking else cause
        self._lost(self._why(f"the connection broke: {error.strerror or error}"), failure)

    def _lost(self, reason: str, failure: Failure) -> None:
        if self.closed is None:
            self.closed = reason
            self._watch.remove(self._fd)
            self._writer.stop()
            self._callbacks.disconnected(reason, failure)

    def close(self) -> None:
        """Release all resources. Idempotent."""
        if self.closed is None:
            self.closed = "closed by the caller"
        if isinstance(self.outbox, PacedSocket):
            self.outbox.close()  # first: the system gives the descriptor's number to the next connection
        self._watch.remove(self._fd)
        self._writer.stop()
        self._writer.close()
        self._sock.close()
