"""The worker's clocks: one monotonic clock for every duration, and the measured offset to the wall clock.

The kernel stamps received data with the wall clock. The offset that carries such a stamp to the monotonic clock is
measured, and watched: a step of the wall clock would otherwise move every figure.
"""

import time
from collections.abc import Callable
from typing import Final

_TRIES: Final = 5
# Between two measures, a second apart, a wall clock that is being slewed moves by half a millisecond at the most.
STEP_NS: Final = 1_000_000


class Clocks:
    """`perf_ns()` is the monotonic clock; `offset_ns` is wall clock - monotonic clock as last measured.

    `steps` counts the measures that found the wall clock set, forwards or back, since the one before.
    """

    def __init__(
        self, perf_ns: Callable[[], int] = time.perf_counter_ns, unix_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.perf_ns = perf_ns
        self._unix_ns = unix_ns
        self.offset_ns = self.first_offset_ns = self._measured()[0]
        self.steps = 0

    def measure(self) -> int:
        """Measure the offset anew and return it. A measure that was interrupted in each try is dropped."""
        offset_ns, error_ns = self._measured()
        if error_ns > STEP_NS:
            return self.offset_ns
        if abs(offset_ns - self.offset_ns) > STEP_NS + error_ns:
            self.steps += 1
        self.offset_ns = offset_ns
        return offset_ns

    def _measured(self) -> tuple[int, int]:
        """The offset and how far it may be off, by the tightest of a few tries."""
        tightest: tuple[int, int] | None = None
        for _ in range(_TRIES):
            before = self.perf_ns()
            wall = self._unix_ns()
            after = self.perf_ns()
            if tightest is None or after - before < tightest[0]:
                tightest = (after - before, wall - (before + after) // 2)
        assert tightest is not None  # noqa: S101 - there is at least one try
        return tightest[1], tightest[0]

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
