"""A steady 1 ms tick on the gevent hub: the kernel's timerfd if available, else the hub's own timer.

gevent's timers round to a millisecond and drift with the loop; a timerfd on an absolute schedule does neither.
"""

from collections.abc import Callable
from typing import Any, Final

from loadtest.timerfd import TimerFd

TICK_NS: Final = 1_000_000
_READ: Final = 1
_FIRST: Final = 2  # the highest priority of the hub's event loop


def _open_timerfd(first_perf_ns: int) -> TimerFd | None:
    """Open a timer that fires every tick from `first_perf_ns` on; None if the system has no timerfd."""
    timer = TimerFd.open()
    if timer is not None and not timer.arm(first_perf_ns, TICK_NS):
        timer.close()
        return None
    return timer


class Ticker:
    """Calls `on_tick` about every millisecond from the hub.

    `kind` is "timerfd" or "timer" and is recorded as evidence. `spacing_ticks` is how many ticks it lets pass from one
    call to the next; a timerfd calls at multiples of that from `base_perf_ns` on.
    """

    def __init__(self, loop: Any, on_tick: Callable[[], None], base_perf_ns: int) -> None:
        self._on_tick = on_tick
        self._base_perf_ns = base_perf_ns
        self.spacing_ticks = 1
        self._timer = _open_timerfd(base_perf_ns + TICK_NS)
        self.kind = "timer" if self._timer is None else "timerfd"
        if self._timer is None:
            self._watcher = loop.timer(TICK_NS / 1e9, TICK_NS / 1e9)
            self._watcher.start(on_tick)
        else:
            # Due frames take precedence over anything else that is ready at the same time.
            self._watcher = loop.io(self._timer.fd, _READ, priority=_FIRST)
            self._watcher.start(self._drain)

    def next_perf_ns(self, now_perf_ns: int) -> int:
        """The moment of the next call, if one is made now."""
        spacing_ns = self.spacing_ticks * TICK_NS
        return now_perf_ns + spacing_ns - (now_perf_ns - self._base_perf_ns) % spacing_ns

    def space(self, ticks: int, now_perf_ns: int) -> None:
        """Call only every so many ticks, after this call. The hub's own timer goes on with every tick."""
        if self._timer is None or ticks == self.spacing_ticks:
            return
        before, self.spacing_ticks = self.spacing_ticks, ticks
        if not self._timer.arm(self.next_perf_ns(now_perf_ns), ticks * TICK_NS):
            self.spacing_ticks = before

    def _drain(self) -> None:
        if self._timer is not None and self._timer.fired():
            self._on_tick()

    def close(self) -> None:
        """Stop ticking and close the file descriptor."""
        self._watcher.stop()
        self._watcher.close()
        if self._timer is not None:
            self._timer.close()
            self._timer = None
