"""Sends on a non-blocking socket and records the interval in which the kernel accepted the data."""

import socket
import time
from collections import deque
from typing import Final

_SINGLE_BYTES: Final = 16


class SendBuffer:
    """The outgoing data of one connection, in order. `waits` while the socket does not accept everything."""

    def __init__(self, sock: socket.socket, bytewise: bool) -> None:
        self._sock = sock
        self._bytewise = bytewise
        self._rest: deque[bytes] = deque()
        self.closed = False

    @property
    def waits(self) -> bool:
        """Whether the socket has not accepted everything yet."""
        return bool(self._rest)

    def send(self, data: bytes) -> tuple[int, int | None]:
        """Send `data`; return the times just before and just after the kernel accepted the last byte.

        The second one is None if the kernel did not accept everything now.
        """
        if self._bytewise and not self._rest and len(data) > 2 * _SINGLE_BYTES:
            middle = len(data) - _SINGLE_BYTES
            for at in range(_SINGLE_BYTES):
                self._put(data[at : at + 1])
            self._put(data[_SINGLE_BYTES:middle])
            for at in range(middle, len(data) - 1):
                self._put(data[at : at + 1])
            data = data[-1:]
        before = time.perf_counter_ns()
        taken = self._put(data)
        return before, time.perf_counter_ns() if taken else None

    def _put(self, data: bytes) -> bool:
        if self.closed:
            return False
        if self._rest:
            self._rest.append(data)
            return False
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.closed = True  # the reader notices, and closes
            return False
        if sent < len(data):
            self._rest.append(data[sent:])
        return sent == len(data)

    def flush(self) -> bool:
        """Send what is waiting; return whether everything has been sent."""
        while self._rest:
            data = self._rest.popleft()
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.closed = True
                self._rest.clear()
                return True
            if sent < len(data):
                self._rest.appendleft(data[sent:])
                return False
        return True
