"""Converts the kernel's receive timestamps to the monotonic clock.

The callers convert theirs with separate code: a mistake in shared code would be on both sides of every comparison and
never be noticed.
"""

import socket
import struct
import time
from typing import Final

_SO_TIMESTAMPNS: Final = 35
_ATTEMPTS: Final = 9
_SECOND_NS: Final = 1_000_000_000


def ask_for_stamps(sock: socket.socket) -> None:
    """Make the kernel timestamp what it receives on a socket."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class StampClock:
    """The offset between the wall clock, which the kernel uses for timestamps, and the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns = 0
        self.measure()

    def measure(self) -> None:
        """Measure the offset again, from the tightest of a few readings."""
        pairs: list[tuple[int, int]] = []
        for _ in range(_ATTEMPTS):
            before = time.perf_counter_ns()
            wall = time.time_ns()
            after = time.perf_counter_ns()
            pairs.append((after - before, wall - (before + after) // 2))
        self._offset_ns = min(pairs)[1]

    def moment_perf_ns(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        """Return the timestamp in a read's ancillary data, or the current time if it has no timestamp."""
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack_from("qq", payload)
                return seconds * _SECOND_NS + nanoseconds - self._offset_ns
        return time.perf_counter_ns()
