"""Messages over a byte stream without a handshake, in two framings. Pure.

Wyoming's has a line of JSON, then as much data and payload as the line says: a message is one whole event, that is the
line, its data (JSON that is merged over the line's own) and its payload. In the other one each message is bytes behind
their length in 4 bytes, the most significant first.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from loadtest.protocols.base import Message
from loadtest.protocols.foreign import sent_instead
from loadtest.protocols.message_limit import over_limit
from loadtest.protocols.transports.framing import (
    ABNORMAL_CLOSURE,
    INVALID_DATA,
    MESSAGE_TOO_BIG,
    Closed,
    Item,
    Violation,
)

PREFIX_BYTES: Final = 4
MAX_LINE_BYTES: Final = 64 * 2**10
_LENGTHS: Final = ("data_length", "payload_length")


class ByteStream:
    """One connection's framing, as `loadtest.protocols.transports.framing.Framing`: nothing announces begin or end."""

    has_output = False

    def __init__(self, max_message_bytes: int = 16 * 2**20) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent: at once, there is no handshake."""
        return self._open

    @property
    def has_rest(self) -> bool:
        """Whether a part of a message has been received whose other parts are still to come."""
        return bool(self._buffer)

    def start(self) -> bytes:
        """Return nothing: there is no handshake."""
        return b""

    def receive(self, data: bytes) -> Sequence[Item]:
        """Return the messages that these bytes complete; a fault ends the conversation."""
        items: list[Item] = []
        if not self._open:
            return items
        self._buffer += data
        while (item := self._next()) is not None:
            items.append(item)
            if not isinstance(item, str | bytes):
                self.release()
                break
        return items

    def _next(self) -> Item | None:
        """Take the next whole message, or the fault after which the stream cannot be read on; None where it is not
        complete."""
        raise NotImplementedError

    def receive_eof(self) -> Sequence[Item]:
        """Return nothing: an incomplete message is discarded."""
        return ()

    def send(self, message: Message) -> bytes:
        """Return the bytes of one message; empty after the end."""
        return self.framed(message.encode() if isinstance(message, str) else message) if self._open else b""

    def framed(self, message: bytes) -> bytes:
        """Return a message as it goes on the wire."""
        return message

    def close(self, code: int = 1000, reason: str = "") -> bytes:
        """Return nothing: the connection just ends."""
        del code, reason
        self._open = False
        return b""

    def take_output(self) -> bytes:
        """Return nothing: the framing has nothing to answer."""
        return b""

    def release(self) -> None:
        """Stop receiving and sending."""
        self._open = False
        self._buffer.clear()


class EventLines(ByteStream):
    """Wyoming's events. Their bytes are the messages themselves."""

    def __init__(self, max_message_bytes: int = 16 * 2**20) -> None:
        super().__init__(max_message_bytes)
        self._scanned = 0  # how much of the buffer contains no end of a line
        self._needed: int | None = None  # bytes of the event whose line has been read

    def receive_eof(self) -> Sequence[Item]:
        """Return the end of the conversation: whole, unless an event was cut short."""
        if not self._open:
            return []
        self._open = False
        where = " inside an event" if self._buffer else ""
        return [Closed(ABNORMAL_CLOSURE, f"the endpoint ended the connection{where}", clean=False)]

    def _next(self) -> Item | None:
        fault = self._read_line() if self._needed is None else None
        if fault is not None or self._needed is None or len(self._buffer) < self._needed:
            return fault
        event = bytes(self._buffer[: self._needed])
        del self._buffer[: self._needed]
        self._needed, self._scanned = None, 0
        return event

    def _read_line(self) -> Closed | None:
        """Find out how long the next event is; return why the stream cannot be read on, if it cannot."""
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            longest = min(MAX_LINE_BYTES, self._max_message_bytes)
            if self._scanned > longest:
                return Closed(MESSAGE_TOO_BIG, over_limit(longest, what="a line"), clean=False, limit_bytes=longest)
            return None
        lengths = header_lengths(bytes(self._buffer[:end]))
        if lengths is None:
            line = bytes(self._buffer[:end])
            sentence = "the server does not speak Wyoming, whose events begin with a line of JSON"
            return Closed(INVALID_DATA, f"{sentence}: {sent_instead(line)}", clean=False)
        limit = self._max_message_bytes
        if sum(lengths) > limit:
            return Closed(MESSAGE_TOO_BIG, over_limit(limit, sum(lengths), "an event"), clean=False, limit_bytes=limit)
        self._needed = end + 1 + sum(lengths)
        return None


def header_lengths(line: bytes) -> tuple[int, int] | None:
    """Return how many bytes of data and of payload follow a line; None if it is no header."""
    try:
        fields: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict):
        return None
    lengths: list[int] = []
    for name in _LENGTHS:
        value: object = fields.get(name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if value is None:
            value = 0
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return None
        lengths.append(value)
    return lengths[0], lengths[1]


def prefixed(message: bytes) -> bytes:
    """Return a message behind its length."""
    return len(message).to_bytes(PREFIX_BYTES) + message


class LengthPrefixed(ByteStream):
    """Messages behind their lengths. There is no end but that of the connection."""

    def framed(self, message: bytes) -> bytes:
        """Return a message behind its length."""
        return prefixed(message)

    def _next(self) -> Item | None:
        prefix = bytes(self._buffer[:PREFIX_BYTES])
        if len(prefix) < PREFIX_BYTES:
            return None
        end = PREFIX_BYTES + int.from_bytes(prefix)
        if end - PREFIX_BYTES > self._max_message_bytes:
            return _not_taken(prefix, self._max_message_bytes)
        if end > len(self._buffer):
            return None
        message = bytes(self._buffer[PREFIX_BYTES:end])
        del self._buffer[:end]
        return message


def _not_taken(prefix: bytes, limit: int) -> Closed | Violation:
    """Return why a message with this length is not read: words in its place are no length at all."""
    if prefix.isascii() and prefix.decode().isprintable():
        return Violation(f"a message begins with {prefix!r} in the place of its length", "no_length")
    return Closed(MESSAGE_TOO_BIG, over_limit(limit, int.from_bytes(prefix)), clean=False, limit_bytes=limit)
