"""The messages of one byte stream: bytes in, items out, and why connections are refused or end. No socket, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from loadtest.protocols.base import Message
from loadtest.protocols.failure import Failure
from loadtest.protocols.message_limit import message_limit

ABNORMAL_CLOSURE: Final = 1006
INVALID_DATA: Final = 1007
MESSAGE_TOO_BIG: Final = 1009


@dataclass(frozen=True, slots=True)
class Opened:
    """Messages may be sent. `headers` are those of the accepted upgrade, empty where there is none."""

    headers: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The upgrade was refused. `status` is None if the answer was not HTTP."""

    status: int | None
    reason: str
    body_excerpt: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    @property
    def failure(self) -> Failure:
        """The cause. Status 101 with an invalid handshake is a protocol violation, not a refusal."""
        if self.status is None or self.status == 101:
            return Failure("protocol_violation", "not_http" if self.status is None else "bad_upgrade")
        return Failure("http_status", str(self.status))


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended. `clean` means that both sides sent a close frame and neither violated the protocol.

    Otherwise `reason` is a whole sentence. `limit_bytes` is set where a message was longer than we take.
    """

    code: int
    reason: str
    clean: bool
    limit_bytes: int | None = None

    @property
    def failure(self) -> Failure:
        """The cause: the endpoint's close code, or its violation, by the code with which we closed."""
        if self.limit_bytes is not None:
            return message_limit(self.limit_bytes)
        if self.clean:
            return Failure("close_code", str(self.code))
        if self.code == ABNORMAL_CLOSURE:
            return Failure("tcp", "EOF")
        return Failure("protocol_violation", "bad_utf8" if self.code == INVALID_DATA else str(self.code))


@dataclass(frozen=True, slots=True)
class Violation:
    """The peer sent what the framing does not allow; nothing more is decoded. `reason` is a sentence without an end."""

    reason: str
    code: str

    @property
    def failure(self) -> Failure:
        """The cause."""
        return Failure("protocol_violation", self.code)


Item = Opened | Rejected | Closed | Violation | str | bytes


class Framing(Protocol):
    """One connection's framing. It never raises because of what the peer sends.

    Output is returned as bytes to send in order. What the framing itself has to answer (pongs, the end of a closing
    handshake) is waiting while `has_output` is true.
    """

    has_output: bool

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent: after the opening handshake, or at once where there is none."""
        ...

    @property
    def has_rest(self) -> bool:
        """Whether more came with what was received last than completes its last item: a part of a message whose other
        parts are still to come, or a frame that is no message. What came behind an item is stamped later than it."""
        ...

    def start(self) -> bytes:
        """Return the bytes that begin the opening handshake; empty where there is none."""
        ...

    def receive(self, data: bytes) -> Sequence[Item]:
        """Return the items that `data` completes, in order. Data after the end is ignored."""
        ...

    def receive_eof(self) -> Sequence[Item]:
        """Return the items that result from the end of the stream."""
        ...

    def send(self, message: Message) -> bytes:
        """Return the bytes of one message, after any pending output; empty unless the framing is open."""
        ...

    def close(self, code: int = 1000, reason: str = "") -> bytes:
        """Return the bytes that end the conversation; empty where nothing announces the end."""
        ...

    def take_output(self) -> bytes:
        """Return the framing's own answers to what was received, and empty the queue."""
        ...

    def release(self) -> None:
        """Stop receiving and sending, and break all reference cycles."""
        ...
