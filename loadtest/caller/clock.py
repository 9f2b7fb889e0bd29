"""The worker's clocks: one monotonic clock for every duration, and the measured offset to the wall clock.

The kernel stamps received data with the wall clock. The offset that carries such a stamp to the monotonic clock is
measured, and watched: a step of the wall clock would otherwise move every figure.
"""

import time
from collections.abc import Callable

_TRIES = 5


class Clocks:
    """`perf_ns()` is the monotonic clock; `offset_ns` is wall clock - monotonic clock as last measured."""

    def __init__(
        self, perf_ns: Callable[[], int] = time.perf_counter_ns, unix_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.perf_ns = perf_ns
        self._unix_ns = unix_ns
        self.offset_ns = 0
        self.offset_ns = self.first_offset_ns = self.measure()

    def measure(self) -> int:
        """Measure the offset anew (the tightest of a few tries) and return it."""
        tightest: tuple[int, int] | None = None
        for _ in range(_TRIES):
            before = self.perf_ns()
            wall = self._unix_ns()
            after = self.perf_ns()
            if tightest is None or after - before < tightest[0]:
                tightest = (after - before, wall - (before + after) // 2)
        assert tightest is not None  # noqa: S101 - there is at least one try
        self.offset_ns = tightest[1]
        return self.offset_ns

    @property
    def drift_ns(self) -> int:
        """How far the wall clock has moved against the monotonic clock since the start."""
        return self.offset_ns - self.first_offset_ns

    def to_perf_ns(self, unix_ns: int) -> int:
        """A wall-clock stamp as a moment of the monotonic clock."""
        return unix_ns - self.offset_ns

    def to_unix_ns(self, perf_ns: int) -> int:
        """A moment of the monotonic clock as wall-clock time."""
        return perf_ns + self.offset_ns
