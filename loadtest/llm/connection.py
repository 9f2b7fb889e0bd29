"""One HTTP connection to a model's server: bytes with the moment when the kernel received them.

Every read is decoded at once, so that no long answer holds up the stamps of others. The kernel stamps what it receives,
so that a busy loop makes no stamp later, as long as each stream is read before its next piece comes; where one read
takes several events, the earlier ones came after the loop last found the socket empty, which is their lower bound.
"""

import asyncio
import contextlib
import os
import selectors
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from loadtest.engine.clock import Clocks
from loadtest.engine.tls import Tls, TlsClient
from loadtest.llm.answers import FaultKind
from loadtest.llm.exchange import Times
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpFailed, HttpItem, HttpRequest
from loadtest.protocols.transports.http1 import Http1Client

_SO_TIMESTAMPNS: Final = 35  # Linux; the ancillary message has the same number
_READ_BYTES: Final = 65536
_TIMESPEC: Final = struct.Struct("qq")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
_READS_A_TURN: Final = 16

Received = Callable[["Stamp", list[HttpItem]], None]


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """The arrival of the bytes of one read: the last of them at `upper_ns`, the first not before `lower_ns`."""

    lower_ns: int
    upper_ns: int


class _Polls(selectors.DefaultSelector):
    """A selector that knows when it looked last, and the time before that."""

    before_ns = 0
    last_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events."""
        entered_ns = time.perf_counter_ns()
        ready = super().select(timeout)
        # Without a wait, the sockets were looked at some time after the call.
        self.before_ns = self.last_ns
        self.last_ns = entered_ns if timeout == 0 else time.perf_counter_ns()
        return ready


class PollingLoop(asyncio.SelectorEventLoop):
    """An event loop that knows when it last found a socket empty."""

    def __init__(self) -> None:
        self.polls = _Polls()
        super().__init__(self.polls)


class NotConnected(Exception):  # noqa: N818 - reads as what happened
    """No connection came about; `kind` is that of the fault of an answer."""

    def __init__(self, kind: FaultKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: FaultKind = kind


class ModelConnection:
    """One open connection. `received` gets what each read completes."""

    def __init__(self, sock: socket.socket, clocks: Clocks, tls: Tls | None) -> None:
        self._sock = sock
        self._clocks = clocks
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._polls = self._loop.polls if isinstance(self._loop, PollingLoop) else None
        self._http = Http1Client()
        self._received: Received | None = None
        self._empty_ns = 0  # when a read last left nothing behind
        self._secured: asyncio.Future[None] | None = None
        self.is_open = True
        self.is_stamped = _ask_for_stamps(sock)
        self.response_bytes = 0
        self.asked_ns = 0
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def is_free(self) -> bool:
        """Whether another request can be sent."""
        return self.is_open and self._http.is_open and self._http.is_free

    async def secure(self) -> None:
        """Do the TLS handshake. Raises NotConnected."""
        assert self._tls is not None  # noqa: S101 - the caller checks it
        secured = self._secured = self._loop.create_future()
        await self._loop.sock_sendall(self._sock, self._tls.step())
        await secured

    async def ask(self, request: HttpRequest, received: Received) -> None:
        """Send a request, whose first byte is handed to the socket at `asked_ns`. Raises OSError.

        `received` may be called before this returns, as a server may answer before it has read all.
        """
        data = self._http.send(request)
        if self._tls is not None:
            data = self._tls.encrypt(data)
        self._received, self.response_bytes = received, 0
        self.asked_ns = self._empty_ns = self._clocks.perf_ns()
        await self._loop.sock_sendall(self._sock, data)

    def close(self) -> None:
        """Close it; nothing is received after this."""
        if self.is_open:
            self.is_open, self._received = False, None
            self._loop.remove_reader(self._sock.fileno())
            with contextlib.suppress(OSError):
                self._sock.close()

    def _readable(self) -> None:
        for _ in range(_READS_A_TURN):
            if not self.is_open or self._read() < _READ_BYTES:
                return

    def _read(self) -> int:
        try:
            data, ancillary, _, _ = self._sock.recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._ended("connection", f"the connection broke: {error.strerror or error}")
            return 0
        seen_ns = self._clocks.perf_ns()
        stamp = self._stamp(ancillary, seen_ns)
        if len(data) < _READ_BYTES:
            self._empty_ns = seen_ns
        if not data:
            self._end_of_stream(stamp)
            return 0
        size = len(data)
        if self._tls is not None:
            try:
                data = self._tls.feed(data)
            except ssl.SSLError as error:
                self._ended("tls", self._tls.sentence(error))
                return 0
            if self._secured is not None:
                self._handshake()
            if not data:
                return size
        self.response_bytes += len(data)
        items = self._http.receive(data)
        if self._received is not None:
            self._received(stamp, items)
        return size

    def _stamp(self, ancillary: list[tuple[int, int, bytes]], seen_ns: int) -> Stamp:
        upper_ns = seen_ns
        lower_ns = max(self._empty_ns, 0 if self._polls is None else self._polls.before_ns)
        if ancillary and ancillary[0][1] == _SO_TIMESTAMPNS and len(ancillary[0][2]) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            stamp_ns = self._clocks.to_perf_ns(seconds * 1_000_000_000 + nanoseconds)
            # One outside of what the loop saw itself comes from a clock that was set.
            if self._empty_ns <= stamp_ns <= seen_ns:
                upper_ns = stamp_ns
        return Stamp(min(lower_ns, upper_ns), upper_ns)

    def _handshake(self) -> None:
        assert self._tls is not None  # noqa: S101 - the caller checks it
        assert self._secured is not None  # noqa: S101 - likewise
        if out := self._tls.step():
            with contextlib.suppress(OSError):
                self._sock.send(out)
        if self._tls.done and not self._secured.done():
            self._secured.set_result(None)
            self._secured = None

    def _end_of_stream(self, stamp: Stamp) -> None:
        running = self._http.running
        items = self._http.receive_eof()
        received = self._received
        if items and received is not None:
            received(stamp, items)
        if running is not None and self._http.running is not None:
            self._ended("connection", "the server closed the connection")
        elif self._secured is not None:
            self._ended("tls", "the server closed the connection during the TLS handshake")
        self.close()

    def _ended(self, kind: FaultKind, sentence: str) -> None:
        received, running = self._received, self._http.running
        secured, self._secured = self._secured, None
        self.close()
        if secured is not None and not secured.done():
            secured.set_exception(NotConnected(kind, sentence))
        if received is not None and running is not None:
            now_ns = self._clocks.perf_ns()
            failed = HttpFailed(running.request_id, sentence, Failure("tls" if kind == "tls" else "tcp", kind))
            received(Stamp(now_ns, now_ns), [failed])


async def opened(address: Address, clocks: Clocks, tls: TlsClient, limit_s: float) -> tuple[ModelConnection, Times]:
    """Open a connection, and say when each step was done. Raises NotConnected."""
    times = Times(clocks.perf_ns())
    where = f"{address.host}:{address.port}"
    try:
        addresses = await _addresses(address)
    except OSError as error:
        raise NotConnected(
            "address", f"the host name {address.host} has no address: {error.strerror or error}"
        ) from None
    times.dns_ns = clocks.perf_ns()
    sock = await _connected(addresses, where, limit_s)
    times.tcp_ns = clocks.perf_ns()
    secret = tls.begin(address.host) if address.tls else None
    connection = ModelConnection(sock, clocks, secret)
    if secret is not None:
        try:
            await asyncio.wait_for(connection.secure(), limit_s)
        except (NotConnected, TimeoutError, OSError) as error:
            connection.close()
            if isinstance(error, NotConnected):
                raise
            raise NotConnected("tls", f"{where} did not finish the TLS handshake within {limit_s:g} s") from None
        times.tls_ns = clocks.perf_ns()
    return connection, times


async def _addresses(address: Address) -> Sequence[tuple[int, int, int, str, Any]]:
    """Return the addresses of a host. Raises OSError."""
    try:  # one that is a number needs neither a look-up nor the thread that it would run in
        return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)


async def _connected(addresses: Sequence[tuple[int, int, int, str, Any]], where: str, limit_s: float) -> socket.socket:
    """Return a socket that is connected to the first address that accepts it. Raises NotConnected."""
    loop = asyncio.get_running_loop()
    sentence = f"{where} has no address"
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.wait_for(loop.sock_connect(sock, address), limit_s)
        except TimeoutError:
            sentence = f"{where} did not accept a connection within {limit_s:g} s"
        except OSError as error:
            sentence = f"{where} cannot be reached: {(os.strerror(error.errno) if error.errno else str(error)).lower()}"
        except BaseException:  # a request that is canceled while it connects must not leave the socket open either
            sock.close()
            raise
        else:
            return sock
        sock.close()
    raise NotConnected("connection", sentence)


def _ask_for_stamps(sock: socket.socket) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True
