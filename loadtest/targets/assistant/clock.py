"""The assistant's clock: monotonic nanoseconds, and waiting until an absolute time."""

import asyncio
import time
from typing import Final

from loadtest.timerfd import TimerFd

# Event-loop timers have a resolution of a millisecond and may be late by as much: sleep until this is left, then wait
# for the kernel's timer, or yield where there is none.
_LEAD_NS: Final = 2_000_000


class Clock:
    """The clock of the pipeline, on the running event loop; tests replace it."""

    def perf_ns(self) -> int:
        """Return the current time of the process's monotonic clock."""
        return time.perf_counter_ns()

    def unix_ns(self) -> int:
        """Return the current wall-clock time; only for timestamps."""
        return time.time_ns()

    async def until(self, moment_ns: int) -> None:
        """Wait until a time with timer precision; return at once if it has passed."""
        remaining_ns = moment_ns - time.perf_counter_ns()
        if remaining_ns > 0:
            await asyncio.sleep(remaining_ns / 1e9)

    async def until_exactly(self, moment_ns: int) -> None:
        """Wait until a time to within a fraction of a millisecond.

        In the last two milliseconds it waits for a timer of the kernel. Where none can be had, it yields to the other
        sessions again and again, which takes a whole processor for so long.
        """
        remaining_ns = moment_ns - time.perf_counter_ns() - _LEAD_NS
        if remaining_ns > 0:
            await asyncio.sleep(remaining_ns / 1e9)
        if time.perf_counter_ns() < moment_ns and (timer := TimerFd.open()) is not None:
            try:
                await _fired(timer, moment_ns)
            finally:
                timer.close()
        while time.perf_counter_ns() < moment_ns:  # noqa: ASYNC110 - it waits for the time itself
            await asyncio.sleep(0)


async def _fired(timer: TimerFd, moment_ns: int) -> None:
    if not timer.arm(moment_ns):
        return
    loop = asyncio.get_running_loop()
    fired: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        loop.remove_reader(timer.fd)
        if not fired.done():
            fired.set_result(None)

    loop.add_reader(timer.fd, note)
    try:
        await fired
    finally:
        loop.remove_reader(timer.fd)
