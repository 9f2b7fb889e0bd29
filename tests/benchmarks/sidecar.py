"""What a sidecar takes in while pages are asked for and spans come late, beside the same of another checkout.

`python -m tests.benchmarks.sidecar [--turns 1M] [--seconds 30] [--spans-per-s 0] [--baseline-worktree DIR]`

A real sidecar on a store of so many turns gets the mix of our callers (1 turn, 3 stages, a call for every 3 turns; 64
spans a request) from 8 connections, at a rate or as fast as it answers. Beside them a service reports turns whose
synthesis comes 12 s late, so that stored turns change; somebody asks for every page of the newest run and of the
largest one, again and again with a second between two rounds; and twice a second a single turn is sent, and asked for
until an answer over HTTP has it. With `--baseline-worktree` the same happens in turn to the sidecar of that checkout,
in its own environment and on a store that its own code has filled, as often as `--rounds` says; the last column is the
ratio of the middle figures. Only the process boundary is used: nothing here knows what a store is made of.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from tests.benchmarks.bench.store.exports import make_exports, one_turn
from tests.benchmarks.ingest import Sent, send
from tests.fixtures_sidecar import ROOT, SidecarProcess, running_sidecar
from tests.goldens.exports import late_service_turns

CONNECTIONS: Final = 8
LATE_S: Final = 12
LATE_TURNS_PER_S: Final = 10
_WARM_UP_S: Final = LATE_S + 4.0
_BETWEEN_ROUNDS_S: Final = 1.0
_FRESH_EVERY_S: Final = 0.5
_FRESH_WITHIN_S: Final = 60.0
_PAGES: Final = ("page", "turns_page", "cohorts_page", "objectives_page", "cache_page", "instrument_page")
_HEADERS: Final = {"content-type": "application/x-protobuf"}
# The runs that are sent and that are stored before, as their makers name them.
_RUNS: Final = ("sent", "large")


@dataclass
class Load:
    """What happens to one sidecar, and what was seen of it."""

    sidecar: SidecarProcess
    asks_large: bool
    counting: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    pages_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    fresh_s: list[float] = field(default_factory=list)
    late: int = 0
    failed: list[str] = field(default_factory=list)
    rss_bytes: int = 0

    def report_late(self) -> None:
        """Report turns of a service every second, and the rest of those of some seconds before."""
        waiting: deque[tuple[float, bytes]] = deque()
        with httpx.Client(timeout=60) as client:

            def post(body: bytes) -> None:
                self._check(client.post(f"{self.sidecar.http}/v1/traces", content=body, headers=_HEADERS))

            while not self.ended.wait(1.0):
                first, rest = late_service_turns(LATE_TURNS_PER_S, time.time_ns())
                post(first)
                waiting.append((time.monotonic() + LATE_S, rest))
                while waiting and waiting[0][0] <= time.monotonic():
                    post(waiting.popleft()[1])
                    self.late += LATE_TURNS_PER_S * self.counting.is_set()

    def ask_pages(self) -> None:
        """Ask for every page, round after round."""
        objectives = {"objectives": [{"name": "v2v", "kind": "metric", "target": 0.95, "metric": "voice_to_voice"}]}
        objectives["objectives"][0]["threshold"] = 800_000_000
        with httpx.Client(timeout=600) as client:
            while not self.ended.wait(_BETWEEN_ROUNDS_S):
                for run_id in _RUNS if self.asks_large else _RUNS[:1]:
                    view: dict[str, Any] = {"filter": {"run_id": run_id}}
                    for name in _PAGES:
                        asked: dict[str, Any] = {
                            "objectives_page": {"f": view["filter"], **objectives},
                            "cohorts_page": {"asked": {"view": view}},
                            "turns_page": {"asked": view},
                        }.get(name, {"asked": view | objectives})
                        began_s = time.perf_counter()
                        self._check(client.post(f"{self.sidecar.http}/v1/query/{name}", json=asked))
                        if self.counting.is_set():
                            self.pages_s[f"{name} of {run_id}"].append(time.perf_counter() - began_s)

    def look_for_new(self) -> None:
        """Send a turn and ask for it until it is there, again and again."""
        with httpx.Client(timeout=60) as client:
            while not self.ended.wait(_FRESH_EVERY_S):
                body, trace_id = one_turn(time.time_ns())
                began_s = time.perf_counter()
                sent = client.post(f"{self.sidecar.http}/v1/traces", content=body, headers=_HEADERS)
                if sent.status_code == http.client.SERVICE_UNAVAILABLE:
                    continue
                while time.perf_counter() - began_s < _FRESH_WITHIN_S:
                    answer = client.post(
                        f"{self.sidecar.http}/v1/query/turn", json={"trace_id": trace_id, "turn_index": 0}
                    )
                    if answer.is_success and answer.json()[0] is not None:
                        break
                    time.sleep(0.01)
                if self.counting.is_set():
                    self.fresh_s.append(time.perf_counter() - began_s)

    def watch_memory(self) -> None:
        """Keep the most that its processes held together."""
        while not self.ended.wait(0.5):
            with suppress(psutil.Error):
                self.rss_bytes = max(self.rss_bytes, sum(p.memory_info().rss for p in processes(self.sidecar)))

    def _check(self, answer: httpx.Response) -> None:
        if not answer.is_success and answer.status_code != http.client.SERVICE_UNAVAILABLE:
            self.failed.append(f"{answer.url.path}: {answer.status_code} {answer.text[:200]}")


def processes(sidecar: SidecarProcess) -> list[psutil.Process]:
    """Every process of a sidecar."""
    front = psutil.Process(sidecar.process.pid)
    return [front, *front.children(recursive=True)]


def _cpu_s(sidecar: SidecarProcess) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes(sidecar)))


def measured(checkout: Path, store: Path, options: argparse.Namespace) -> dict[str, float]:
    """The figures of one run of a checkout's sidecar on a store, by what each is called."""
    exports = make_exports(1, time.time_ns())
    with running_sidecar(store, checkout=checkout, stderr=subprocess.DEVNULL) as sidecar:
        load = Load(sidecar, asks_large=bool(options.turns))
        tasks = (load.report_late, load.ask_pages, load.look_for_new, load.watch_memory)
        beside = [threading.Thread(target=task, daemon=True) for task in tasks]
        for thread in beside:
            thread.start()
        _send_all(sidecar, exports.bodies, _WARM_UP_S, options.spans_per_s)
        load.counting.set()
        used_s, began_s = _cpu_s(sidecar), time.monotonic()
        sent = _send_all(sidecar, exports.bodies, options.seconds, options.spans_per_s)
        took_s, used_s = time.monotonic() - began_s, _cpu_s(sidecar) - used_s
        load.ended.set()
        for thread in beside:
            thread.join(timeout=600)
        assert sidecar.terminate() == 0
    assert not load.failed, load.failed[:5]
    spans = sum(each.spans for each in sent)
    waits = sorted(wait * 1e3 for each in sent for wait in each.acknowledged_s)
    found = {
        "spans/s acknowledged": spans / took_s,
        "acknowledged p50, ms": waits[len(waits) // 2],
        "acknowledged p99, ms": waits[len(waits) * 99 // 100],
        "acknowledged worst, ms": waits[-1],
        "refused requests": float(sum(each.refused for each in sent)),
        "turns that changed late": float(load.late),
        "fresh, middle, ms": _middle(load.fresh_s) * 1e3,
        "fresh, worst, ms": max(load.fresh_s, default=0.0) * 1e3,
        "CPU, cores": used_s / took_s,
        "CPU per span, with all that was asked, us": used_s / max(1, spans) * 1e6,
        "memory of all processes, MiB": load.rss_bytes / 2**20,
    }
    for name, times in sorted(load.pages_s.items()):
        found |= {f"{name}, first, ms": times[0] * 1e3, f"{name}, middle, ms": _middle(times) * 1e3}
    return found


def _send_all(sidecar: SidecarProcess, bodies: tuple[bytes, ...], lasts_s: float, spans_per_s: float) -> list[Sent]:
    host, port = sidecar.http.removeprefix("http://").rsplit(":", 1)
    sent = [Sent() for _ in range(CONNECTIONS)]
    until_s = time.monotonic() + lasts_s
    rate_per_s = spans_per_s / 64 / CONNECTIONS
    threads = [
        threading.Thread(target=send, args=((host, int(port)), bodies, each, rate_per_s, until_s)) for each in sent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sent


def _middle(values: list[float]) -> float:
    return statistics.median(values) if values else float("nan")


def _filled(checkout: Path, folder: Path, turns: int) -> Path:
    """A store of a checkout with so many turns, filled by the code of that checkout."""
    store = folder / "store"
    if turns:
        python = checkout / ".venv" / "bin" / "python"
        command = [str(python), "-m", "tests.goldens", "--turns", str(turns), "--fill", str(store)]
        subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, check=True)
    return store


def _number(text: str) -> int:
    return int(text.replace("k", "000").replace("M", "000000"))


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sidecar", description=__doc__)
    parser.add_argument("--turns", type=_number, default=0, help="turns in the store before, such as 100k or 1M")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long is measured, after a warm-up")
    parser.add_argument("--spans-per-s", type=float, default=0.0, help="0: as fast as they are acknowledged")
    parser.add_argument("--baseline-worktree", type=Path, help="another checkout, with its .venv")
    parser.add_argument("--store", type=Path, help="a store that was filled so before; it is written to")
    parser.add_argument("--baseline-store", type=Path, help="likewise, for the other checkout")
    parser.add_argument("--rounds", type=int, default=1, help="how often each checkout is measured, in turn")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.baseline_worktree.resolve()] if options.baseline_worktree else [])]
    found: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_FOLDER")) as folder:
        given = (options.store, options.baseline_store)
        stores = {
            checkout: given[number] or _filled(checkout, Path(folder) / str(number), options.turns)
            for number, checkout in enumerate(checkouts)
        }
        for _ in range(options.rounds):
            for checkout in checkouts:
                found[checkout].append(measured(checkout, stores[checkout], options))

    def middle(checkout: Path, name: str) -> float:
        return _middle([each[name] for each in found[checkout] if name in each])

    print(json.dumps({"load": os.getloadavg(), "turns": options.turns, "rounds": options.rounds}))
    for name in found[ROOT][0]:
        values = [middle(checkout, name) for checkout in checkouts]
        ratio = f"  x {values[0] / values[1]:.2f}" if len(values) > 1 and values[1] else ""
        print(f"{name:45}" + "".join(f"{value:12,.1f}" for value in values) + ratio)


if __name__ == "__main__":
    main()
