"""The interface between a call and the carriers of its messages."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from loadtest.engine.connection import Connection, ConnectionParts
from loadtest.engine.local_limits import LocalLimits
from loadtest.engine.outbox import Outbox
from loadtest.engine.tls import TlsClient
from loadtest.engine.webrtc.media_process import MediaProcess
from loadtest.errors import EndpointUnreachable
from loadtest.protocols.base import Outgoing, ServiceLost
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpItem
from loadtest.protocols.room_items import RoomItem
from loadtest.protocols.transports.framing import Item, Opened
from loadtest.protocols.transports.masked_frames import FIXED
from loadtest.protocols.webrtc_items import WebRtcItem

# Opened, Rejected or Closed; everything else is a message for the call's protocol.
TransportItem = Item | HttpItem | WebRtcItem | RoomItem | ServiceLost


class ConnectionFailed(EndpointUnreachable):
    """No connection could be opened; `failure` is the cause."""

    def __init__(self, sentence: str, failure: Failure) -> None:
        super().__init__(sentence)
        self.failure = failure


class NobodyConnected(ConnectionFailed):
    """No endpoint connected to the caller, who waited for one."""

    def __init__(self, where: str, wait_s: float) -> None:
        self.wait_s = wait_s
        sentence = f"nothing connected to {where} within {wait_s:g} s"
        remedy = "start the endpoint after the caller, with this address"
        super().__init__(f"{sentence}: {remedy}", Failure("timeout", "connect"))


class SendBacklog(Protocol):
    """The data that the endpoint has not read, in bytes before encryption.

    `queued_bytes` and `drained_bytes` are cumulative: a message that was queued when `queued_bytes` was n has been
    passed to the kernel once `drained_bytes` reaches n.
    """

    @property
    def queued_bytes(self) -> int:
        """Bytes that had to wait, in total."""
        ...

    @property
    def drained_bytes(self) -> int:
        """The queued bytes that have been passed to the kernel."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Bytes that have not been passed to the kernel."""
        ...


def _nothing_sent(data: object) -> int:
    """Accept nothing: nothing is ever sent."""
    del data
    return 0


NO_BACKLOG: Final = Outbox(_nothing_sent)  # always empty


class TransportCallbacks:
    """The owner of a transport, called on the hub in the order in which things happen; it need not listen to all."""

    __slots__ = ()

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Sequence[TransportItem]) -> None:
        """Called with what received data completes, when the kernel received it and when the program saw it."""

    def note(self, item: TransportItem, stamp_perf_ns: int) -> None:
        """Called with an item that no received data completes, such as the opening of a wire without a handshake."""

    def settle(self) -> None:
        """Called when more of what was waiting has been passed to the kernel."""

    def sent_late(self, late_ns: int) -> None:
        """Called when a frame left this machine so long after it was handed over, because of this machine."""

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Called when the transport cannot continue."""

    def failed(self, error: Exception) -> None:
        """Called on an internal error."""


class Transport(ABC):
    """One call's way to its endpoint. Owned by a call, which is its `TransportCallbacks` from `open` to `close`."""

    # How long at most what is being passed on had been waiting when it was stamped; None where only the engine's loop
    # can say so: it stamps what it sees.
    lag_bound_ns: int | None = None
    # Whether more than what is being passed on has been read, so that its stamp may be that of what came later: of a
    # part of another message, a control frame, a record of TLS.
    has_rest: bool = False
    # How long after it was handed over a frame may leave this machine without being reported as late.
    hand_over_ns: int = 0
    frame_bytes: int = 0  # the size of the frame that `send_frame` sent last, as it goes on the wire

    def __init__(self, parts: "TransportParts") -> None:
        self._parts = parts
        self._callbacks: TransportCallbacks | None = None
        self._stamped: bool | None = None  # whether all connections are, once there is one

    @property
    def outbox(self) -> SendBacklog:
        """The backlog that the endpoint has not read."""
        return NO_BACKLOG

    @property
    def stamped(self) -> bool:
        """Whether the kernel stamps what arrives, on every connection."""
        return bool(self._stamped)

    @property
    def stamp_kind(self) -> str:
        """The source of receive timestamps: "kernel" or "user", part of each turn's evidence."""
        return "kernel" if self._stamped else "user"

    def _note_stamps(self, connection: Connection) -> None:
        """Take over how a new connection stamps what arrives: one without kernel stamps makes all doubtful."""
        self._stamped = connection.stamped and self._stamped is not False

    @property
    def closed(self) -> str | None:
        """The reason why the transport is not open; None while it is."""
        return "closed" if self._callbacks is None else None

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent."""
        return self._callbacks is not None

    @abstractmethod
    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Connect. Blocks only the calling greenlet. Raises ConnectionFailed and Exhausted."""

    def begin(self) -> None:
        """Begin the handshakes; where there are none, note at once that messages may be sent."""
        self._note_opened()

    def _note_opened(self) -> None:
        if self._callbacks is not None:
            self._callbacks.note(Opened(), self._now_perf_ns())

    @abstractmethod
    def send(self, message: Outgoing) -> None:
        """Send a message of the call's protocol; it is discarded unless the transport is open."""

    @abstractmethod
    def send_frame(self, frame: bytes) -> bool:
        """Send a prepared frame of audio, behind what is waiting; return whether all of it was accepted."""

    def connections(self) -> list[Connection]:
        """Return what is connected: sockets of this process."""
        return []

    def readable(self) -> None:
        """Read what has arrived and pass it on."""
        for connection in self.connections():
            connection.readable()

    def unsent_bytes(self) -> int | None:
        """Return the bytes that have not left this machine; None if that is not known."""
        return None

    @abstractmethod
    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session `waited_s` seconds after the transport was opened.

        `awaited` is the message that the protocol waits for, None before there is a connection for messages.
        """

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

    def hang_up(self, reason: str) -> None:
        """Announce the end where the wire can, and pass nothing on any more. Idempotent."""
        del reason
        self.close()

    def release(self) -> None:  # noqa: B027 - most have none
        """Break the reference cycles of what is not needed until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Idempotent."""


@dataclass(frozen=True, slots=True)
class TransportParts:
    """The parts of an engine that all its transports share."""

    connections: ConnectionParts
    webrtc: MediaProcess
    rooms: MediaProcess
    limits: LocalLimits
    tls: TlsClient | None
    max_message_bytes: int
    mask: str = FIXED  # of the calls' prepared frames, one of `masked_frames.MASKS`
