"""HTTP connections within limits: their number, deadlines from the first octet of a TLS handshake to the last of a
response, and what a request's header and chunks may cost.

uvicorn limits none of these itself, apart from the time between two requests. asyncio's own TLS server would count a
connection when its handshake is over, and grant a minute for it.
"""

import asyncio
import contextlib
import logging
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Final, Protocol, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from telemetry.sidecar.limits import ConnectionLimits
from telemetry.sidecar.otlp.access import CERTIFICATE_STATE

# Of a header or a trailer, and of what is received and parsed before others are served: an event of the parser takes
# some 15 µs, and a chunk may have one octet.
HEADER_BYTES_MAX: Final = 16 << 10
HEADER_FIELDS_MAX: Final = 200
# A body may begin with small chunks, but on average they must have this size.
_SMALL_CHUNKS_MAX: Final = 4096
_CHUNK_BYTES_MIN: Final = 256
# A record of TLS and its frame.
_TLS_READ_BYTES: Final = (16 << 10) + 512
# What is received and not yet decrypted while nothing is read; asyncio's own is 256 KiB.
_TLS_BUFFERED_BYTES: Final = 64 << 10
_ACCEPTED_AT_ONCE: Final = 128
_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_OVERLOADED: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class _Phase(Enum):
    """The states in which a connection waits."""

    IDLE = "a further request"
    HEADER = "the rest of a request's header"
    REQUEST = "the answer to a request"
    LINGERING = "the rest of a request that was answered already, or for the last of a response to be read"


class CountedConnection(Protocol):
    """A connection that counts toward the limit: of HTTP, or in its TLS handshake."""

    transport: asyncio.Transport


class HttpConnections:
    """The open connections. Connections that wait for a request are closed, longest waiting first, to admit new
    ones."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[CountedConnection] = set()
        self._waiting: dict[CountedConnection, None] = {}

    def admit(self, connection: CountedConnection) -> bool:
        """Count a new connection; return False if there are too many and every one of them has a request."""
        if len(self._open) >= self.limits.connections:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            self.forget(longest)
            longest.transport.abort()
        self._open.add(connection)
        return True

    def forget(self, connection: CountedConnection) -> None:
        """Stop counting a connection, which may be unknown."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def waits(self, connection: CountedConnection, waits: bool) -> None:
        """Record whether a connection waits for a request."""
        self._waiting.pop(connection, None)
        if waits and connection in self._open:
            self._waiting[connection] = None


