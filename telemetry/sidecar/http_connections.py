"""HTTP connections within limits: their number, their deadlines, and what a request's header and chunks may cost.

uvicorn limits none of these itself, apart from the time between two requests.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Final, Protocol

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from telemetry.sidecar.connection_limits import ConnectionLimits
from telemetry.sidecar.otlp.access import CERTIFICATE_STATE

HEADER_BYTES_MAX: Final = 16 << 10
HEADER_FIELDS_MAX: Final = 200
# A body may begin with small chunks, but on average they must have this size.
_SMALL_CHUNKS_MAX: Final = 4096
_CHUNK_BYTES_MIN: Final = 256
# An event of the parser takes some 15 µs; others are served after so many of them.
_EVENTS_PER_TURN: Final = 200
# Fields of a header or of a trailer take 1 µs a byte, those of a body of known length next to nothing.
_FIELDS_READ_BYTES: Final = 8 << 10
_BODY_READ_BYTES: Final = 64 << 10
_ACCEPTED_AT_ONCE: Final = 128
# What is received and not yet decrypted while its turn has not come.
_TLS_BUFFERED_BYTES: Final = 64 << 10
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
    """A connection that counts: of HTTP, or in its TLS handshake."""

    transport: asyncio.Transport


class HttpConnections:
    """The open connections. Those that wait for a request are closed, longest waiting first, to admit new ones."""

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
        """Note whether a connection waits for a request."""
        self._waiting.pop(connection, None)
        if waits and connection in self._open:
            self._waiting[connection] = None


class _Parser(h11.Connection):
    """h11's parser, with limits on the header and on the number of chunks, and in turns."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES_MAX)
        self.turn_events = 0
        self.has_more = False
        self._chunks = 0
        self._body_bytes = 0
        self._is_sized = False

    @property
    def reads_sized_body(self) -> bool:
        """Whether a body whose length was stated is being received."""
        return self._is_sized and self.their_state is h11.SEND_BODY

    def next_event(self) -> Any:
        if self.turn_events >= _EVENTS_PER_TURN:
            self.has_more = True
            return h11.NEED_DATA
        if self.their_state is h11.IDLE:
            self._check_header_size()
        self.turn_events += 1
        event = super().next_event()
        if isinstance(event, h11.Request):
            if len(event.headers) > HEADER_FIELDS_MAX:
                raise h11.RemoteProtocolError(f"more than {HEADER_FIELDS_MAX} header fields", 431)
            self._chunks = self._body_bytes = 0
            self._is_sized = all(name != b"transfer-encoding" for name, _ in event.headers)
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            self._chunks += event.chunk_end
            if self._chunks > _SMALL_CHUNKS_MAX + self._body_bytes // _CHUNK_BYTES_MIN:
                raise h11.RemoteProtocolError(f"chunks of fewer than {_CHUNK_BYTES_MIN} bytes on average")
        return event

    def _check_header_size(self) -> None:
        """Refuse a header that arrived whole but is too large; h11 itself limits those that arrive in parts."""
        received, _ = self.trailing_data
        if len(received) <= HEADER_BYTES_MAX:
            return
        start = received[:HEADER_BYTES_MAX].lstrip(b"\r\n")
        if b"\n\r\n" not in start and b"\n\n" not in start:
            raise h11.RemoteProtocolError(f"a header of more than {HEADER_BYTES_MAX} bytes", 431)


