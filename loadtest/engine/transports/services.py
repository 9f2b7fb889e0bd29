"""A connection for each service of a call. Frames of audio go to one of them."""

from collections.abc import Callable, Mapping
from typing import Any

import gevent

from loadtest.engine.connection import Connection
from loadtest.engine.transports.base import SendBacklog, TransportCallbacks, TransportParts
from loadtest.engine.transports.service_connection import SentBytes, ServiceConnection
from loadtest.engine.transports.stream import AudioHeads
from loadtest.errors import EndpointUnreachable, InstrumentError
from loadtest.protocols.address import Address
from loadtest.protocols.base import Outgoing, ServiceLost, ServiceMessage
from loadtest.protocols.failure import Failure
from loadtest.protocols.transports.framing import Item, Opened


class ServicesTransport:
    """The services of one call. Implements `loadtest.engine.transports.base.Transport` and `ServiceCallbacks`."""

    hand_over_ns = 0

    def __init__(
        self,
        parts: TransportParts,
        addresses: Mapping[str, Address],
        audio: str | None,
        heads: AudioHeads | None,
    ) -> None:
        self._parts = parts
        self._addresses = addresses
        self._audio_name = audio
        self._heads = heads
        self._callbacks: TransportCallbacks | None = None
        self._services: dict[str, ServiceConnection] = {}
        self._audio: ServiceConnection | None = None
        self._stamped: bool | None = None  # whether all connections are, once there is one
        self._has_begun = False
        self.lag_bound_ns: int | None = None
        self.has_rest = False
        self.frame_bytes = 0
        self._backlog = SentBytes()  # of calls without a service that takes audio

    @property
    def outbox(self) -> SendBacklog:
        """What the service that takes audio has not read."""
        return self._backlog if self._audio is None else self._audio.backlog

    @property
    def closed(self) -> str | None:
        """Why nothing can be sent; None while it can."""
        return "closed" if self._callbacks is None else None

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent: once every service was connected."""
        return self._has_begun and self._callbacks is not None

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
        """The function that writes a frame."""
        return self._write

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Connect to all services at once. Blocks only the calling greenlet.

        Raises ConnectionFailed and InstrumentError.
        """
        self._callbacks = callbacks
        for name, address in self._addresses.items():
            self._services[name] = ServiceConnection(self._parts, name, address, self, timeout_s)
        self._audio = None if self._audio_name is None else self._services[self._audio_name]
        faults: list[Exception] = []

        def open_one(service: ServiceConnection) -> None:
            try:
                service.open()
            except (EndpointUnreachable, InstrumentError) as error:
                faults.append(error)

        gevent.joinall([gevent.spawn(open_one, service) for service in self._services.values()])
        if faults:
            raise faults[0]

    def begin(self) -> None:
        """Begin the TLS handshakes, if any; once all are done, messages may be sent."""
        for service in self._services.values():
            if service.connection is not None:
                service.connection.begin()

    # Outgoing.

    def send(self, message: Outgoing) -> None:
        """Send a message to its service. Raises TypeError for one that names none."""
        if not isinstance(message, ServiceMessage):
            raise TypeError(f"services take messages of their own, not {type(message).__name__}")
        if self._callbacks is None:
            return
        service = self._services[message.service]
        if not service.send(message) and service is self._audio:
            self._callbacks.queued()

    def send_frame(self, frame: bytes) -> bool:
        """Send a prepared frame with its head; return whether the socket accepted all of it."""
        if self._audio is None:
            return True
        if self._heads is not None:
            frame = self._heads.join(self._heads.next_head() or b"", frame)
        self.frame_bytes = len(frame)
        return self._audio.send_frame(frame)

    def _write(self, rest: bytes) -> int:
        return len(rest) if self.send_frame(rest) else -1

    def keep(self, frame: bytes, sent: int) -> None:
        """Do nothing: what is left of a frame waits with its connection."""

    def refused(self, error: OSError) -> None:
        """Do nothing: a connection handles its own errors."""

    # Incoming.

    def readable(self) -> None:
        """Read what has arrived and pass it on."""
        for service in tuple(self._services.values()):
            if service.connection is not None:
                service.connection.readable()

    def take_clock_fault(self) -> bool:
        """Return whether a receive timestamp was impossible since this was asked last."""
        found = False
        for connection in self._connections():
            found = found or connection.clock_fault
            connection.clock_fault = False
        return found

    def unsent_bytes(self) -> int | None:
        """Return the bytes of audio that have not left this machine; None if the system does not report them."""
        if self._audio is None or self._audio.connection is None:
            return None
        return self._audio.connection.unsent_bytes()

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session after `waited_s` seconds."""
        connection = next(iter(self._connections()), None)
        if connection is None:
            return f"the endpoint did not answer within {waited_s:g} s", Failure("timeout", "session")
        return connection.no_session_reason(waited_s, awaited)

    def _connections(self) -> list[Connection]:
        return [service.connection for service in self._services.values() if service.connection is not None]

    # Called by the connections.

    def opened(self, service: ServiceConnection, connection: Connection) -> None:
        """Take over how a connection stamps what arrives; once all are open, messages may be sent."""
        del service
        self._stamped = connection.stamped and self._stamped is not False
        if self._has_begun or self._callbacks is None:
            return
        if all(each.is_open for each in self._services.values()):
            self._has_begun = True
            self._callbacks.note(Opened(), self._now_perf_ns())

    def arrived(self, service: ServiceConnection, stamp_perf_ns: int, seen_perf_ns: int, items: list[Item]) -> None:
        """Pass items on, messages with the service that they are from."""
        if self._callbacks is None or not items:
            return
        named: list[Any] = [
            ServiceMessage.of(service.name, item) if isinstance(item, bytes) else item for item in items
        ]
        self.has_rest = service.has_rest
        self._callbacks.receive(stamp_perf_ns, seen_perf_ns, named)

    def lost(self, service: ServiceConnection, reason: str, failure: Failure) -> None:
        """Pass on that the connection of a service is gone: the protocol knows whether anything was due."""
        if self._callbacks is None:
            return
        if not self._has_begun:
            self._callbacks.disconnected(reason, failure)
            return
        now_perf_ns = self._now_perf_ns()
        self._callbacks.receive(now_perf_ns, now_perf_ns, [ServiceLost(service.name, reason, failure)])

    def settle(self) -> None:
        """Pass on that a socket has accepted more of what was waiting."""
        if self._callbacks is not None:
            self._callbacks.settle()

    def failed(self, error: Exception) -> None:
        """Pass on an internal error."""
        if self._callbacks is not None:
            self._callbacks.failed(error)

    def _now_perf_ns(self) -> int:
        return self._parts.connections.clocks.perf_ns()

    # The end.

    def hang_up(self, reason: str) -> None:
        """Close every connection: nothing announces an end."""
        del reason
        self.close()

    def release(self) -> None:
        """Do nothing: `hang_up` has let go of everything."""

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._callbacks = None
        for service in self._services.values():
            service.close()
        self._services.clear()
        self._audio = None
