"""One TCP or TLS connection with a framing: a WebSocket, or a wire of its own over TCP, accepted or opened."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loadtest.engine.connection import Connection, ConnectionCallbacks
from loadtest.engine.outbox import Outbox
from loadtest.engine.pacer import PacedSocket, Pacer
from loadtest.engine.transports.base import TransportCallbacks, TransportParts
from loadtest.engine.transports.dialing import dial
from loadtest.protocols.address import Address
from loadtest.protocols.base import Outgoing
from loadtest.protocols.failure import Failure
from loadtest.protocols.transports.framing import Framing, Opened, Rejected
from loadtest.protocols.transports.masked_frames import Join

# A longer reason is left out rather than cut: what a WebSocket's close frame can carry is bounded.
_MAX_REASON_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class AudioHeads:
    """The beginnings of a call's frames, and how each joins what all callers share."""

    next_head: Callable[[], bytes | None]
    join: Join


# How a connection comes about, within a time in s: as `dial` does. Raises ConnectionFailed and Exhausted.
Obtain = Callable[[TransportParts, Address, ConnectionCallbacks, float], Connection]


def _nothing_sent(data: object) -> int:
    """Discard bytes: there is no connection."""
    del data
    return 0


class StreamTransport:
    """One connection and its framing. Implements `loadtest.engine.transports.base.Transport`.

    With `heads`, the prepared frames are what all callers share, and each is sent with its call's own beginning.
    """

    hand_over_ns = 0

    def __init__(
        self,
        parts: TransportParts,
        address: Address,
        framing: Framing,
        heads: AudioHeads | None = None,
        obtain: Obtain = dial,
    ) -> None:
        self._parts = parts
        self._obtain = obtain
        self._address = address
        self._framing = framing
        self._callbacks: TransportCallbacks | None = None
        self._hung_up = False
        self._heads = heads
        self._write: Callable[[bytes], int] = _nothing_sent
        self.connection: Connection | None = None
        self.lag_bound_ns: int | None = None
        self.outbox: Outbox | PacedSocket = Outbox(_nothing_sent)  # the connection's, once there is one
        self.frame_bytes = 0

    @property
    def closed(self) -> str | None:
        """Why the connection is not open; None while it is."""
        return "not connected" if self.connection is None else self.connection.closed

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent."""
        return self.closed is None and not self._hung_up and self._framing.is_open

    @property
    def stamped(self) -> bool:
        """Whether the kernel stamps what arrives."""
        return self.connection is not None and self.connection.stamped

    @property
    def has_rest(self) -> bool:
        """Whether a part of another message was read with what is being passed on."""
        return self._framing.has_rest

    @property
    def stamp_kind(self) -> str:
        """The source of receive timestamps: "kernel" or "user"."""
        return "user" if self.connection is None else self.connection.stamp_kind

    @property
    def write(self) -> Callable[[bytes], int]:
        """The function that writes a frame: the socket's own where nothing has to be done with it."""
        return self._write if self._heads is None else self._write_headed

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Connect. Blocks only the calling greenlet. Raises ConnectionFailed and Exhausted."""
        self.take_over(self._obtain(self._parts, self._address, self, timeout_s), callbacks)

    def take_over(self, connection: Connection, callbacks: TransportCallbacks) -> None:
        """Take over a connection whose callbacks this transport is."""
        self._callbacks = callbacks
        self.connection = connection
        self.outbox = connection.outbox
        self._write = connection.write

    def begin(self) -> None:
        """Begin the TLS handshake, if any, and then the framing's."""
        if self.connection is not None:
            self.connection.begin()

    def pace(self, pacer: Pacer, frame_ns: int) -> PacedSocket | None:
        """Have the pacer thread send the frames, where they are complete and not encrypted; None where they are not."""
        if self.connection is None or self._heads is not None:
            return None
        paced = self.connection.pace(pacer, frame_ns)
        self.outbox = self.connection.outbox
        return paced

    # Outgoing.

    def send(self, message: Outgoing) -> None:
        """Send one message. Raises TypeError for one that is not text or bytes."""
        if not isinstance(message, (str, bytes)):
            raise TypeError(f"a byte stream carries text and bytes, not {type(message).__name__}")
        self._transmit(self._framing.send(message))

    def send_frame(self, frame: bytes) -> bool:
        """Send a prepared frame, behind what is waiting; return whether the socket accepted all of it."""
        if self._heads is not None:
            frame = self._heads.join(self._heads.next_head() or b"", frame)
        self.frame_bytes = len(frame)
        return self.connection is None or self.connection.send(frame)

    def _write_headed(self, rest: bytes) -> int:
        """Send a prepared frame with its head; return its size if the socket accepted all of it, else -1."""
        heads = self._heads
        if heads is None:
            return len(rest)
        frame = heads.join(heads.next_head() or b"", rest)
        try:
            sent = self._write(frame)
        except OSError as error:
            self.refused(error)
            sent = 0
        if sent == len(frame) or self.connection is None:
            return len(rest)
        self.keep(frame, sent)
        return -1

    def keep(self, frame: bytes, sent: int) -> None:
        """Queue what `write` left of a frame."""
        if self.connection is not None:
            self.connection.keep(frame, sent)

    def refused(self, error: OSError) -> None:
        """Handle an error of `write`: the socket is full, or the connection is gone."""
        if self.connection is not None:
            self.connection.refused(error)

    def _transmit(self, data: bytes) -> None:
        connection, callbacks = self.connection, self._callbacks
        if data and connection is not None and not connection.send(data) and callbacks is not None:
            callbacks.queued()

    # Incoming.

    def readable(self) -> None:
        """Read what has arrived and pass it on."""
        if self.connection is not None:
            self.connection.readable()

    def take_clock_fault(self) -> bool:
        """Return whether a receive timestamp was impossible since this was asked last."""
        if self.connection is None or not self.connection.clock_fault:
            return False
        self.connection.clock_fault = False
        return True

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
        if self._framing.is_open and self._callbacks is not None:
            self._callbacks.note(Opened(), self._now_perf_ns())

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        """Decode received data, pass its items on, and send the framing's own answers."""
        if self._hung_up or self._callbacks is None:
            return
        self._callbacks.receive(stamp_perf_ns, seen_perf_ns, self._framing.receive(data))
        if self._framing.has_output and not self._hung_up:
            self._transmit(self._framing.take_output())

    def settle(self) -> None:
        """Pass on that the socket has accepted more of what was waiting."""
        if self._callbacks is not None:
            self._callbacks.settle()

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

    def failed(self, error: Exception) -> None:
        """Pass on an internal error."""
        if self._callbacks is not None:
            self._callbacks.failed(error)

    def _now_perf_ns(self) -> int:
        return self._parts.connections.clocks.perf_ns()

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
        self._write = _nothing_sent
        if connection is not None:
            connection.close()
