"""What evaluating a rollout costs the turns that a sidecar takes meanwhile.

One sidecar evaluates a rollout over a store of so many turns again and again, while senders send as fast as they are
answered. Windows in which the process that evaluates runs alternate with windows in which it is stopped, so that both
have the same machine and the same store; printed is the ratio of each pair of neighbors.

python -m tests.benchmarks.rollout_ingest --turns 40000 --pairs 6
"""

import argparse
import json
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import psutil

from tests.benchmarks.ingest import Sent, cpu_s, mixed_request, send
from tests.fixtures_rollouts import PLAN_FILE, turns_of
from tests.fixtures_sidecar import SidecarProcess, running_sidecar
from tests.fixtures_turns import fill_store
from tests.integration.waiting import wait_until

SENDERS: Final = 4
WINDOW_S: Final = 4.0


@dataclass(frozen=True)
class Window:
    """What was acknowledged in a window, how often was looked, and the CPU time of the process that evaluates."""

    spans_per_s: float
    looks: int
    cpu_s: float


def evaluating_process(sidecar: SidecarProcess) -> psutil.Process:
    """The process of the sidecar that evaluates."""

    def found() -> psutil.Process | None:
        for each in psutil.Process(sidecar.process.pid).children():
            with suppress(psutil.Error):
                if "telemetry.sidecar.rollouts.process" in each.cmdline():
                    return each
        return None

    process = wait_until(found)
    assert process is not None
    return process


def looks(sidecar: SidecarProcess) -> int:
    """How many looks were taken so far; 0 before the first."""
    answer = httpx.get(f"{sidecar.http}/v1/rollouts/streaming/verdict", timeout=60)
    return int(answer.json()["looks"]) if answer.status_code == 200 else 0


def window(sidecar: SidecarProcess, process: psutil.Process, sent: Sequence[Sent], lasts_s: float) -> Window:
    """Measure a window."""
    spans, looked, used_s = sum(each.spans for each in sent), looks(sidecar), cpu_s(process)
    began_s = time.monotonic()
    time.sleep(lasts_s)
    lasted_s = time.monotonic() - began_s
    acknowledged = sum(each.spans for each in sent) - spans
    return Window(acknowledged / lasted_s, looks(sidecar) - looked, cpu_s(process) - used_s)


def measure(folder: Path, turns: int, pairs: int, window_s: float) -> dict[str, object]:
    """The figures of one run."""
    store, plan = folder / "store", folder / "rollout.toml"
    fill_store(store, turns_of("stable", 3 * turns // 4, 10_000_000), turns_of("streaming", turns // 4, 0))
    plan.write_text(PLAN_FILE)
    body = mixed_request()
    with running_sidecar(store, "--rollout", str(plan), "--rollout-every", "1") as sidecar:
        process = evaluating_process(sidecar)
        wait_until(lambda: looks(sidecar) > 0)
        host, port = sidecar.http.removeprefix("http://").rsplit(":", 1)
        sent = [Sent() for _ in range(SENDERS)]
        until_s = time.monotonic() + (2 * pairs + 1) * window_s * 1.2 + 10
        senders = [threading.Thread(target=send, args=((host, int(port)), body, each, 0.0, until_s)) for each in sent]
        for sender in senders:
            sender.start()
        window(sidecar, process, sent, window_s)  # warms it up
        with_, without = [], []
        for _ in range(pairs):
            with_.append(window(sidecar, process, sent, window_s))
            process.send_signal(signal.SIGSTOP)
            without.append(window(sidecar, process, sent, window_s))
            process.send_signal(signal.SIGCONT)
        for sender in senders:
            sender.join()
    looked = sum(each.looks for each in with_)
    ratios = [one.spans_per_s / other.spans_per_s for one, other in zip(with_, without, strict=True)]
    return {
        "turns of both cohorts": turns,
        "spans acknowledged a second, evaluated every second": round(statistics.median(e.spans_per_s for e in with_)),
        "spans acknowledged a second, evaluation stopped": round(statistics.median(e.spans_per_s for e in without)),
        "ratio, median of pairs": round(statistics.median(ratios), 3),
        "ratio, pairs": [round(each, 3) for each in ratios],
        "evaluations": looked,
        "CPU of an evaluation, ms": round(1000 * sum(each.cpu_s for each in with_) / max(1, looked)),
        "part of a core by one evaluation a minute": round(sum(e.cpu_s for e in with_) / max(1, looked) / 60, 4),
        "processors": os.cpu_count(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40_000)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--window-s", type=float, default=WINDOW_S)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_FOLDER"), ignore_cleanup_errors=True) as folder:
        print(json.dumps(measure(Path(folder), options.turns, options.pairs, options.window_s), indent=2))


if __name__ == "__main__":
    main()
