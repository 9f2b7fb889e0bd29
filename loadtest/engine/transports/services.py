"""A connection for each service of a call. Frames of audio go to one of them.

A connection is opened again in the background when the peer closes it after a turn of its own.
"""

from collections.abc import Mapping
from typing import Any, Final

import gevent

from loadtest.engine.connection import Connection
from loadtest.engine.transports.base import ConnectionFailed, SendBacklog, Transport, TransportCallbacks, TransportParts
from loadtest.engine.transports.dialing import dial
from loadtest.engine.transports.stream import AudioHeads
from loadtest.errors import EndpointUnreachable, InstrumentError
from loadtest.protocols.address import Address
from loadtest.protocols.base import Outgoing, ServiceLost, ServiceMessage
from loadtest.protocols.failure import Failure
from loadtest.protocols.transports.byte_streams import EventLines
from loadtest.protocols.transports.framing import Item

# A peer that closes the connection after its answer may get the next message before we know: if the end comes within
# this time, and no answer, the peer did not take the message. Later, it took it and failed.
_CROSSED_NS: Final = 250_000_000
# A peer that ends so many connections in a row within this time is dialed again only when there is something to say.
_SHORT_NS: Final = 50_000_000
_SHORT_IN_A_ROW: Final = 3


class SentBytes:
    """The data that waits to be sent to one service, over all its connections: a `SendBacklog`.

    What a connection that is gone had not taken counts as sent: it will never leave this machine.
    """

    def __init__(self) -> None:
        self._queued = self._drained = 0
        self.outbox: SendBacklog | None = None

    @property
    def queued_bytes(self) -> int:
        """See `SendBacklog`."""
        return self._queued + (0 if self.outbox is None else self.outbox.queued_bytes)

    @property
    def drained_bytes(self) -> int:
        """See `SendBacklog`."""
        return self._drained + (0 if self.outbox is None else self.outbox.drained_bytes)

    @property
    def waiting_bytes(self) -> int:
        """See `SendBacklog`."""
        return self.queued_bytes - self.drained_bytes

    def hold(self, size: int) -> None:
        """Count bytes that wait for a connection."""
        self._queued += size

    def let_go(self, size: int) -> None:
        """Count bytes that wait no more."""
        self._drained += size

    def end(self) -> None:
        """Close the account of the connection."""
        if self.outbox is not None:
            self._queued += self.outbox.queued_bytes
            self._drained += self.outbox.queued_bytes
            self.outbox = None


