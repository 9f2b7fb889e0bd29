"""The kernel's receive stamps as moments of the monotonic clock.

The callers convert their stamps with code of their own: were it shared, a mistake in it would be on both sides of every
comparison, and never be seen.
"""

import socket
import struct
import time
from typing import Final

_SO_TIMESTAMPNS: Final = 35
_TRIES: Final = 9
_SECOND_NS: Final = 1_000_000_000


def ask_for_stamps(sock: socket.socket) -> None:
    """Have the kernel stamp what it receives on a socket."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class StampClock:
    """Knows how far the wall clock, which the kernel stamps with, is from the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns = 0
        self.measure()

    def measure(self) -> None:
        """Measure anew: the tightest pair of readings of a few."""
        pairs: list[tuple[int, int]] = []
        for _ in range(_TRIES):
            before = time.perf_counter_ns()
            wall = time.time_ns()
            after = time.perf_counter_ns()
            pairs.append((after - before, wall - (before + after) // 2))
        self._offset_ns = min(pairs)[1]

    def moment_perf_ns(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        """The moment that a read's ancillary data names; now, where it names none."""
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack_from("qq", payload)
                return seconds * _SECOND_NS + nanoseconds - self._offset_ns
        return time.perf_counter_ns()
