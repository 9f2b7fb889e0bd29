"""One TCP or TLS connection with a framing: a WebSocket, or a wire of its own over TCP, accepted or opened."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loadtest.engine.connection import Connection, ConnectionCallbacks
from loadtest.engine.pacer import FrameHead, PacedSocket, Pacer
from loadtest.engine.transports.base import NO_BACKLOG, SendBacklog, Transport, TransportCallbacks, TransportParts
from loadtest.engine.transports.dialing import dial
from loadtest.protocols.address import Address
from loadtest.protocols.base import CallerProtocol, Outgoing
from loadtest.protocols.failure import Failure
from loadtest.protocols.transports.framing import Framing, Rejected
from loadtest.protocols.transports.masked_frames import Join
from loadtest.protocols.transports.websocket import WebSocketClient

# A longer reason is left out rather than cut: what a WebSocket's close frame can carry is bounded.
_MAX_REASON_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class AudioHeads:
    """The beginnings of a call's frames, by its protocol, and how each joins what all callers share."""

    protocol: CallerProtocol
    join: Join
    mask: str  # of what all callers share, one of `masked_frames.MASKS`

    def joined(self, rest: bytes) -> bytes:
        """Return the next frame."""
        return self.join(self.protocol.audio_head() or b"", rest)


# How a connection comes about, within a time in s: as `dial` does. Raises ConnectionFailed and Exhausted.
Obtain = Callable[[TransportParts, Address, ConnectionCallbacks, float], Connection]


class StreamTransport(Transport):
    """One connection and its framing.

    With `heads`, the prepared frames are what all callers share, and each is sent with its call's own beginning.
    """

    def __init__(
        self,
        parts: TransportParts,
        address: Address,
        framing: Framing,
        heads: AudioHeads | None = None,
        obtain: Obtain = dial,
    ) -> None:
        super().__init__(parts)
        self._obtain = obtain
        self._address = address
        self._framing = framing
        self._hung_up = False
        self._heads = heads
        self.connection: Connection | None = None

    @property
    def outbox(self) -> SendBacklog:
        """The backlog that the endpoint has not read."""
        return NO_BACKLOG if self.connection is None else self.connection.outbox

    @property
    def closed(self) -> str | None:
        """The reason why the connection is not open; None while it is."""
        return "not connected" if self.connection is None else self.connection.closed

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent."""
        return self.closed is None and not self._hung_up and self._framing.is_open

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Connect. Blocks only the calling greenlet. Raises ConnectionFailed and Exhausted."""
        self.take_over(self._obtain(self._parts, self._address, self, timeout_s), callbacks)

    def take_over(self, connection: Connection, callbacks: TransportCallbacks) -> None:
        """Take over a connection whose callbacks this transport is."""
        self._callbacks = callbacks
        self.connection = connection
        self._note_stamps(connection)

    def begin(self) -> None:
        """Begin the TLS handshake, if any, and then the framing's."""
        if self.connection is not None:
            self.connection.begin()

    def pace(self, pacer: Pacer, frame_ns: int) -> PacedSocket | None:
        """Hand the frames to the pacer thread; None if it cannot send them: they are encrypted, or lack more than
        numbers."""
        heads, head = self._heads, None
        if heads is not None:
            counted = heads.protocol.counted_head()
            if counted is None or not isinstance(self._framing, WebSocketClient):
                return None
            head = FrameHead(counted, heads.mask, is_text=heads.protocol.capabilities.audio_is_text)
        return None if self.connection is None else self.connection.pace(pacer, frame_ns, head)

    # Outgoing.

    def send(self, message: Outgoing) -> None:
        """Send one message. Raises TypeError for one that is not text or bytes."""
        if not isinstance(message, (str, bytes)):
            raise TypeError(f"a byte stream carries text and bytes, not {type(message).__name__}")
        self._transmit(self._framing.send(message))

    def send_frame(self, frame: bytes) -> bool:
        """Send a prepared frame, behind what is waiting; return whether the socket accepted all of it."""
        if self._heads is not None:
            frame = self._heads.joined(frame)
        self.frame_bytes = len(frame)
        return self.connection is None or self.connection.send(frame)

    def _transmit(self, data: bytes) -> None:
        if data and self.connection is not None:
            self.connection.send(data)

    # Incoming.

    def connections(self) -> list[Connection]:
        """Return what is connected."""
        return [] if self.connection is None else [self.connection]

    def unsent_bytes(self) -> int | None:
        """Return the bytes that have not left this machine; None if the system does not report them."""
        return None if self.connection is None else self.connection.unsent_bytes()

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session after `waited_s` seconds."""
        assert self.connection is not None  # noqa: S101 - asked after `open`
        return self.connection.no_session_reason(waited_s, awaited)

    # Called by the connection.

    def secured(self) -> None:
        """Begin the framing's handshake; one without a handshake is open at once."""
        self._transmit(self._framing.start())
        if self._framing.is_open:
            self._note_opened()

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        """Decode received data, pass its items on, and send the framing's own answers."""
        if self._hung_up or self._callbacks is None:
            return
        items = self._framing.receive(data)
        self.has_rest = self._framing.has_rest or (self.connection is not None and self.connection.has_rest)
        self._callbacks.receive(stamp_perf_ns, seen_perf_ns, items)
        if self._framing.has_output and not self._hung_up:
            self._transmit(self._framing.take_output())

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Pass on that the connection is gone, after what its end completes."""
        callbacks = self._callbacks
        if callbacks is None or self._hung_up:
            return
        for item in self._framing.receive_eof():
            # A refusal whose body has no stated length is complete only when the connection ends.
            if isinstance(item, Rejected) and item.status is not None:
                callbacks.note(item, self._now_perf_ns())
        callbacks.disconnected(reason, failure)

    # The end.

    def hang_up(self, reason: str) -> None:
        """Announce the end where the framing can, and pass nothing on any more."""
        if self.is_open:
            self._transmit(self._framing.close(1000, "" if len(reason) > _MAX_REASON_CHARS else reason))
        self._hung_up = True

    def release(self) -> None:
        """Break the framing's reference cycles; it decodes nothing more."""
        self._framing.release()

    def close(self) -> None:
        """Close the connection and let go of it: it refers to this transport, which a cycle would keep in memory."""
        connection, self.connection, self._callbacks = self.connection, None, None
        if connection is not None:
            connection.close()
