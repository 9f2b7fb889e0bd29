"""Messages of bytes, each behind its length in 4 bytes, the most significant first. Pure."""

from collections.abc import Sequence
from typing import Final

from loadtest.protocols.base import Message
from loadtest.protocols.message_limit import over_limit
from loadtest.protocols.transports.items import MESSAGE_TOO_BIG, Closed, Item, Violation

PREFIX_BYTES: Final = 4


def prefixed(message: bytes) -> bytes:
    """Return a message as it goes on the wire."""
    return len(message).to_bytes(PREFIX_BYTES) + message


class LengthPrefixed:
    """One connection, a `Framing`. There is no handshake and no end but that of the connection."""

    def __init__(self, *, max_message_bytes: int = 16 * 2**20) -> None:
        self.has_output = False
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent."""
        return self._open

    @property
    def has_rest(self) -> bool:
        """Whether a part of a message has been received whose other parts are still to come."""
        return bool(self._buffer)

    def start(self) -> bytes:
        """Return nothing: there is no handshake."""
        return b""

    def receive(self, data: bytes) -> Sequence[Item]:
        """Return the messages that `data` completes; one that is too long ends it all."""
        items: list[Item] = []
        if not self._open:
            return items
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= PREFIX_BYTES:
            length = int.from_bytes(self._buffer[at : at + PREFIX_BYTES])
            if length > self._max_message_bytes:
                items.append(_not_taken(bytes(self._buffer[at : at + PREFIX_BYTES]), self._max_message_bytes))
                self.release()
                return items
            end = at + PREFIX_BYTES + length
            if end > len(self._buffer):
                break
            items.append(bytes(self._buffer[at + PREFIX_BYTES : end]))
            at = end
        del self._buffer[:at]
        return items

    def receive_eof(self) -> Sequence[Item]:
        """Return nothing: an incomplete message is discarded."""
        return ()

    def send(self, message: Message) -> bytes:
        """Return the message behind its length; empty after a violation."""
        if not self._open:
            return b""
        return prefixed(message.encode() if isinstance(message, str) else message)

    def close(self, code: int = 1000, reason: str = "") -> bytes:
        """Return nothing: the connection just ends."""
        del code, reason
        return b""

    def take_output(self) -> bytes:
        """Return nothing: no message is answered by the framing."""
        return b""

    def release(self) -> None:
        """Stop receiving and sending."""
        self._open = False
        self._buffer.clear()


def _not_taken(prefix: bytes, limit: int) -> Closed | Violation:
    """Return why a message with this length is not read: words in its place are no length at all."""
    if prefix.isascii() and prefix.decode().isprintable():
        return Violation(f"a message begins with {prefix!r} in the place of its length", "no_length")
    return Closed(MESSAGE_TOO_BIG, over_limit(limit, int.from_bytes(prefix)), clean=False, limit_bytes=limit)