class _Flow(FlowControl):
    """uvicorn's flow control, with a hold of our own while received data waits for its turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._held = False
        self._wanted_pause = False

    def pause_reading(self) -> None:
        self._wanted_pause = True
        super().pause_reading()

    def resume_reading(self) -> None:
        self._wanted_pause = False
        if not self._held:
            super().resume_reading()

    def hold(self) -> None:
        self._held = True
        super().pause_reading()

    def release(self) -> None:
        self._held = False
        if not self._wanted_pause:
            super().resume_reading()


class HttpConnection(H11Protocol):
    """One connection; its subclass made by `http_server` names the connections that it is one of."""

    known: HttpConnections
    handshake: CountedConnection | None = None  # that came before it and counted in its place

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # What clients send is no reason for a line in the log; errors of the application are.
        self.logger = logging.getLogger("telemetry.sidecar.http")
        self.logger.setLevel(logging.ERROR)
        self.conn: _Parser = _Parser()
        self.ws_protocol_class = None
        self.timeout_keep_alive = self.known.limits.idle_s
        self._phase = _Phase.HEADER
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or refuse the connection."""
        super().connection_made(transport)
        self.flow = self._turns = _Flow(transport)
        self._set_read_bytes(_FIELDS_READ_BYTES)
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
        for handle in (self._timer, self._write_timer, self._turn):
            if handle is not None:
                handle.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Parse what was received, a limited number of events at once."""
        if self.transport.is_closing():
            return
        if self._phase is _Phase.IDLE:
            self._enter(_Phase.HEADER)
        super().data_received(data)

    def handle_events(self) -> None:
        """Handle the parser's events for one turn."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self.conn.turn_events, self.conn.has_more = 0, False
        super().handle_events()
        if self.transport.is_closing():
            return
        if self.conn.has_more:
            self._turns.hold()
            self._turn = self.loop.call_soon(self.handle_events)
        else:
            self._turns.release()
        self._set_read_bytes(_BODY_READ_BYTES if self.conn.reads_sized_body else _FIELDS_READ_BYTES)
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
        """Answer what cannot be parsed, unless a response has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            # Not by h11, which forbids a body in the response to some requests.
            self.transport.write(_BAD_REQUEST)
        if self.cycle:
            # The application may still be at work on it; its response has no place any more.
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

    def _set_read_bytes(self, count: int) -> None:
        """Limit how much is received, held and parsed at once; asyncio's own limit is 256 KiB."""
        self.transport.max_size = count  # type: ignore[attr-defined]

    def _enter(self, phase: _Phase) -> None:
        if phase is not self._phase:
            self._phase = phase
            self._start_timer()

    def _start_timer(self) -> None:
        """Start the deadline of the phase; while the application answers a request, it has deadlines of its own."""
        limits = self.known.limits
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.known.waits(self, self._phase in (_Phase.IDLE, _Phase.HEADER))
        of_phase = {_Phase.IDLE: limits.idle_s, _Phase.HEADER: limits.header_s, _Phase.LINGERING: limits.linger_s}
        if self._phase in of_phase:
            self._timer = self.loop.call_later(of_phase[self._phase], self._expire)

    def _expire(self) -> None:
        """Close the connection; what is still unsent after a lingering phase is dropped."""
        if self._phase is _Phase.HEADER and not self.transport.is_closing():
            self._close()
        else:
            self.transport.abort()

    def _close(self) -> None:
        self.transport.close()
        self._phase = _Phase.LINGERING
        self._start_timer()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals: they stop the whole sidecar, not only the HTTP server."""
        yield


def http_server(
    application: ASGIApp,
    limits: ConnectionLimits,
    grace_s: int,
    secured: Callable[[HttpConnection, HttpConnections], asyncio.BaseProtocol] | None = None,
) -> uvicorn.Server:
    """Create a server whose connections keep to the limits; on shutdown, requests have `grace_s` to finish.

    `secured` puts TLS in front of a connection.
    """
    known_connections = HttpConnections(limits)

    class AdmittedConnection(HttpConnection):
        known = known_connections

    def connection(**named: Any) -> asyncio.BaseProtocol:
        admitted = AdmittedConnection(**named)
        return admitted if secured is None else secured(admitted, known_connections)

    protocol: Callable[..., Any] = connection
    return _Server(
        uvicorn.Config(
            application,
            http=protocol,  # type: ignore[arg-type]
            log_config=None,
            access_log=False,
            lifespan="off",
            backlog=_ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=grace_s,
        )
    )
