"""Measures one store: the sidecar on it and the processes that ask it."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from loadtest.run import processes
from loadtest.run.processes import Child, ProcessFailedError
from tests.benchmarks.bench.store.exports import one_turn
from tests.benchmarks.peak_memory import peak_rss_bytes_of

READY_S: Final = 120.0
_ASKED_S: Final = 1_800.0
_OK: Final = 200
_HEADERS: Final = {"content-type": "application/x-protobuf"}


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a sender got acknowledged, and what that cost the sidecar."""

    spans: int
    refused: int
    spans_per_s: float
    cpu_us_per_span: float
    ack_p50_s: float | None
    ack_p99_s: float | None
    peak_rss_bytes: int | None
    attributes: float
    span_bytes: float


@dataclass(frozen=True, slots=True)
class AnswerTimes:
    """How long answers took: the first one of a process, and the middle of the following ones."""

    first_s: float
    repeated_s: float
    worst_s: float
    peak_rss_bytes: int


class SidecarOfStore:
    """A running sidecar on a store; `start_s` is the time from its start until it acknowledged a turn."""

    def __init__(self, child: Child, url: str, start_s: float) -> None:
        self.url, self.start_s = url, start_s
        front = psutil.Process(child.process.pid)
        self._processes = [front, *front.children(recursive=True)]

    def ingest(self, window_s: float, spans_per_s: int, folder: Path) -> Ingested:
        """Send for a while, at a rate or with 0 as fast as it takes them. Raises ProcessFailedError."""
        before_s = self._cpu_s()
        sent = asked("tests.benchmarks.bench.store.sender", self.url, str(window_s), str(spans_per_s), folder=folder)
        used_s = self._cpu_s() - before_s
        spans = max(1, sent["spans"])
        return Ingested(
            spans=sent["spans"],
            refused=sent["refused"],
            spans_per_s=sent["spans"] / sent["took_s"],
            cpu_us_per_span=used_s / spans * 1e6,
            ack_p50_s=sent["ack_p50_s"],
            ack_p99_s=sent["ack_p99_s"],
            peak_rss_bytes=self._peak_rss_bytes(),
            attributes=sent["attributes"],
            span_bytes=sent["span_bytes"],
        )

    def _cpu_s(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return sum(each.user + each.system for each in times)

    def _peak_rss_bytes(self) -> int | None:
        """The most that its processes held together at most, each at its own worst; None where Linux does not say."""
        peaks = [peak_rss_bytes_of(process.pid) for process in self._processes]
        return None if None in peaks else sum(peak for peak in peaks if peak is not None)


@contextlib.contextmanager
def sidecar_on(store: Path, folder: Path) -> Generator[SidecarOfStore]:
    """A sidecar on a store, which has acknowledged a turn. Raises ProcessFailedError."""
    body, _ = one_turn(time.time_ns())
    began_s = time.perf_counter()
    arguments = ["-m", "telemetry.sidecar", "--store", str(store), "--http-port", "0", "--grpc-port", "0"]
    child = processes.start("sidecar", arguments, folder / "logs", says_ready=True, bystander=False)
    with processes.ending(child):
        url = str(processes.wait_until_ready(child, READY_S)["http"])
        _send(url, body)
        yield SidecarOfStore(child, url, time.perf_counter() - began_s)


def answered(module: str, *arguments: str, folder: Path) -> AnswerTimes:
    """Let a process of its own ask. Raises ProcessFailedError."""
    found = asked(module, *arguments, folder=folder)
    wall_s: list[float] = found["wall_s"]
    repeated = sorted(wall_s[1:] or wall_s)
    return AnswerTimes(
        first_s=wall_s[0],
        repeated_s=repeated[len(repeated) // 2],
        worst_s=max(wall_s),
        peak_rss_bytes=found["peak_rss_bytes"],
    )


def asked(module: str, *arguments: str, folder: Path) -> dict[str, Any]:
    """The JSON object that a module of ours prints when it has ended. Raises ProcessFailedError."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env=processes.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASKED_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProcessFailedError(f"{module} did not end within {_ASKED_S:g} s") from None
    if done.returncode or not done.stdout:
        words = done.stderr.strip().splitlines()
        raise ProcessFailedError(f"{module} ended with code {done.returncode}: {words[-1] if words else 'no output'}")
    return json.loads(done.stdout.splitlines()[-1])


def size_bytes(store: Path) -> int:
    """What a store takes on the disk."""
    return sum(file.stat().st_size for file in store.glob("store.duckdb*"))


def _send(url: str, body: bytes) -> None:
    until_s = time.monotonic() + READY_S
    while time.monotonic() < until_s:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.post(f"{url}/v1/traces", content=body, headers=_HEADERS, timeout=30).is_success:
                return
        time.sleep(0.02)
    raise ProcessFailedError(f"the sidecar at {url} acknowledged nothing within {READY_S:g} s")