class ServiceConnection:
    """One service. Implements `loadtest.engine.connection.ConnectionCallbacks`."""

    def __init__(
        self, parts: TransportParts, name: str, address: Address, owner: "ServicesTransport", timeout_s: float
    ) -> None:
        self.name = name
        self.backlog = SentBytes()
        self.connection: Connection | None = None
        self._parts = parts
        self._address = address
        self._owner: ServicesTransport | None = owner
        self._timeout_s = timeout_s
        self._framing = EventLines(max_message_bytes=parts.max_message_bytes)
        self._dialing = False
        self._secured = False
        self._waiting: list[bytes] = []  # for the connection
        self._unanswered: list[bytes] = []  # sent since anything was received, as long as it may have crossed the end
        self._asked_perf_ns = 0  # when the first of it was sent
        self._asked = False  # whether anything but audio was sent on this connection
        self._opened_perf_ns = 0
        self._short_in_a_row = 0
        self._answers = 0  # times that something was received on this connection

    @property
    def is_open(self) -> bool:
        """Whether messages go out at once."""
        return self._secured and self.connection is not None and self._framing.is_open

    def open(self) -> None:
        """Connect. Blocks only the calling greenlet. Raises ConnectionFailed and InstrumentError."""
        self._dialing = True
        try:
            connection = dial(self._parts, self._address, self, self._timeout_s)
        finally:
            self._dialing = False
        if self._owner is None:
            connection.close()
            return
        self.connection = connection

    def _open_again(self) -> None:
        """Connect in the background. What cannot be sent then is lost."""
        if not self._dialing:
            self._dialing = True
            gevent.spawn(self._open_now)

    def _open_now(self) -> None:
        try:
            self.open()
            if self.connection is not None:
                self.connection.begin()
        except (ConnectionFailed, InstrumentError) as error:
            failure = error.failure if isinstance(error, ConnectionFailed) else Failure("generator", "fault")
            self._give_up(str(error), failure)
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            self.failed(error)

    def send(self, message: bytes) -> None:
        """Send a message, or let it wait for a connection."""
        if not self.is_open:
            self._hold(message)
            self._open_again()
            return
        self._asked = True
        self._note_unanswered(message)
        self._transmit(message)

    def send_frame(self, frame: bytes) -> bool:
        """Send a frame. Without a connection it waits behind a message that does, or is dropped: nothing was asked."""
        if self.is_open:
            if self._unanswered:
                self._note_unanswered(frame)
            return self._transmit(frame)
        if not self._waiting:
            return True
        self._hold(frame)
        return False

    def _transmit(self, data: bytes) -> bool:
        return self.connection is None or self.connection.send(data)

    def _hold(self, data: bytes) -> None:
        self._waiting.append(data)
        self.backlog.hold(len(data))

    def _note_unanswered(self, data: bytes) -> None:
        if not self._unanswered:
            self._asked_perf_ns = self._now_perf_ns()
        if self._may_have_crossed:
            self._unanswered.append(data)

    @property
    def _may_have_crossed(self) -> bool:
        return self._now_perf_ns() - self._asked_perf_ns <= _CROSSED_NS

    def _now_perf_ns(self) -> int:
        return self._parts.connections.clocks.perf_ns()

    # Called by the connection.

    def secured(self) -> None:
        """Send what has waited."""
        connection, owner = self.connection, self._owner
        if connection is None or owner is None:
            return
        self._secured, self._opened_perf_ns = True, self._now_perf_ns()
        self.backlog.outbox = connection.outbox
        owner.opened(connection)
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self.backlog.let_go(len(data))
            self._asked = True
            self._note_unanswered(data)
            self._transmit(data)
        if waiting:
            owner.settle()

    @property
    def has_rest(self) -> bool:
        """Whether more was read with what is being passed on than completes its last item."""
        return self._framing.has_rest or (self.connection is not None and self.connection.has_rest)

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        """Pass on what received data completes."""
        if self._owner is not None:
            self._answers += 1
            self._unanswered.clear()
            self._owner.arrived(self, stamp_perf_ns, seen_perf_ns, list(self._framing.receive(data)))

    def settle(self) -> None:
        """Pass on that the socket has accepted more of what was waiting."""
        if self._owner is not None:
            self._owner.settle()

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Connect again if the connection was of use. What the peer did not take, for it had closed the connection
        after an earlier answer, is sent again; what else was asked is lost."""
        owner = self._owner
        if owner is None:
            return
        was_secured, was_of_use = self._secured, self._asked
        again = self._unanswered if self._answers and was_secured and self._may_have_crossed else []
        is_short = self._now_perf_ns() - self._opened_perf_ns < _SHORT_NS
        self._short_in_a_row = self._short_in_a_row + 1 if is_short else 0
        self._drop()
        for data in again:
            self._hold(data)
        if again or (was_of_use and was_secured and self._short_in_a_row < _SHORT_IN_A_ROW):
            self._open_again()
        if not again:
            owner.lost(self, reason, failure)

    def failed(self, error: Exception) -> None:
        """Pass on an internal error."""
        if self._owner is not None:
            self._owner.failed(error)

    def _give_up(self, reason: str, failure: Failure) -> None:
        owner, was_waited_for = self._owner, bool(self._waiting)
        for data in self._waiting:
            self.backlog.let_go(len(data))
        self._waiting.clear()
        if owner is not None and was_waited_for:
            owner.lost(self, reason, failure)

    def _drop(self) -> None:
        connection, self.connection = self.connection, None
        self.backlog.end()
        self._framing = EventLines(max_message_bytes=self._parts.max_message_bytes)
        self._secured = self._asked = False
        self._unanswered, self._answers = [], 0
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection and let go of it. Idempotent."""
        self._owner = None
        self._drop()
        self._framing.release()


class ServicesTransport(Transport):
    """The services of one call."""

    def __init__(
        self,
        parts: TransportParts,
        addresses: Mapping[str, Address],
        audio: str | None,
        heads: AudioHeads | None,
    ) -> None:
        super().__init__(parts)
        self._addresses = addresses
        self._audio_name = audio
        self._heads = heads
        self._services: dict[str, ServiceConnection] = {}
        self._audio: ServiceConnection | None = None
        self._has_begun = False
        self._backlog = SentBytes()  # of calls without a service that takes audio

    @property
    def outbox(self) -> SendBacklog:
        """The backlog that the service which takes audio has not read."""
        return self._backlog if self._audio is None else self._audio.backlog

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent: once every service was connected."""
        return self._has_begun and self._callbacks is not None

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
        self._services[message.service].send(message)

    def send_frame(self, frame: bytes) -> bool:
        """Send a prepared frame with its head; return whether the socket accepted all of it."""
        if self._audio is None:
            return True
        if self._heads is not None:
            frame = self._heads.joined(frame)
        self.frame_bytes = len(frame)
        return self._audio.send_frame(frame)

    # Incoming.

    def unsent_bytes(self) -> int | None:
        """Return the bytes of audio that have not left this machine; None if the system does not report them."""
        if self._audio is None or self._audio.connection is None:
            return None
        return self._audio.connection.unsent_bytes()

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session after `waited_s` seconds."""
        for connection in self.connections():
            return connection.no_session_reason(waited_s, awaited)
        return f"the endpoint did not answer within {waited_s:g} s", Failure("timeout", "session")

    def connections(self) -> list[Connection]:
        """Return what is connected."""
        return [service.connection for service in self._services.values() if service.connection is not None]

    # Called by the connections.

    def opened(self, connection: Connection) -> None:
        """Take over how a connection stamps what arrives; once all are open, messages may be sent."""
        self._note_stamps(connection)
        if self._has_begun or self._callbacks is None:
            return
        if all(service.is_open for service in self._services.values()):
            self._has_begun = True
            self._note_opened()

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

    # The end.

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._callbacks = None
        for service in self._services.values():
            service.close()
        self._services.clear()
        self._audio = None
