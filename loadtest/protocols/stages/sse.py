"""Server-sent events: bytes of a response's body in, whole events out, however the bytes are split. Pure.

Follows the event stream of the HTML standard: lines end with CR, LF or CRLF, comments begin with a colon, an empty line
ends an event, and text after the last empty line is not an event.
"""

import re
from typing import Final

import msgspec

MAX_EVENT_BYTES: Final = 16 * 2**20
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: its type, `message` where the stream names none, and its data with lines joined by LF."""

    event: str
    data: str


class SseTooLongError(ValueError):
    """An event is longer than MAX_EVENT_BYTES."""


class SseParser:
    """Decodes one stream. After an error it must not be fed again."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0  # how much of the buffer contains no end of a line
        self._skip_lf = False  # the last line ended with a CR at the end of a piece: an LF after it belongs to it
        self._at_start = True
        self._event = ""
        self._data: list[str] = []
        self._held_bytes = 0
        self.comments = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete. Raises SseTooLongError."""
        if not data:
            return []
        if self._skip_lf and data[:1] == b"\n":
            data = data[1:]
        self._skip_lf = False
        buffer = self._buffer
        buffer += data
        events: list[SseEvent] = []
        begin = 0
        for end in _LINE_END.finditer(buffer, self._scanned):
            self._line(bytes(buffer[begin : end.start()]), events)
            begin = end.end()
        self._skip_lf = begin == len(buffer) and buffer.endswith(b"\r")
        del buffer[:begin]
        self._scanned = len(buffer)
        if len(buffer) + self._held_bytes > MAX_EVENT_BYTES:
            raise SseTooLongError
        return events

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(SseEvent(self._event or "message", "\n".join(self._data)))
            self._event, self._data, self._held_bytes = "", [], 0
            return
        name, _, value = line.partition(b":")
        self.comments += not name
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value.decode(errors="replace"))
            self._held_bytes += len(value) + 1
        elif name == b"event":
            self._event = value.decode(errors="replace")
