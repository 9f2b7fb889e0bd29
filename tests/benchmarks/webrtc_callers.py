"""CPU cost of a caller over WebRTC: `python -m tests.benchmarks.webrtc_callers [CALLERS] [TURNS]`.

Callers of one engine talk to the aiortc server of the tests. Printed is the CPU time of the engine and of its WebRTC
process per second of a call, how many callers fit into one core at 60 %, and how late frames left this machine. CPU
time is what counts: how long it takes depends on what else the machine does.
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import gevent
import psutil

from loadtest.engine.engine import Engine
from loadtest.swarm.priority import ask_for_priority
from tests.integration.calling import Callers
from tests.integration.peers import processes

ROOT = Path(__file__).parents[2]
USABLE_SHARE = 0.6
READY_S = 60.0
MS = 1_000_000


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def measure(url: str, callers: int, turns: int) -> dict[str, Any]:
    """Make the calls; the CPU time of engine and process between the first connected call and the first that ends."""
    figures: dict[str, Any] = {}

    def watch(engine: Engine) -> None:
        while sum(call.connect_ns is not None for call in engine._calls) < callers:
            gevent.sleep(0.05)
        pid = engine._webrtc.pid
        assert pid is not None
        engine.health.take_lateness_worst_ns()
        began = time.perf_counter(), time.process_time(), cpu_s(pid)
        while engine.calls_in_flight == callers:
            figures["late_ms"] = engine.health.take_lateness_worst_ns() / MS
            figures["worst_ms"] = max(figures.get("worst_ms", 0.0), figures["late_ms"])
            ended = time.perf_counter(), time.process_time(), cpu_s(pid)
            figures["spans_s"] = tuple(b - a for a, b in zip(began, ended, strict=True))
            gevent.sleep(0.1)

    run = Callers(
        url,
        callers,
        turns_per_call=turns,
        protocol="smallwebrtc",
        endpointing_ms=None,
        ready_s=READY_S,
        meanwhile=watch,
    )
    calls = run.call()
    figures["outcomes"] = Counter(
        f"{turn.outcome} {turn.outcome_reason or ''}".strip() for call_turns in calls for turn in call_turns
    )
    return figures


def main() -> None:
    """Print the costs."""
    callers, turns = (int(text) for text in [*sys.argv[1:], "10", "4"][:2])
    ask_for_priority()  # as callers under Locust do
    port = processes.free_port()
    command = [sys.executable, "-m", "tests.integration.servers.webrtc_server", str(port)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with processes.running(command, port, log, environment={"PYTHONPATH": str(ROOT)}):
            figures = measure(f"http://127.0.0.1:{port}/ok/api/offer", callers, turns)
    seconds, engine_s, media_s = figures["spans_s"]
    calls_s = seconds * callers
    print(f"{callers} callers for {seconds:.1f} s; turns: {dict(figures['outcomes'])}")
    print(f"engine: {engine_s / calls_s * 1000:.2f} ms of CPU time per second of a call")
    print(f"WebRTC process: {media_s / calls_s * 1000:.2f} ms")
    fit = USABLE_SHARE / (media_s / calls_s)
    print(f"{fit:.0f} callers fit into one core of the WebRTC process at {USABLE_SHARE:.0%}")
    print(f"the latest frame left {figures['worst_ms']:.1f} ms after it was due")


if __name__ == "__main__":
    main()
