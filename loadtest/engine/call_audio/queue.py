"""The audio of calls on its way out of a worker: a bounded queue that is sent in the time between two ticks.

Nothing here waits and nothing copies audio. What the other process does not take fills the queue; beyond its bound,
audio is dropped, and what is missing is reported in place of it.
"""

import contextlib
import socket
from collections import deque
from typing import Final

from loadtest.engine.call_audio.messages import HEAD_BYTES, KeeperMessage, KeeperMessageKind, head, ns_payload

# Ten seconds of what 140 callers hear at 24 kHz.
MOST_WAITING_BYTES: Final = 64 << 20
# What is not audio is small, and goes beyond the bound as far as this.
_MOST_MESSAGES: Final = 500_000
_SLICE_BYTES: Final = 64 << 10
_SLICE_MESSAGES: Final = 64
_SAMPLE_BYTES: Final = 2
_SECOND_NS: Final = 1_000_000_000


class CallAudioQueue:
    """Sends messages over a stream socket, which it makes non-blocking and owns.

    `dropped_ns` is how much audio was dropped; `failure` says why nothing is sent any more, None while it is.
    """

    def __init__(self, stream: socket.socket, *, most_bytes: int = MOST_WAITING_BYTES) -> None:
        stream.setblocking(False)
        self._stream = stream
        self._most_bytes = most_bytes
        self._messages: deque[KeeperMessage] = deque()
        self._rest = memoryview(b"")  # of what was sent last: the socket took only a part
        self._lost: dict[tuple[int, int], tuple[int, int]] = {}  # by call and playback: from when, how long
        self.waiting_bytes = 0
        self.dropped_ns = 0
        self.failure: str | None = None

    def put(self, message: KeeperMessage) -> None:
        """Queue a message, or drop its audio and remember that it is missing."""
        kind, call, playback, rate_hz, at, payload = message
        size = len(payload) + HEAD_BYTES
        full = self.waiting_bytes + size > self._most_bytes or len(self._messages) >= _MOST_MESSAGES
        # Utterances take no memory: they are mapped, and all calls share them.
        if self.failure is not None or (full and kind == KeeperMessageKind.PLAYED):
            if kind == KeeperMessageKind.PLAYED:
                self._drop(call, playback, at, len(payload) // _SAMPLE_BYTES * _SECOND_NS // max(1, rate_hz))
            return
        if self._lost:
            self._report_lost(call)
        self._messages.append(message)
        self.waiting_bytes += size

    def _drop(self, call: int, playback: int, at: int, length_ns: int) -> None:
        self.dropped_ns += length_ns
        begin, so_far = self._lost.get((call, playback), (at, 0))
        self._lost[call, playback] = (begin, max(so_far, at + length_ns - begin))

    def _report_lost(self, call: int) -> None:
        for key in [key for key in self._lost if key[0] == call]:
            begin, length_ns = self._lost.pop(key)
            report = KeeperMessage(KeeperMessageKind.LOST, call, key[1], 0, begin, ns_payload(length_ns))
            self._messages.append(report)
            self.waiting_bytes += HEAD_BYTES + len(report.payload)

    def send_slice(self) -> bool:
        """Send a few messages; whether the socket took them all and more are waiting."""
        if self.failure is not None or not (self._rest or self._messages):
            return False
        parts: list[bytes | memoryview] = [self._rest] if self._rest else []
        size = len(self._rest)
        while self._messages and size < _SLICE_BYTES and len(parts) < _SLICE_MESSAGES:
            message = self._messages.popleft()
            parts += (head(message), message.payload)
            size += HEAD_BYTES + len(message.payload)
        try:
            sent = self._stream.sendmsg(parts)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail(error.strerror or str(error))
            return False
        self.waiting_bytes -= sent
        self._rest = memoryview(b"") if sent == size else _after(parts, sent)
        return sent == size and bool(self._messages)

    def _fail(self, why: str) -> None:
        self.failure = why
        self._messages.clear()
        self._rest = memoryview(b"")
        self.waiting_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything has been handed over, or never will be."""
        return self.failure is not None or not (self._rest or self._messages)

    def close(self) -> None:
        """Say that nothing more comes."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)
        self._stream.close()


def _after(parts: list[bytes | memoryview], sent: int) -> memoryview:
    """Return what is left of the parts after so many bytes."""
    for number, part in enumerate(parts):
        if sent < len(part):
            return memoryview(b"".join([memoryview(part).cast("B")[sent:], *parts[number + 1 :]]))
        sent -= len(part)
    return memoryview(b"")
