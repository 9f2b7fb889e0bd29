"""The connection of one service: opened again in the background when the peer closes it after a turn of its own."""

from typing import Final, Protocol

import gevent

from loadtest.engine.connection import Connection
from loadtest.engine.transports.base import ConnectionFailed, SendBacklog, TransportParts
from loadtest.engine.transports.dialing import dial
from loadtest.errors import InstrumentError
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure
from loadtest.protocols.transports.byte_streams import EventLines
from loadtest.protocols.transports.framing import Item

# A peer that closes the connection after its answer may get the next message before we know: if the end comes within
# this time, and no answer, the peer did not take the message. Later, it took it and failed.
_CROSSED_NS: Final = 250_000_000
# A peer that ends so many connections in a row within this time is dialed again only when there is something to say.
_SHORT_NS: Final = 50_000_000
_SHORT_IN_A_ROW: Final = 3


class ServiceCallbacks(Protocol):
    """The owner of the connections of a call."""

    def opened(self, service: "ServiceConnection", connection: Connection) -> None:
        """Called with a connection that messages may be sent on."""
        ...

    def arrived(self, service: "ServiceConnection", stamp_perf_ns: int, seen_perf_ns: int, items: list[Item]) -> None:
        """Called with what received data completes."""
        ...

    def lost(self, service: "ServiceConnection", reason: str, failure: Failure) -> None:
        """Called when the connection is gone, or could not be opened."""
        ...

    def settle(self) -> None:
        """Called when the socket has accepted more of what was waiting."""
        ...

    def failed(self, error: Exception) -> None:
        """Called on an internal error."""
        ...


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
        self, parts: TransportParts, name: str, address: Address, owner: ServiceCallbacks, timeout_s: float
    ) -> None:
        self.name = name
        self.backlog = SentBytes()
        self.connection: Connection | None = None
        self._parts = parts
        self._address = address
        self._owner: ServiceCallbacks | None = owner
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

    def send(self, message: bytes) -> bool:
        """Send a message, or let it wait for a connection; return whether it went out at once."""
        if not self.is_open:
            self._hold(message)
            self._open_again()
            return False
        self._asked = True
        self._note_unanswered(message)
        return self._transmit(message)

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
        owner.opened(self, connection)
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
        """Whether a part of another message was read with what is being passed on."""
        return self._framing.has_rest

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
