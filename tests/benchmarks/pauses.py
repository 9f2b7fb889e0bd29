"""How long a machine lets a process wait, and how long an event loop keeps itself busy: what a slow answer is made of.

`python -m tests.benchmarks.pauses` sleeps again and again until its input ends, and prints how much later than asked it
woke, as JSON: a process that does nothing sees the same pauses of the machine as the one that is measured beside it.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

_SLEEP_S: Final = 0.002
# Put before a sidecar's own modules. Of each process with an event loop it writes, at its end, how much CPU time the
# loop's thread took for one iteration, and how long that iteration lasted without its wait for something to happen.
_OF_LOOPS: Final = '''
import atexit, asyncio.base_events as loops, json, os, pathlib, time
took = []
class Selector:
    """Notes when the wait of an iteration ended."""
    def __init__(self, inner): self.inner = inner
    def select(self, timeout=None):
        found = self.inner.select(timeout)
        Selector.woke = time.thread_time(), time.perf_counter()
        return found
    def __getattr__(self, name): return getattr(self.inner, name)
once = loops.BaseEventLoop._run_once
def measured(self):
    if not isinstance(self._selector, Selector): self._selector = Selector(self._selector)
    once(self)
    cpu, wall = Selector.woke
    took.append((time.thread_time() - cpu, time.perf_counter() - wall))
loops.BaseEventLoop._run_once = measured
def write():
    if took: pathlib.Path(__file__).with_name(f"loop-{os.getpid()}.json").write_text(json.dumps(took))
atexit.register(write)
'''


def _summary(waits_s: list[float]) -> dict[str, float]:
    ordered = sorted(waits_s) or [0.0]
    return {"p99_ms": round(ordered[len(ordered) * 99 // 100] * 1e3, 1), "worst_ms": round(ordered[-1] * 1e3, 1)}


@contextlib.contextmanager
def pauses_of_the_machine(found: dict[str, Any]) -> Generator[None]:
    """Add, in the end, how late an idle process woke meanwhile: `machine_pauses`."""
    command = [sys.executable, "-m", "tests.benchmarks.pauses"]
    idle = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        out, _ = idle.communicate()
        found["machine_pauses"] = json.loads(out)


def instrument_loops(folder: Path) -> Path:
    """Make a folder that `running_sidecar(before=...)` takes, for `iterations_of`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_OF_LOOPS)
    return folder


def iterations_of(folder: Path, pid: int) -> dict[str, Any]:
    """How long iterations of the event loop of an ended process took: of CPU time, and in all."""
    took: list[tuple[float, float]] = json.loads((folder / f"loop-{pid}.json").read_text())
    return {"cpu": _summary([cpu for cpu, _ in took]), "wall": _summary([wall for _, wall in took])}


def main() -> None:
    """Sleep until the input ends; print the pauses."""
    late_s: list[float] = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        began_s = time.perf_counter()
        time.sleep(_SLEEP_S)
        late_s.append(time.perf_counter() - began_s - _SLEEP_S)
    os.write(1, json.dumps(_summary(late_s)).encode())


if __name__ == "__main__":
    main()
