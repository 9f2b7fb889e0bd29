"""Wyoming's framing of a byte stream: a line of JSON, then as much data and payload as the line says. Pure.

A message is one whole event: the line, its data (JSON that is merged over the line's own) and its payload.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from loadtest.protocols.base import Message
from loadtest.protocols.foreign import sent_instead
from loadtest.protocols.message_limit import over_limit
from loadtest.protocols.transports.items import ABNORMAL_CLOSURE, INVALID_DATA, MESSAGE_TOO_BIG, Closed, Item

MAX_LINE_BYTES: Final = 64 * 2**10
_LENGTHS: Final = ("data_length", "payload_length")


class EventLines:
    """One connection's events. Implements `loadtest.protocols.transports.framing.Framing`."""

    has_output = False

    def __init__(self, max_message_bytes: int = 16 * 2**20) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._scanned = 0  # how much of the buffer contains no end of a line
        self._needed: int | None = None  # bytes of the event whose line has been read
        self._over = False

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent: at once, there is no handshake."""
        return not self._over

    @property
    def has_rest(self) -> bool:
        """Whether a part of a message has been received whose other parts are still to come."""
        return bool(self._buffer)

    def start(self) -> bytes:
        """Return nothing: there is no handshake."""
        return b""

    def receive(self, data: bytes) -> Sequence[Item]:
        """Return the events that these bytes complete; a line that is no header ends the conversation."""
        if self._over:
            return []
        self._buffer += data
        items: list[Item] = []
        while not self._over:
            fault = self._read_line() if self._needed is None else None
            if fault is not None:
                self._over = True
                self._buffer.clear()
                return [*items, fault]
            if self._needed is None or len(self._buffer) < self._needed:
                break
            items.append(bytes(self._buffer[: self._needed]))
            del self._buffer[: self._needed]
            self._needed, self._scanned = None, 0
        return items

    def receive_eof(self) -> Sequence[Item]:
        """Return the end of the conversation: whole, unless an event was cut short."""
        if self._over:
            return []
        self._over = True
        where = " inside an event" if self._buffer else ""
        return [Closed(ABNORMAL_CLOSURE, f"the endpoint ended the connection{where}", clean=False)]

    def send(self, message: Message) -> bytes:
        """Return the bytes of one event, which are the event itself."""
        return b"" if self._over else message.encode() if isinstance(message, str) else message

    def close(self, code: int = 1000, reason: str = "") -> bytes:
        """Return nothing: the connection just ends."""
        del code, reason
        self._over = True
        return b""

    def take_output(self) -> bytes:
        """Return nothing: the framing has nothing to answer."""
        return b""

    def release(self) -> None:
        """Stop receiving and sending."""
        self._over = True
        self._buffer.clear()

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
