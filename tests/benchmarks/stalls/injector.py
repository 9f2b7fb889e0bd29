"""What holds the generator up from outside: a process that stops and continues it, and one that keeps a core busy.

Only the standard library. `injector.py stop --pid N --log FILE ...` runs until SIGTERM, and leaves nothing stopped.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import threading
import time


def stop_now_and_then(pid: int, log: str, shortest_ms: float, longest_ms: float, gap_s: float, seed: int) -> None:
    """Stop a process for a random time at random moments, and log each time."""
    draw, ending = random.Random(seed), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    with open(log, "a", encoding="utf-8") as file, contextlib.suppress(ProcessLookupError):  # noqa: PTH123
        while not ending.wait(draw.uniform(0.2, 1.8) * gap_s):
            seconds = draw.uniform(shortest_ms, longest_ms) / 1000
            begin_ns = time.monotonic_ns()
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)
            file.write(json.dumps({"kind": "stopped", "begin_ns": begin_ns, "end_ns": time.monotonic_ns()}) + "\n")
            file.flush()


def keep_busy(core: int) -> None:
    """Compute on one core and nothing else."""
    os.sched_setaffinity(0, {core})
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("stop", "hog"))
    parser.add_argument("--pid", type=int, default=0)
    parser.add_argument("--log", default="")
    parser.add_argument("--lengths-ms", type=float, nargs=2, default=(5.0, 200.0))
    parser.add_argument("--gap", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--core", type=int, default=0)
    given = parser.parse_args()
    if given.what == "hog":
        keep_busy(given.core)
    else:
        stop_now_and_then(given.pid, given.log, *given.lengths_ms, given.gap, given.seed)


if __name__ == "__main__":
    main()
