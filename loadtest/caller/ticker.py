"""A steady 1 ms tick on the gevent hub: the kernel's timerfd where there is one, else the hub's own timer.

gevent's timers round to a millisecond and drift with the loop; a timerfd on an absolute schedule does neither.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, Final

from loadtest.caller.pacing import TICK_NS

_CLOCK_MONOTONIC: Final = 1
_TFD_TIMER_ABSTIME: Final = 1
_READ: Final = 1


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


def _open_timerfd(first_perf_ns: int) -> int | None:
    """A timerfd that fires each tick from a moment of CLOCK_MONOTONIC on; None where the system has none."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "timerfd_create"):
        return None
    fd = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        return None
    spec = _Itimerspec(0, TICK_NS, first_perf_ns // 1_000_000_000, first_perf_ns % 1_000_000_000)
    if libc.timerfd_settime(fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) < 0:
        os.close(fd)
        return None
    return fd


class Ticker:
    """Calls `on_tick` about every millisecond from the hub. `kind` is "timerfd" or "timer": part of the evidence."""

    def __init__(self, loop: Any, on_tick: Callable[[], None], base_perf_ns: int) -> None:
        self._on_tick = on_tick
        self._fd = _open_timerfd(base_perf_ns + TICK_NS)
        self.kind = "timer" if self._fd is None else "timerfd"
        if self._fd is None:
            self._watcher = loop.timer(TICK_NS / 1e9, TICK_NS / 1e9)
            self._watcher.start(on_tick)
        else:
            self._watcher = loop.io(self._fd, _READ)
            self._watcher.start(self._drain)

    def _drain(self) -> None:
        if self._fd is None:
            return
        try:
            struct.unpack("q", os.read(self._fd, 8))
        except BlockingIOError:
            return
        self._on_tick()

    def close(self) -> None:
        """Stop ticking and give the descriptor back."""
        self._watcher.stop()
        self._watcher.close()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
