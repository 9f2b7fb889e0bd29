"""Ingestion of the sidecar and answer times of its store, for stores of several sizes.

Each store is filled with the turns of `tests.goldens`; processes of their own ask and send.
"""

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from loadtest.errors import UsageError
from loadtest.run.processes import ROOT, environment
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.database import read_only
from tests.benchmarks.bench.paired import NONE, Report
from tests.benchmarks.bench.processes import PartFailedError
from tests.benchmarks.bench.sending import BATCH_SPANS, CONNECTIONS, HEADERS, LARGE_RUN, one_turn
from tests.benchmarks.peak_memory import peak_rss_bytes_of
from tests.fixtures_sidecar import SidecarProcess, running_sidecar
from tests.goldens import many

LOOKUPS: Final = 20
_READY_S: Final = 120.0
# The generated turns end before those that are sent (of 14 minutes) begin, as in a store that a sidecar has written for
# a while.
_BEFORE_NOW_NS: Final = 1_800 * 1_000_000_000
_ASKED_S: Final = 1_800.0
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>[kM]?)", re.ASCII)
_UNITS: Final = {"": 1, "k": 1_000, "M": 1_000_000}
_MIB: Final = 1 << 20
Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """A benchmark of stores to run. `times` is how often each question is asked, `spans_per_s` the paced rate."""

    turns: tuple[int, ...]
    window_s: float
    spans_per_s: int
    times: int
    folder: Path | None


def sizes(text: str) -> tuple[int, ...]:
    """The sizes of stores in a text such as 10k,1M. Raises UsageError."""
    seconds: list[int] = []
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        size = int(match["number"]) * _UNITS[match["unit"]] if match is not None else 0
        if not 300 <= size <= 100_000_000:
            raise UsageError(f"--turns {text}: give numbers from 300 to 100M, such as 10k,1M")
        seconds.append(size)
    return tuple(sorted(set(seconds)))


def bench_store(options: StoreOptions, report: Report) -> None:
    """Measure stores of each size. Raises OutputError, StoreError and PartFailedError."""
    results: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="voiceprobe-bench-", dir=options.folder) as folder:
        for turns in options.turns:
            report.say(f"{turns:,} turns: filling, then measuring")
            store = Path(folder) / f"store-{turns}"
            many.fill(store, turns, time.time_ns() - _BEFORE_NOW_NS)
            results.append(measured(store, options))
    rows = [[label, *(cell(row) for row in results)] for label, cell in _ROWS]
    report.table("Stores", ("Turns in the store", *(f"{row['turns']:,}" for row in results)), rows)
    sent = results[0]["fastest"]
    each_span = f"{sent['span_bytes']:,.0f} bytes"
    report.say(f"Sent were batches of {BATCH_SPANS} spans of {each_span} each on {CONNECTIONS} connections.")
    for row in results:
        if refused := row["fastest"]["refused"] + row["paced"]["refused"]:
            report.say(f"{row['turns']:,} turns: {refused:,} requests were refused and sent no more")
    report.write(stores=results)


def measured(store: Path, options: StoreOptions) -> Found:
    """The figures of one store; what changes the store comes last. Raises PartFailedError."""
    size_bytes = sum(file.stat().st_size for file in store.glob("store.duckdb*"))
    with read_only(store) as database, database.snapshot() as cursor:
        counted = "SELECT count(*) AS turns FROM turns WHERE source = 'client'"
        ((turns,),) = (row.values() for row in rows(StoreConnection(cursor, store), counted))
    began_s = time.perf_counter()
    with running_sidecar(store) as sidecar:
        body, _ = one_turn(time.time_ns())
        _post(sidecar, body)
        row: Found = {"turns": turns, "size_bytes": size_bytes, "start_s": time.perf_counter() - began_s}
        for kind, times in (
            ("page", options.times),
            ("lookup", LOOKUPS),
            ("summary", options.times),
            ("fresh", LOOKUPS),
        ):
            row[kind] = _answer_times(asked("asking", kind, str(store), str(times), sidecar.http))
        for name, spans_per_s in (("paced", options.spans_per_s), ("fastest", 0)):
            row[name] = _ingested(sidecar, options.window_s, spans_per_s)
    return row


