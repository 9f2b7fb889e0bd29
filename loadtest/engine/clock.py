"""The worker's clocks: one monotonic clock for every duration, and the measured offset to the wall clock.

The kernel timestamps received data with the wall clock. The offset that converts such a timestamp to the monotonic
clock is measured once a second: an undetected step of the wall clock would shift every metric.
"""

import time
from collections.abc import Callable
from typing import Final

_ATTEMPTS: Final = 5
# Slewing moves a wall clock by at most half a millisecond between two measurements, which are a second apart.
STEP_NS: Final = 1_000_000


class Clocks:
    """The monotonic clock (`perf_ns()`) and its offset from the wall clock.

    `offset_ns` is wall clock - monotonic clock as last measured, and `error_ns` how far a converted stamp may be off:
    by how much that measurement may be, and by how much the offset had moved since the one before. `steps` counts the
    measurements, and stamps, that showed that the wall clock had been set, forward or back.
    """

    def __init__(
        self, perf_ns: Callable[[], int] = time.perf_counter_ns, unix_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.perf_ns = perf_ns
        self._unix_ns = unix_ns
        self.offset_ns, self.error_ns = self._measured()
        self.first_offset_ns = self.offset_ns
        self.steps = 0

    def measure(self) -> int:
        """Measure the offset again and return it. A measurement whose every attempt was interrupted is dropped."""
        offset_ns, error_ns = self._measured()
        if error_ns > STEP_NS:
            return self.offset_ns
        if abs(offset_ns - self.offset_ns) > STEP_NS + error_ns:
            self.steps += 1
        # A stamp of any moment between two measurements may be converted with either.
        self.error_ns = error_ns + abs(offset_ns - self.offset_ns)
        self.offset_ns = offset_ns
        return offset_ns

    def _measured(self) -> tuple[int, int]:
        """Return the offset and its maximum error, both in ns, from the tightest of a few attempts."""
        tightest: tuple[int, int] | None = None
        for _ in range(_ATTEMPTS):
            before = self.perf_ns()
            wall = self._unix_ns()
            after = self.perf_ns()
            if tightest is None or after - before < tightest[0]:
                tightest = (after - before, wall - (before + after) // 2)
        assert tightest is not None  # noqa: S101 - there is at least one attempt
        return tightest[1], tightest[0]

    @property
    def drift_ns(self) -> int:
        """The wall clock's offset against the monotonic clock since the start."""
        return self.offset_ns - self.first_offset_ns

    def to_perf_ns(self, unix_ns: int) -> int:
        """Convert a wall-clock timestamp to the monotonic clock."""
        return unix_ns - self.offset_ns

    def received_perf_ns(self, unix_ns: int, seen_perf_ns: int) -> int:
        """Convert the kernel's timestamp of what was seen at a moment: what came after that shows that the wall clock
        has been set."""
        stamp_perf_ns = unix_ns - self.offset_ns
        if stamp_perf_ns <= seen_perf_ns:
            return stamp_perf_ns
        if stamp_perf_ns - seen_perf_ns > STEP_NS:
            self.steps += 1
        return seen_perf_ns

    def to_unix_ns(self, perf_ns: int) -> int:
        """Convert a monotonic timestamp to wall-clock time."""
        return perf_ns + self.offset_ns
