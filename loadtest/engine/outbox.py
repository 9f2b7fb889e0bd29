"""What a socket has not taken yet, in order. A non-blocking send may take part of a message: the rest goes first,
before anything else on that socket, control frames included.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

Bytes = bytes | memoryview

# What is offered to the socket at once. An endpoint that reads again after a while has many small messages to take, and
# a system call for each would keep the loop from all other callers.
_AT_ONCE_BYTES: Final = 64 * 1024
_NOTHING: Final = memoryview(b"")


class Outbox:
    """`send(data)` gives bytes to the socket: how many it took, or BlockingIOError when it takes none.

    What waits here are the messages as they were pushed, mostly frames that all callers share: an endpoint that does
    not read costs a reference a frame. With `seal` they are encrypted only when the socket has room for them.

    `queued_bytes` and `drained_bytes` count what ever had to wait here, before encryption: what was queued when
    `queued_bytes` stood at n is with the kernel once `drained_bytes` has reached n.
    """

    __slots__ = ("_begun", "_begun_bytes", "_parts", "_seal", "_send", "drained_bytes", "queued_bytes")

    def __init__(self, send: Callable[[Bytes], int], seal: Callable[[bytes], bytes] | None = None) -> None:
        self._send = send
        self._seal = seal
        self._begun = _NOTHING  # on its way to the socket, as the wire has it
        self._begun_bytes = 0  # how many bytes of what was queued that is
        self._parts: deque[bytes] = deque()
        self.queued_bytes = 0
        self.drained_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the socket has not taken; of what is encrypted, whole messages."""
        return self.queued_bytes - self.drained_bytes

    def push(self, data: bytes) -> bool:
        """Send now what the socket takes, behind what already waits; whether it took all of it.

        Raises OSError for a broken connection.
        """
        if self.waiting_bytes:
            self._queue(data)
            return False
        wire = data if self._seal is None else self._seal(data)
        return self._offer(wire, len(data))

    def push_wire(self, data: bytes) -> bool:
        """As `push`, for bytes that are not to be encrypted. Raises ValueError while anything waits: its place would be
        between what is encrypted already and what is not."""
        if self.waiting_bytes:
            raise ValueError("bytes of the wire cannot overtake what waits")
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

    def keep(self, data: bytes, sent: int) -> None:
        """Hold what the socket has not taken of some data that is not to be encrypted: all but the first `sent`
        bytes."""
        if sent:
            data = data[sent:]
        self._queue(data)

    def _queue(self, data: bytes) -> None:
        self._parts.append(data)
        self.queued_bytes += len(data)

    def flush(self) -> bool:
        """Send what waits as far as the socket takes it, but no more than its turn; whether nothing waits any more.

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
        """Make the next messages ready for the wire, as many as are offered at once."""
        taken, size = [], 0
        while self._parts and size < _AT_ONCE_BYTES:
            part = self._parts.popleft()
            taken.append(part)
            size += len(part)
        data = b"".join(taken)
        self._begun = memoryview(data if self._seal is None else self._seal(data))
        self._begun_bytes = size
