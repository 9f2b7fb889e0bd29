"""The messages of one byte stream: bytes in, items out; no socket, no clock."""

from collections.abc import Sequence
from typing import Protocol

from loadtest.protocols.base import Message
from loadtest.protocols.transports.items import Item


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
        """Whether a part of a message has been received whose other parts are still to come."""
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
