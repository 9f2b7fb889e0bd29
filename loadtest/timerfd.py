"""The kernel's timer as a file descriptor, on absolute moments of the monotonic clock: neither rounds nor drifts."""

import ctypes
import os
import sys
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_TFD_TIMER_ABSTIME: Final = 1
_SECOND_NS: Final = 1_000_000_000


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class TimerFd:
    """A timer to wait for with others. `open` gives None where the system has none.

    Python has this of its own from 3.13 on; before, it is asked of the C library.
    """

    def __init__(self, libc: ctypes.CDLL | None, fd: int) -> None:
        self._libc = libc
        self.fd = fd

    @classmethod
    def open(cls) -> "TimerFd | None":
        """A timer that is not armed; None where the system has none."""
        if not sys.platform.startswith("linux"):
            return None
        if sys.version_info >= (3, 13):
            try:
                return cls(None, os.timerfd_create(_CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC))
            except OSError:
                return None
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "timerfd_create"):
            return None
        fd = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        return None if fd < 0 else cls(libc, fd)

    def arm(self, first_perf_ns: int, interval_ns: int = 0) -> bool:
        """Fire at a moment, which may have passed, and then every interval if there is one. Whether it could be set."""
        first = max(1, first_perf_ns)  # zero would disarm it
        if sys.version_info >= (3, 13):
            os.timerfd_settime_ns(self.fd, flags=os.TFD_TIMER_ABSTIME, initial=first, interval=interval_ns)
            return True
        if self._libc is None:
            return False
        spec = _Itimerspec(interval_ns // _SECOND_NS, interval_ns % _SECOND_NS, first // _SECOND_NS, first % _SECOND_NS)
        return self._libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) >= 0

    def fired(self) -> bool:
        """Return whether it has fired since the last look."""
        try:
            return len(os.read(self.fd, 8)) == 8
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)
