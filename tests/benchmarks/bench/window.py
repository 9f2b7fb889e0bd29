"""What every sender written in Python shares: its orders, its window, and what it says at the end."""

import argparse
import json
import os
import resource
import signal
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# How long callers may take to be connected before a sender gives up.
CONNECT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Orders:
    """What a sender is told on its command line."""

    port: int
    callers: int
    warm_up_s: float
    window_s: float
    record: Path
    ca_file: str | None

    @classmethod
    def of(cls, given: argparse.Namespace) -> "Orders":
        """From what `parser` parsed."""
        times_s = given.warm_up_ms / 1e3, given.window_ms / 1e3
        return cls(given.port, given.callers, *times_s, given.record, given.ca_file)

    @property
    def url(self) -> str:
        """Where to call."""
        return f"wss://localhost:{self.port}/" if self.ca_file else f"ws://127.0.0.1:{self.port}/"


def parser() -> argparse.ArgumentParser:
    """What every sender is told."""
    words = argparse.ArgumentParser()
    words.add_argument("port", type=int)
    words.add_argument("callers", type=int)
    words.add_argument("warm_up_ms", type=int)
    words.add_argument("window_ms", type=int)
    words.add_argument("record", type=Path)
    words.add_argument("--ca-file")
    return words


def orders() -> Orders:
    """The command line of this process."""
    return Orders.of(parser().parse_args())


def cpu_ns() -> int:
    """User and system time of this process."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return round((use.ru_utime + use.ru_stime) * 1e9)


class Window:
    """The measured part of a sender's life. `lateness_ns` is appended to by whoever sends, in the order of sending.

    It opens and closes by an alarm of the system: a sender whose event loop starves is measured all the same.
    """

    def __init__(
        self,
        given: Orders,
        received: Callable[[], int],
        more: Callable[[int], dict[str, Any]] = lambda began_perf_ns: {},
    ) -> None:
        """`received()` is how many messages with audio were decoded so far; `more(began_perf_ns)`, asked once the
        window is over, what else is to be said of it."""
        self.lateness_ns = array("q")
        self._given, self._received, self._more = given, received, more
        self._opened: tuple[int, int, int, int] | None = None
        self._closed: tuple[int, int, int, int] | None = None

    def connecting(self, connected: Callable[[], int]) -> None:
        """From now on callers are being connected. A process too busy for that ends, and says how far it came."""

        def give_up(number: int, place: object) -> None:
            del number, place
            came, wanted = connected(), self._given.callers
            sys.stderr.write(f"{came:,} of {wanted:,} callers were connected after {CONNECT_S:g} s\n")
            sys.stderr.flush()
            os._exit(1)

        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, CONNECT_S)

    def begin(self) -> None:
        """From now on warm up, measure, say what it cost, and end the process."""
        signal.signal(signal.SIGALRM, self._next)
        signal.setitimer(signal.ITIMER_REAL, self._given.warm_up_s)

    def _next(self, number: int, place: object) -> None:
        del number, place
        now = (time.perf_counter_ns(), cpu_ns(), len(self.lateness_ns), self._received())
        if self._opened is None:
            self._opened = now
            signal.setitimer(signal.ITIMER_REAL, self._given.window_s)
        else:
            self._say(self._opened, now)
            os._exit(0)  # nothing is owed to anybody, and a starving loop would not come to its end

    def _say(self, opened: tuple[int, int, int, int], closed: tuple[int, int, int, int]) -> None:
        perf_ns, cost_ns, sent, received = (after - before for before, after in zip(opened, closed, strict=True))
        self._given.record.write_bytes(self.lateness_ns[opened[2] : closed[2]].tobytes())
        figures: dict[str, Any] = {
            "cpu_ns": cost_ns,
            "began_perf_ns": opened[0],
            "ended_perf_ns": opened[0] + perf_ns,
            "sent": sent,
            "sent_ever": closed[2],
            "received": received,
            **self._more(opened[0]),
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()
