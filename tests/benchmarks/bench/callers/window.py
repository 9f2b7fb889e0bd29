"""Common parts of every sender in Python and the one in C: command line, measuring window, and the output at the
end."""

import argparse
import json
import os
import resource
import signal
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# How long callers may take to be connected before a sender gives up.
CONNECT_S: Final = 20.0


def arguments() -> argparse.Namespace:
    """The command line of this process: that of caller.c, and what only our own callers know."""
    words = argparse.ArgumentParser()
    for name in ("port", "callers", "warm_up_ms", "window_ms"):
        words.add_argument(name, type=int)
    for name in ("speech", "lateness", "turns"):
        words.add_argument(name, type=Path)
    for name in ("think_ms", "stagger_ms", "reply_ms"):
        words.add_argument(name, type=int)
    words.add_argument("--ca-file")
    words.add_argument("--collector")
    words.add_argument("--hold", action="store_true", help="hold the interpreter up now and then")
    given = words.parse_args()
    given.url = f"wss://localhost:{given.port}/" if given.ca_file else f"ws://127.0.0.1:{given.port}/"
    return given


def cpu_ns() -> int:
    """User and system time of this process."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return round((use.ru_utime + use.ru_stime) * 1e9)


class Window:
    """The measured part of a sender's life. `lateness_ns` is appended to by the sender, in the order of sending.

    It opens and closes by an alarm of the system: a sender whose event loop starves is measured all the same.
    """

    def __init__(
        self, given: argparse.Namespace, more: Callable[[int], dict[str, Any]] = lambda began_perf_ns: {}
    ) -> None:
        """`more(began_perf_ns)`, asked once the window is over, says what else there is to know of it."""
        self.lateness_ns = array("q")
        self._given, self._more = given, more
        self._opened: tuple[int, int, int] | None = None

    def connecting(self, connected: Callable[[], int]) -> None:
        """Begin connecting callers. A process that is too busy for that exits and reports how many it connected."""

        def give_up(number: int, place: object) -> None:
            del number, place
            came, wanted = connected(), self._given.callers
            sys.stderr.write(f"{came:,} of {wanted:,} callers were connected after {CONNECT_S:g} s\n")
            sys.stderr.flush()
            os._exit(1)

        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, CONNECT_S)

    def begin(self) -> None:
        """Warm up, measure, report the cost, and exit."""
        signal.signal(signal.SIGALRM, self._next)
        signal.setitimer(signal.ITIMER_REAL, self._given.warm_up_ms / 1e3)

    def _next(self, number: int, place: object) -> None:
        del number, place
        now = (time.perf_counter_ns(), cpu_ns(), len(self.lateness_ns))
        if self._opened is None:
            self._opened = now
            signal.setitimer(signal.ITIMER_REAL, self._given.window_ms / 1e3)
        else:
            self._say(self._opened, now)
            os._exit(0)  # nothing is owed to anybody, and a starving loop would not come to its end

    def _say(self, opened: tuple[int, int, int], closed: tuple[int, int, int]) -> None:
        self._given.lateness.write_bytes(self.lateness_ns[opened[2] : closed[2]].tobytes())
        figures: dict[str, Any] = {
            "cpu_ns": closed[1] - opened[1],
            "began_perf_ns": opened[0],
            "ended_perf_ns": closed[0],
            "sent": closed[2] - opened[2],
            **self._more(opened[0]),
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()
