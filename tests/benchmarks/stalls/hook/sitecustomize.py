"""Put before the modules of a process by PYTHONPATH; it acts in Locust's process alone, the generator under test.

Starts two threads that know nothing of the generator. A probe sleeps a millisecond again and again, and logs each time
that it woke late, and each time that the main thread waited for a processor meanwhile, as the kernel accounts it. The
other one, if asked for, holds the interpreter now and then. Both write lines of JSON to the folder STALLS_FOLDER,
stamped by CLOCK_MONOTONIC. Only the standard library, and nothing of it that gevent replaces.
"""

import _thread
import ctypes
import json
import os
import random
import sys
import time
from pathlib import Path

_FOLDER = os.environ.get("STALLS_FOLDER")
_sleep, _now_ns = time.sleep, time.monotonic_ns  # before gevent replaces them
PROBE_S = 0.001
LATE_NS = 500_000
WRITE_EVERY_NS = 500_000_000


def _take_priority_of_the_main_thread() -> None:
    """A probe that others overtake would log pauses that the generator does not have."""
    main, own = os.getpid(), _thread.get_native_id()
    policy = os.sched_getscheduler(main) & ~os.SCHED_RESET_ON_FORK
    if policy != os.sched_getscheduler(own) & ~os.SCHED_RESET_ON_FORK:
        os.sched_setscheduler(own, policy, os.sched_getparam(main))
    if policy == os.SCHED_OTHER:
        os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, main))


def _waited_ns(account: int) -> int:
    """How long a thread has been ready to run, and did not."""
    return int(os.pread(account, 99, 0).split()[1])


def _write(file: int, rows: list) -> None:
    os.write(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
    rows.clear()


def _probe(file: int) -> None:
    rows: list = []
    due = _now_ns() + WRITE_EVERY_NS
    account = os.open("/proc/self/schedstat", os.O_RDONLY)  # of the main thread
    waited_ns, free_ns = _waited_ns(account), _now_ns()
    while True:
        asked = _now_ns()
        _sleep(PROBE_S)
        woke = _now_ns()
        waits_ns = _waited_ns(account) - waited_ns
        if waits_ns > LATE_NS:
            # It ended between these two looks and may have begun before them.
            rows.append({"kind": "probe", "begin_ns": min(free_ns, woke - waits_ns), "end_ns": woke})
        waited_ns, free_ns = waited_ns + waits_ns, woke
        if woke - asked - PROBE_S * 1e9 > LATE_NS:
            rows.append({"kind": "probe", "begin_ns": asked + int(PROBE_S * 1e9), "end_ns": woke})
        if woke >= due:
            due = woke + WRITE_EVERY_NS
            try:
                _take_priority_of_the_main_thread()
            except OSError as error:
                rows.append({"kind": "note", "text": f"the probe's priority: {error}"})
            _write(file, rows)


def _hold(file: int, shortest_ms: float, longest_ms: float, gap_s: float, seed: int) -> None:
    draw = random.Random(seed)
    usleep = ctypes.PyDLL(None).usleep  # a PyDLL keeps the interpreter while it is in the call
    while True:
        _sleep(draw.uniform(0.2, 1.8) * gap_s)
        if not (Path(_FOLDER) / "inject").exists():
            continue
        microseconds = int(draw.uniform(shortest_ms, longest_ms) * 1000)
        begin = _now_ns()
        usleep(microseconds)
        end = _now_ns()
        _write(file, [{"kind": "interpreter", "begin_ns": begin, "end_ns": end}])


def _start() -> None:
    if not _FOLDER or "locust" not in sys.orig_argv:
        return
    (Path(_FOLDER) / "generator.pid").write_text(str(os.getpid()))
    log = os.open(Path(_FOLDER) / "generator.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    _thread.start_new_thread(_probe, (log,))
    hold = os.environ.get("STALLS_HOLD")
    if hold:
        shortest_ms, longest_ms, gap_s, seed = (float(word) for word in hold.split(","))
        _thread.start_new_thread(_hold, (log, shortest_ms, longest_ms, gap_s, int(seed)))


_start()
