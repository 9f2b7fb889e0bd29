"""Bytes that a socket has not accepted yet, in order.

A non-blocking send may accept part of a message. The rest is sent before anything else on that socket, including
control frames.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

Bytes = bytes | memoryview

# The most that is offered to the socket at once. When an endpoint resumes reading, many small messages are waiting, and
# a system call for each would keep the event loop from serving other callers.
_AT_ONCE_BYTES: Final = 64 * 1024
_NOTHING: Final = memoryview(b"")


class Outbox:
    """The send queue of one socket.

    `send(data)` passes bytes to the socket and returns how many it accepted, or raises BlockingIOError if none.

    Messages wait here as they were pushed; most are frames that all callers share, so an endpoint that does not read
    costs one reference per frame. With `seal`, messages are encrypted only when the socket has room for them.

    `queued_bytes` and `drained_bytes` are cumulative counts before encryption: a message that was queued when
    `queued_bytes` was n has been passed to the kernel once `drained_bytes` reaches n.
    """

    __slots__ = ("_begun", "_begun_bytes", "_parts", "_seal", "_send", "drained_bytes", "queued_bytes")

    def __init__(self, send: Callable[[Bytes], int], seal: Callable[[bytes], bytes] | None = None) -> None:
        self._send = send
        self._seal = seal
        self._begun = _NOTHING  # the rest of what is being sent, as it goes on the wire
        self._begun_bytes = 0  # its size before encryption, as counted in `queued_bytes`
        self._parts: deque[bytes] = deque()
        self.queued_bytes = 0
        self.drained_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the socket has not accepted; encrypted messages count in full until completely sent."""
        return self.queued_bytes - self.drained_bytes

    def push(self, data: bytes) -> bool:
        """Send what the socket accepts now and queue the rest; return whether it accepted everything.

        Data goes behind what is already waiting. Raises OSError for a broken connection.
        """
        if self.waiting_bytes:
            self._queue(data)
            return False
        wire = data if self._seal is None else self._seal(data)
        return self._offer(wire, len(data))

    def push_wire(self, data: bytes) -> bool:
        """Send bytes without encrypting them, otherwise like `push`.

        Raises ValueError while anything is waiting: these bytes would have to go between messages that are already
        encrypted and messages that are not.
        """
        if self.waiting_bytes:
            raise ValueError("cannot send unencrypted bytes while the outbox is not empty; flush it first")
        return self._offer(data, len(data))

    def _offer(self, wire: bytes, size: int) -> bool:
        try:
            sent = self._send(wire)
        except BlockingIOError:
            sent = 0
        if sent == len(wire):
            return True
        self._begun = memoryview(wire)[sent:]
        self._begun_bytes = size if self._seal is not None else size - sent
        self.queued_bytes += self._begun_bytes
        return False

    def _queue(self, data: bytes) -> None:
        self._parts.append(data)
        self.queued_bytes += len(data)

    def flush(self) -> bool:
        """Send as much of the queue as the socket accepts, up to a limit per call; return whether the queue is empty.

        Raises OSError for a broken connection.
        """
        left = _AT_ONCE_BYTES
        while self.waiting_bytes and left > 0:
            if not self._begun:
                self._begin()
            try:
                sent = self._send(self._begun)
            except BlockingIOError:
                return False
            left -= sent
            self._begun = self._begun[sent:] or _NOTHING
            if self._seal is None or not self._begun:
                drained = sent if self._seal is None else self._begun_bytes
                self._begun_bytes -= drained
                self.drained_bytes += drained
            if self._begun:
                return False
        return not self.waiting_bytes

    def _begin(self) -> None:
        """Prepare the next messages for the wire, as many as are offered at once."""
        taken, size = [], 0
        while self._parts and size < _AT_ONCE_BYTES:
            part = self._parts.popleft()
            taken.append(part)
            size += len(part)
        data = b"".join(taken)
        self._begun = memoryview(data if self._seal is None else self._seal(data))
        self._begun_bytes = size