def _answer_times(answers: Found) -> Found:
    """Return the answer times: the first one of a process, and the median and the slowest of the following ones."""
    wall_s: list[float] = answers["wall_s"]
    repeated = sorted(wall_s[1:] or wall_s)
    more = {"first_s": wall_s[0], "repeated_s": repeated[len(repeated) // 2], "worst_s": max(wall_s)}
    return more | {"peak_rss_bytes": answers["peak_rss_bytes"]}


def _ingested(sidecar: SidecarProcess, window_s: float, spans_per_s: int) -> Found:
    """Measure what a sender got acknowledged, at a rate or with 0 as fast as it is taken, and the cost of that."""
    front = psutil.Process(sidecar.process.pid)
    every = [front, *front.children(recursive=True)]

    def cpu_s() -> float:
        return sum(times.user + times.system for times in (process.cpu_times() for process in every))

    before_s = cpu_s()
    sent = asked("sending", sidecar.http, str(window_s), str(spans_per_s))
    peaks = [peak_rss_bytes_of(process.pid) for process in every]
    return sent | {
        "spans_per_s": sent["spans"] / sent["took_s"],
        "cpu_us_per_span": (cpu_s() - before_s) / max(1, sent["spans"]) * 1e6,
        # The most that its processes held together at most, each at its own worst; None where Linux does not say.
        "peak_rss_bytes": None if None in peaks else sum(peak or 0 for peak in peaks),
    }


def asked(module: str, *arguments: str) -> Found:
    """The JSON object that a module of this package prints when it has ended. Raises PartFailedError."""
    command = [sys.executable, "-m", f"tests.benchmarks.bench.{module}", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=_ASKED_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PartFailedError(f"{module} did not end within {_ASKED_S:g} s") from None
    if done.returncode or not done.stdout:
        words = done.stderr.strip().splitlines()
        raise PartFailedError(f"{module} ended with code {done.returncode}: {words[-1] if words else 'no output'}")
    return json.loads(done.stdout.splitlines()[-1])


def _post(sidecar: SidecarProcess, body: bytes) -> None:
    until_s = time.monotonic() + _READY_S
    while time.monotonic() < until_s:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.post(f"{sidecar.http}/v1/traces", content=body, headers=HEADERS, timeout=30).is_success:
                return
        time.sleep(0.02)
    raise PartFailedError(f"the sidecar at {sidecar.http} acknowledged nothing within {_READY_S:g} s")


def _twice(kind: str) -> Callable[[Found], str]:
    return lambda row: f"{row[kind]['first_s']:.2f}, {row[kind]['repeated_s']:.2f}"


def _acknowledged(name: str) -> Callable[[Found], str]:
    def cell(row: Found) -> str:
        waits = (row[name]["ack_p50_s"], row[name]["ack_p99_s"])
        return ", ".join(NONE if wait is None else f"{wait * 1e3:.0f}" for wait in waits)

    return cell


def _mib(size: int | None) -> str:
    return NONE if size is None else f"{size / _MIB:,.0f}"


_ROWS: Final[Sequence[tuple[str, Callable[[Found], str]]]] = (
    ("spans/s stored, as fast as acknowledged", lambda f: f"{f['fastest']['spans_per_s']:,.0f}"),
    ("CPU per span, µs", lambda f: f"{f['fastest']['cpu_us_per_span']:.1f}"),
    ("acknowledged at that rate, p50, p99, ms", _acknowledged("fastest")),
    ("spans/s stored, paced", lambda f: f"{f['paced']['spans_per_s']:,.0f}"),
    ("acknowledged when paced, p50, p99, ms", _acknowledged("paced")),
    ("memory of the sidecar, MiB", lambda f: _mib(f["fastest"]["peak_rss_bytes"])),
    (
        "visible after acknowledged, middle, worst, s",
        lambda f: f"{f['fresh']['repeated_s']:.2f}, {f['fresh']['worst_s']:.2f}",
    ),
    ("page, first, repeated, s", _twice("page")),
    ("memory of the process that asks for it, MiB", lambda f: _mib(f["page"]["peak_rss_bytes"])),
    ("turn by trace id, ms", lambda f: f"{f['lookup']['repeated_s'] * 1e3:.0f}"),
    (f"summary of the run {LARGE_RUN}, first, repeated, s", _twice("summary")),
    ("start of the sidecar until it acknowledges, s", lambda f: f"{f['start_s']:.2f}"),
    ("size on the disk, MiB", lambda f: _mib(f["size_bytes"])),
)
