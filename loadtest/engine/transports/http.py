"""HTTP: a pool of connections for each origin. Frames of audio stay with the caller until it sends a request."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from loadtest.engine.connection import Connection
from loadtest.engine.outbox import Outbox
from loadtest.engine.transports.base import TransportCallbacks, TransportParts
from loadtest.engine.transports.pooled_connection import PooledConnection
from loadtest.errors import UsageError
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import CallerProtocol, Outgoing
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpCancel, HttpFailed, HttpItem, HttpRequest
from loadtest.protocols.transports.framing import Opened

# Requests beyond it wait until a response is complete, as in a browser.
MAX_CONNECTIONS_PER_ORIGIN: Final = 6
Origin = tuple[str, str, int]


class KeepsAudio(Protocol):
    """A caller whose protocol sends an utterance as a whole."""

    def keep_audio(self, frame: bytes) -> None:
        """Keep one frame of audio."""
        ...

    def pending(self) -> Sequence[Outgoing]:
        """Return what is to be sent thereupon."""
        ...


def _nothing_sent(data: object) -> int:
    """Accept nothing: no frame is ever sent."""
    del data
    return 0


class HttpTransport:
    """The requests of one call. Implements `loadtest.engine.transports.base.Transport` and `PoolCallbacks`."""

    has_rest = False  # what a part of a response holds is in doubt anyway
    hand_over_ns = 0

    def __init__(self, parts: TransportParts, protocol: CallerProtocol | KeepsAudio) -> None:
        """Raises TypeError for a protocol without `keep_audio`."""
        if not hasattr(protocol, "keep_audio"):
            raise TypeError(f"{type(protocol).__name__} is a protocol over HTTP and has no keep_audio")
        self._parts = parts
        self._protocol = protocol
        self._keep_audio = cast("KeepsAudio", protocol).keep_audio
        self._callbacks: TransportCallbacks | None = None
        self._connections: dict[Origin, list[PooledConnection]] = {}
        self._waiting: dict[Origin, deque[HttpRequest]] = {}
        self._timeout_s = 0.0
        self._stamped: bool | None = None  # whether all connections are, once there is one
        self.lag_bound_ns: int | None = None
        self.outbox = Outbox(_nothing_sent)  # always empty
        self.frame_bytes = 0

    @property
    def closed(self) -> str | None:
        """Why no request can be sent; None while one can."""
        return "closed" if self._callbacks is None else None

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent."""
        return self._callbacks is not None

    @property
    def stamped(self) -> bool:
        """Whether the kernel stamps what arrives, on every connection."""
        return bool(self._stamped)

    @property
    def stamp_kind(self) -> str:
        """The source of receive timestamps: "kernel" or "user"."""
        return "kernel" if self._stamped else "user"

    @property
    def write(self) -> Callable[[bytes], int]:
        """The function that hands a frame to the caller."""
        return self._keep

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Take over the call; connections are opened when there are requests."""
        self._callbacks = callbacks
        self._timeout_s = timeout_s

    def begin(self) -> None:
        """Note that requests may be sent."""
        if self._callbacks is not None:
            self._callbacks.note(Opened(), self._now_perf_ns())

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
        connections = self._connections.setdefault(origin, [])
        idle = next((each for each in connections if each.is_idle), None)
        if idle is not None:
            idle.send(request)
        elif len(connections) < MAX_CONNECTIONS_PER_ORIGIN:
            connections.append(PooledConnection(self._parts, address, self, request, self._timeout_s))
        else:
            self._waiting.setdefault(origin, deque()).append(request)

    def _cancel(self, request_id: str) -> None:
        """Forget a request; if it is running, its connection is closed, for nothing else ends a response."""
        for waiting in self._waiting.values():
            for request in [each for each in waiting if each.request_id == request_id]:
                waiting.remove(request)
        for connections in tuple(self._connections.values()):
            for connection in tuple(connections):
                if connection.request is not None and connection.request.request_id == request_id:
                    connection.close()
                    self.freed(connection)

    def send_frame(self, frame: bytes) -> bool:
        """Hand a frame to the caller, and send what it asks for thereupon."""
        self._keep(frame)
        return True

    def _keep(self, frame: bytes) -> int:
        self.frame_bytes = len(frame)
        try:
            self._keep_audio(frame)
            for message in self._protocol.pending():
                self.send(message)
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            self.failed(error)
        return len(frame)

    def keep(self, frame: bytes, sent: int) -> None:
        """Do nothing: no frame is left over."""

    def refused(self, error: OSError) -> None:
        """Do nothing: no frame meets a socket."""

    # Incoming; called by the connections, too.

    def readable(self) -> None:
        """Read what has arrived and pass it on."""
        for connections in tuple(self._connections.values()):
            for each in tuple(connections):
                if each.connection is not None:
                    each.connection.readable()

    def arrived(self, stamp_perf_ns: int, seen_perf_ns: int, items: list[HttpItem]) -> None:
        """Pass items on."""
        if self._callbacks is not None:
            self._callbacks.receive(stamp_perf_ns, seen_perf_ns, items)

    def again(self, request: HttpRequest) -> None:
        """Send a request on another connection."""
        self._request(request)

    def freed(self, connection: PooledConnection) -> None:
        """Send the next request that is waiting, and forget a connection that is over."""
        origin = next((key for key, all_ in self._connections.items() if connection in all_), None)
        if origin is None:
            return
        if connection.is_over:
            self._connections[origin].remove(connection)
        if waiting := self._waiting.get(origin):
            self._request(waiting.popleft())

    def failed(self, error: Exception) -> None:
        """Pass on an internal error."""
        if self._callbacks is not None:
            self._callbacks.failed(error)

    def dialed(self, connection: Connection) -> None:
        """Take over how a new connection stamps what arrives: one without kernel stamps makes all doubtful."""
        self._stamped = connection.stamped and self._stamped is not False

    def take_clock_fault(self) -> bool:
        """Return whether a receive timestamp was impossible since this was asked last."""
        found = False
        for connections in self._connections.values():
            for each in connections:
                if each.connection is not None and each.connection.clock_fault:
                    each.connection.clock_fault = False
                    found = True
        return found

    def unsent_bytes(self) -> int | None:
        """Return None: the utterance is sent when it is over."""
        return None

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session after `waited_s` seconds."""
        del awaited  # a request has one answer
        running = [each for connections in self._connections.values() for each in connections if each.request]
        if len(running) == 1 and running[0].connection is not None:
            return running[0].connection.no_session_reason(waited_s)
        return f"the endpoint did not answer within {waited_s:g} s", Failure("timeout", "session")

    def _now_perf_ns(self) -> int:
        return self._parts.connections.clocks.perf_ns()

    # The end.

    def hang_up(self, reason: str) -> None:
        """Close every connection: HTTP has nothing that announces an end."""
        del reason
        self.close()

    def release(self) -> None:
        """Do nothing: `hang_up` has let go of everything."""

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._callbacks = None
        self._waiting.clear()
        for connections in self._connections.values():
            for connection in connections:
                connection.close()
        self._connections.clear()


def _origin(request: HttpRequest) -> Origin:
    parts = urlsplit(request.url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