class _Parser(h11.Connection):
    """h11's parser, which limits only headers that arrive in several parts, and no chunks."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES_MAX)
        self._chunks = self._body_bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            size = len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            if size > HEADER_BYTES_MAX:
                raise h11.RemoteProtocolError(f"a header of more than {HEADER_BYTES_MAX} bytes", 431)
            if len(event.headers) > HEADER_FIELDS_MAX:
                raise h11.RemoteProtocolError(f"more than {HEADER_FIELDS_MAX} header fields", 431)
            self._chunks = self._body_bytes = 0
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            self._chunks += event.chunk_end
            if self._chunks > _SMALL_CHUNKS_MAX + self._body_bytes // _CHUNK_BYTES_MIN:
                raise h11.RemoteProtocolError(f"chunks of fewer than {_CHUNK_BYTES_MIN} bytes on average")
        return event


class HttpConnection(H11Protocol):
    """One connection; the subclass made by `http_server` holds the set of connections that it belongs to."""

    known: HttpConnections
    handshake: CountedConnection | None = None  # that came before it and counted in its place

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _Parser()
        # What clients send is no reason for a line in the log; errors of the application are.
        self.logger = logging.getLogger("telemetry.sidecar.http")
        self.logger.setLevel(logging.ERROR)
        self.timeout_keep_alive = self.known.limits.idle_s
        self._phase = _Phase.HEADER
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or refuse the connection."""
        super().connection_made(transport)
        transport.max_size = HEADER_BYTES_MAX  # type: ignore[attr-defined] - asyncio's own is 256 KiB
        if self.handshake is not None:
            self.known.forget(self.handshake)
            transport.set_read_buffer_limits(_TLS_BUFFERED_BYTES)  # type: ignore[attr-defined]
            has_certificate = bool(transport.get_extra_info("peercert"))
            self.app_state = {**self.app_state, CERTIFICATE_STATE: has_certificate}
        if self.known.admit(self):
            self._start_timer()
        else:
            transport.write(_OVERLOADED)
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its timers."""
        self.known.forget(self)
        for handle in (self._timer, self._write_timer):
            if handle is not None:
                handle.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Parse received data."""
        if self.transport.is_closing():
            return
        if self._phase is _Phase.IDLE:
            self._enter(_Phase.HEADER)
        super().data_received(data)

    def handle_events(self) -> None:
        """Handle the parser's events, and start the deadline of the current phase."""
        super().handle_events()
        if self.transport.is_closing():
            return
        if self.cycle and not self.cycle.response_complete:
            self._enter(_Phase.REQUEST)
        elif self._phase is _Phase.LINGERING and self.conn.their_state is h11.IDLE:
            self._enter(_Phase.IDLE)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        unread = self.conn.their_state is h11.SEND_BODY
        self._phase = _Phase.LINGERING if unread or self.transport.is_closing() else _Phase.IDLE
        self._start_timer()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer an unparsable request, unless a response has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            # Not by h11, which forbids a body in the response to some requests.
            self.transport.write(_BAD_REQUEST)
        if self.cycle:
            # The application may still be working on it; its response is discarded.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._close()

    def pause_writing(self) -> None:
        """Give the client a limited time to read the response."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.known.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop limiting the time for reading the response."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _enter(self, phase: _Phase) -> None:
        if phase is not self._phase:
            self._phase = phase
            self._start_timer()

    def _start_timer(self) -> None:
        """Start the deadline of the phase; while the application answers a request, the application's own deadlines
        apply."""
        limits = self.known.limits
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.known.waits(self, self._phase in (_Phase.IDLE, _Phase.HEADER))
        deadlines_s = {_Phase.IDLE: limits.idle_s, _Phase.HEADER: limits.header_s, _Phase.LINGERING: limits.linger_s}
        if self._phase in deadlines_s:
            self._timer = self.loop.call_later(deadlines_s[self._phase], self._expire)

    def _expire(self) -> None:
        """Close the connection; unsent data is dropped after a lingering phase."""
        if self._phase is _Phase.HEADER and not self.transport.is_closing():
            self._close()
        else:
            self.transport.abort()

    def _close(self) -> None:
        self.transport.close()
        self._phase = _Phase.LINGERING
        self._start_timer()


class TlsConnection(SSLProtocol):
    """The TLS layer of one connection, from its handshake to its end."""

    max_size = _TLS_READ_BYTES

    def __init__(self, context: ssl.SSLContext, application: HttpConnection) -> None:
        self._known = application.known
        super().__init__(
            asyncio.get_running_loop(),
            application,
            context,
            cast(asyncio.Future[None], None),  # nothing awaits the handshake
            server_side=True,
            ssl_handshake_timeout=cast(int, self._known.limits.header_s),
            ssl_shutdown_timeout=self._known.limits.linger_s,
        )
        application.handshake = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection and begin its handshake, or close it at once."""
        self.transport = cast(asyncio.Transport, transport)
        if self._known.admit(self):
            self._known.waits(self, True)
            super().connection_made(transport)
        else:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection that ended before its handshake did."""
        self._known.forget(self)
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals: they stop the whole sidecar, not only the HTTP server."""
        yield


def http_server(
    application: ASGIApp, limits: ConnectionLimits, grace_s: int, tls: ssl.SSLContext | None = None
) -> uvicorn.Server:
    """Create a server whose connections keep to the limits; on shutdown, requests have `grace_s` to finish."""
    known_connections = HttpConnections(limits)

    class AdmittedConnection(HttpConnection):
        known = known_connections

    def connection(**named: Any) -> asyncio.BaseProtocol:
        admitted = AdmittedConnection(**named)
        return admitted if tls is None else TlsConnection(tls, admitted)

    protocol: Callable[..., Any] = connection
    return _Server(
        uvicorn.Config(
            application,
            http=protocol,  # type: ignore[arg-type]
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            backlog=_ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=grace_s,
        )
    )
