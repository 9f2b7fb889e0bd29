"""The assistant's clock: monotonic nanoseconds, and waiting for a moment instead of for a while."""

import asyncio
import time
from typing import Final, Protocol

# Event-loop timers are a millisecond coarse and may be late by as much: sleep until this much is left, then yield.
_LEAD_NS: Final = 2_000_000


class Clock(Protocol):
    """Time as the pipeline knows it; tests bring one of their own."""

    def perf_ns(self) -> int:
        """Now, on the process's monotonic clock."""
        ...

    def unix_ns(self) -> int:
        """Now, on the wall clock; only for stamping."""
        ...

    async def until(self, moment_ns: int) -> None:
        """Return at the moment, or at once when it has passed; timer precision."""
        ...

    async def until_exactly(self, moment_ns: int) -> None:
        """The same within a fraction of a millisecond, at the cost of yielding in short turns just before."""
        ...


class SystemClock:
    """The real thing, on the running event loop."""

    def perf_ns(self) -> int:
        """See `Clock`."""
        return time.perf_counter_ns()

    def unix_ns(self) -> int:
        """See `Clock`."""
        return time.time_ns()

    async def until(self, moment_ns: int) -> None:
        """See `Clock`."""
        remaining_ns = moment_ns - time.perf_counter_ns()
        if remaining_ns > 0:
            await asyncio.sleep(remaining_ns / 1e9)

    async def until_exactly(self, moment_ns: int) -> None:
        """See `Clock`. The last two milliseconds are spent yielding to the other sessions, never sleeping."""
        remaining_ns = moment_ns - time.perf_counter_ns() - _LEAD_NS
        if remaining_ns > 0:
            await asyncio.sleep(remaining_ns / 1e9)
        while time.perf_counter_ns() < moment_ns:  # noqa: ASYNC110 - the event waited for is time itself
            await asyncio.sleep(0)
