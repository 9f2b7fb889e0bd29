"""The interface between a call and the carriers of its messages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest.engine.connection import ConnectionParts
from loadtest.engine.local_limits import LocalLimits
from loadtest.engine.tls import TlsClient
from loadtest.engine.webrtc.media_process import MediaProcess
from loadtest.errors import EndpointUnreachable
from loadtest.protocols.base import Outgoing, ServiceLost
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpItem
from loadtest.protocols.room_items import RoomItem
from loadtest.protocols.transports.framing import Item
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
        """Of those, the bytes that have been passed to the kernel."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Bytes that have not been passed to the kernel."""
        ...


class TransportCallbacks(Protocol):
    """The owner of a transport, called on the hub in the order in which things happen."""

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Sequence[TransportItem]) -> None:
        """Called with what received data completes, when the kernel received it and when the program saw it."""
        ...

    def note(self, item: TransportItem, stamp_perf_ns: int) -> None:
        """Called with an item that no received data completes, such as the opening of a wire without a handshake."""
        ...

    def queued(self) -> None:
        """Called when a message has to wait: whatever is sent from now on must go behind it."""
        ...

    def settle(self) -> None:
        """Called when more of what was waiting has been passed to the kernel."""
        ...

    def sent_late(self, late_ns: int) -> None:
        """Called when a frame left this machine so long after it was handed over, because of this machine."""
        ...

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Called when the transport cannot continue."""
        ...

    def failed(self, error: Exception) -> None:
        """Called on an internal error."""
        ...


class Transport(Protocol):
    """One call's way to its endpoint. Owned by a call, which is its `TransportCallbacks`.

    `write(frame)` sends one prepared frame of audio and returns how many of its bytes were accepted (a negative number:
    not all, and the rest is already queued), or raises OSError, to be passed to `refused`. It may only be used while
    nothing is waiting.
    """

    @property
    def outbox(self) -> SendBacklog:
        """What the endpoint has not read."""
        ...

    @property
    def stamped(self) -> bool:
        """Whether the kernel stamps what arrives."""
        ...

    @property
    def lag_bound_ns(self) -> int | None:
        """How long at most what is being passed on had been waiting when it was stamped.

        None where only the engine's loop can say so: it stamps what it sees.
        """
        ...

    @property
    def has_rest(self) -> bool:
        """Whether more than what is being passed on has been read, so that its stamp may be that of what came later."""
        ...

    @property
    def hand_over_ns(self) -> int:
        """How long after it was handed over a frame may leave this machine without being reported as late."""
        ...

    @property
    def frame_bytes(self) -> int:
        """The size of the frame that `send_frame` sent last, as it goes on the wire."""
        ...

    @property
    def closed(self) -> str | None:
        """Why the transport is not open; None while it is."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent."""
        ...

    @property
    def stamp_kind(self) -> str:
        """The source of receive timestamps: "kernel" or "user", part of each turn's evidence."""
        ...

    @property
    def write(self) -> Callable[[bytes], int]:
        """The function that writes a frame; see the class."""
        ...

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Connect. Blocks only the calling greenlet. Raises ConnectionFailed and Exhausted."""
        ...

    def begin(self) -> None:
        """Begin the handshakes; where there are none, note at once that messages may be sent."""
        ...

    def send(self, message: Outgoing) -> None:
        """Send a message of the call's protocol; it is discarded unless the transport is open."""
        ...

    def send_frame(self, frame: bytes) -> bool:
        """Send a prepared frame of audio, behind what is waiting; return whether all of it was accepted."""
        ...

    def keep(self, frame: bytes, sent: int) -> None:
        """Queue what `write` left of a frame: it is sent first, as soon as possible."""
        ...

    def refused(self, error: OSError) -> None:
        """Handle an error of `write`."""
        ...

    def readable(self) -> None:
        """Read what has arrived and pass it on."""
        ...

    def take_clock_fault(self) -> bool:
        """Return whether a receive timestamp was impossible since this was asked last: the wall clock is being set."""
        ...

    def unsent_bytes(self) -> int | None:
        """Return the bytes that have not left this machine; None if that is not known."""
        ...

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session `waited_s` seconds after the transport was opened.

        `awaited` is the message that the protocol waits for, None before there is a connection for messages.
        """
        ...

    def hang_up(self, reason: str) -> None:
        """Announce the end where the wire can, and pass nothing on any more. Idempotent."""
        ...

    def release(self) -> None:
        """Break the reference cycles of what is not needed until `close`."""
        ...

    def close(self) -> None:
        """Release all resources. Idempotent."""
        ...


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
