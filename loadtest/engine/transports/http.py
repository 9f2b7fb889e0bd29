"""HTTP: a pool of connections for each origin. Frames of audio stay with the caller until it sends a request."""

from collections import deque
from typing import Any, Final
from urllib.parse import urlsplit

import gevent
import h11

from loadtest.engine.connection import Connection
from loadtest.engine.local_limits import Exhausted
from loadtest.engine.transports.base import ConnectionFailed, Transport, TransportCallbacks, TransportParts
from loadtest.engine.transports.dialing import dial
from loadtest.errors import UsageError
from loadtest.protocols.address import Address, parse_address
from loadtest.protocols.base import CallerProtocol, Outgoing
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpCancel, HttpFailed, HttpItem, HttpRequest
from loadtest.protocols.transports.http1 import Http1Client

# Requests beyond it wait until a response is complete, as in a browser.
MAX_CONNECTIONS_PER_ORIGIN: Final = 6
Origin = tuple[str, str, int]


class PooledConnection:
    """One connection to an origin. It begins with the request that it was made for."""

    def __init__(
        self, parts: TransportParts, address: Address, pool: "HttpTransport", request: HttpRequest, timeout_s: float
    ) -> None:
        self.address = address
        self.request: HttpRequest | None = request  # the one that is waiting or running
        self.connection: Connection | None = None
        self._parts = parts
        self._pool: HttpTransport | None = pool
        self._client = Http1Client()
        self._carried = 0  # responses that were completed
        self._secured = False
        gevent.spawn(self._dial, timeout_s)

    @property
    def is_idle(self) -> bool:
        """Whether a request can be sent at once."""
        return self.request is None and self._secured and self._client.is_open and self.connection is not None

    @property
    def is_over(self) -> bool:
        """Whether it will never carry another request."""
        return self._pool is None or not self._client.is_open

    def _dial(self, timeout_s: float) -> None:
        try:
            connection = dial(self._parts, self.address, self, timeout_s)
        except (ConnectionFailed, Exhausted) as error:
            self._give_up(str(error), error.failure)
            return
        if self._pool is None:
            connection.close()
            return
        self.connection = connection
        self._pool.dialed(connection)
        connection.begin()

    def send(self, request: HttpRequest) -> None:
        """Send a request on an idle connection."""
        self.request = request
        try:
            data = self._client.send(request)
        except h11.LocalProtocolError as error:
            self._give_up(f"the request cannot be sent: {error}", Failure("generator", "bad_request"))
            return
        if self.connection is not None:
            self.connection.send(data)

    # Called by the connection.

    def secured(self) -> None:
        """Send the request that the connection was made for."""
        self._secured = True
        if self.request is not None:
            self.send(self.request)

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        """Pass on what arrived; a complete response frees the connection for the next request first."""
        pool = self._pool
        if pool is None:
            return
        items = self._client.receive(data)
        if self.request is not None and self._client.running is None:
            self.request = None
            self._carried += 1
        if self._client.running is None:
            if not self._client.is_open:
                self.close()
            pool.freed(self)
        if items:
            pool.arrived(stamp_perf_ns, seen_perf_ns, items)

    def settle(self) -> None:
        """Nothing waits for this."""

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Complete what the end completes; a request whose response is not complete fails."""
        pool, request = self._pool, self.request
        if pool is None:
            return
        now_perf_ns = self._parts.connections.clocks.perf_ns()
        items = self._client.receive_eof()
        complete = request is not None and self._client.running is None and self._secured
        retry = request is not None and not complete and bool(self._carried) and not self._client.answered
        self.close()
        pool.freed(self)
        if items:
            pool.arrived(now_perf_ns, now_perf_ns, items)
        if request is None or complete:
            return
        if retry:
            pool.again(request)
        else:
            pool.arrived(now_perf_ns, now_perf_ns, [HttpFailed(request.request_id, reason, failure)])

    def failed(self, error: Exception) -> None:
        """Pass on an internal error."""
        if self._pool is not None:
            self._pool.failed(error)

    def _give_up(self, reason: str, failure: Failure) -> None:
        pool, request = self._pool, self.request
        if pool is None:
            return
        now_perf_ns = self._parts.connections.clocks.perf_ns()
        self.close()
        try:
            pool.freed(self)
            if request is not None:
                pool.arrived(now_perf_ns, now_perf_ns, [HttpFailed(request.request_id, reason, failure)])
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            pool.failed(error)

    def close(self) -> None:
        """Close the connection and let go of it; nothing more is passed on. Idempotent."""
        connection, self.connection, self._pool, self.request = self.connection, None, None, None
        if connection is not None:
            connection.close()


class HttpTransport(Transport):
    """The requests of one call."""

    def __init__(self, parts: TransportParts, protocol: CallerProtocol | None) -> None:
        """None where the call's audio goes another way. Raises TypeError for a protocol without `keep_audio`."""
        if protocol is not None and not hasattr(protocol, "keep_audio"):
            raise TypeError(f"{type(protocol).__name__} is a protocol over HTTP and has no keep_audio")
        super().__init__(parts)
        self._protocol: Any = protocol
        self._pool: dict[Origin, list[PooledConnection]] = {}
        self._waiting: dict[Origin, deque[HttpRequest]] = {}
        self._timeout_s = 0.0

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Take over the call; connections are opened when there are requests."""
        self._callbacks = callbacks
        self._timeout_s = timeout_s

    # Outgoing.

    def send(self, message: Outgoing) -> None:
        """Send or cancel a request. Raises TypeError for any other message."""
        if isinstance(message, HttpRequest):
            self._request(message)
        elif isinstance(message, HttpCancel):
            self._cancel(message.request_id)
        else:
            raise TypeError(f"HTTP carries requests, not {type(message).__name__}")

    def _request(self, request: HttpRequest) -> None:
        if self._callbacks is None:
            return
        try:
            address = parse_address(request.url, "http")
        except UsageError as error:
            now = self._now_perf_ns()
            self.arrived(now, now, [HttpFailed(request.request_id, str(error), Failure("generator", "bad_request"))])
            return
        origin = _origin(request)
        connections = self._pool.setdefault(origin, [])
        idle = next((connection for connection in connections if connection.is_idle), None)
        if idle is not None:
            idle.send(request)
        elif len(connections) < MAX_CONNECTIONS_PER_ORIGIN:
            connections.append(PooledConnection(self._parts, address, self, request, self._timeout_s))
        else:
            self._waiting.setdefault(origin, deque()).append(request)

    def _cancel(self, request_id: str) -> None:
        """Forget a request; if it is running, its connection is closed, for nothing else ends a response."""
        for waiting in self._waiting.values():
            for request in [request for request in waiting if request.request_id == request_id]:
                waiting.remove(request)
        for connections in tuple(self._pool.values()):
            for connection in tuple(connections):
                if connection.request is not None and connection.request.request_id == request_id:
                    connection.close()
                    self.freed(connection)

    def send_frame(self, frame: bytes) -> bool:
        """Hand a frame to the caller, and send what it asks for thereupon."""
        self.frame_bytes = len(frame)
        self._protocol.keep_audio(frame)
        for message in self._protocol.pending():
            self.send(message)
        return True

    # Incoming; called by the connections, too.

    def connections(self) -> list[Connection]:
        """Return what is connected."""
        pooled = (connection for connections in self._pool.values() for connection in connections)
        return [entry.connection for entry in pooled if entry.connection is not None]

    def arrived(self, stamp_perf_ns: int, seen_perf_ns: int, items: list[HttpItem]) -> None:
        """Pass items on."""
        if self._callbacks is not None:
            self._callbacks.receive(stamp_perf_ns, seen_perf_ns, items)

    def again(self, request: HttpRequest) -> None:
        """Send a request on another connection."""
        self._request(request)

    def freed(self, connection: PooledConnection) -> None:
        """Send the next request that is waiting, and forget a connection that is over."""
        origin = next((key for key, all_ in self._pool.items() if connection in all_), None)
        if origin is None:
            return
        if connection.is_over:
            self._pool[origin].remove(connection)
        if waiting := self._waiting.get(origin):
            self._request(waiting.popleft())

    def dialed(self, connection: Connection) -> None:
        """Take over how a new connection stamps what arrives."""
        self._note_stamps(connection)

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session after `waited_s` seconds."""
        del awaited  # a request has one answer
        running = [
            connection for connections in self._pool.values() for connection in connections if connection.request
        ]
        if len(running) == 1 and running[0].connection is not None:
            return running[0].connection.no_session_reason(waited_s)
        return f"the endpoint did not answer within {waited_s:g} s", Failure("timeout", "session")

    # The end.

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._callbacks = None
        self._waiting.clear()
        for connections in self._pool.values():
            for connection in connections:
                connection.close()
        self._pool.clear()


def _origin(request: HttpRequest) -> Origin:
    parts = urlsplit(request.url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
