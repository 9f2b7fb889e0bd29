"""What a socket has not taken yet, in order. A non-blocking send may take part of a message: the rest goes first,
before anything else on that socket, control frames included.
"""

from collections import deque
from collections.abc import Callable

Bytes = bytes | memoryview


class Outbox:
    """`send(data)` gives bytes to the socket: how many it took, or BlockingIOError when it takes none.

    `queued_bytes` and `drained_bytes` count what ever had to wait here: what was queued when `queued_bytes` stood at n
    is with the kernel once `drained_bytes` has reached n.
    """

    __slots__ = ("_parts", "_send", "drained_bytes", "queued_bytes")

    def __init__(self, send: Callable[[Bytes], int]) -> None:
        self._send = send
        self._parts: deque[memoryview] = deque()
        self.queued_bytes = 0
        self.drained_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the socket has not taken."""
        return self.queued_bytes - self.drained_bytes

    def push(self, data: bytes) -> bool:
        """Send now what the socket takes, behind what already waits; whether it took all of it.

        Raises OSError for a broken connection.
        """
        sent = 0
        if not self._parts:
            try:
                sent = self._send(data)
            except BlockingIOError:
                sent = 0
            if sent == len(data):
                return True
        self.keep(data, sent)
        return False

    def keep(self, data: bytes, sent: int) -> None:
        """Hold what the socket has not taken of some data: all of it but the first `sent` bytes."""
        self._parts.append(memoryview(data)[sent:])
        self.queued_bytes += len(data) - sent

    def flush(self) -> bool:
        """Send what waits, as far as the socket takes it; whether nothing waits any more. Raises OSError."""
        while self._parts:
            head = self._parts[0]
            try:
                sent = self._send(head)
            except BlockingIOError:
                return False
            self.drained_bytes += sent
            if sent < len(head):
                self._parts[0] = head[sent:]
                return False
            self._parts.popleft()
        return True
