"""What forwarding costs ingestion: `python -m tests.benchmarks.forwarding [SPANS_PER_S [SECONDS [ROUNDS]]]`.

The mix of `tests.benchmarks.ingest`, sent at a fixed rate to a sidecar that forwards nothing and to one for each kind
of upstream, one after another in every round, and every second round backwards. CPU is that of the front and of the
store process, which forwards, per span that was acknowledged. Ratios are to the sidecar that forwards nothing.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.ingest import BATCH, SENDERS, Sent, cpu_s, mixed_request, send
from tests.fixtures_forwarding import BlackHole, UpstreamServer, dead_url, forwarding_sidecar, reply
from tests.integration.waiting import wait_until_visible


def _slow(_server: UpstreamServer, handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    time.sleep(1)
    reply(handler, 200)


def _quick(_server: UpstreamServer, handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    reply(handler, 200)


@contextmanager
def _tables(kind: str) -> Generator[list[dict[str, Any]]]:
    table = {"name": "up", "text": "redact", "url": dead_url()}
    if kind == "nothing":
        yield []
    elif kind == "dead":
        yield [table]
    elif kind == "dead, texts kept":
        yield [{**table, "text": "keep"}]
    elif kind == "black hole":
        with closing(BlackHole()) as hole:
            yield [{**table, "url": hole.url}]
    else:
        with closing(UpstreamServer(_slow if kind == "slow" else _quick)) as server:
            yield [{**table, "url": server.url}]


KINDS = ("nothing", "dead", "black hole", "slow", "quick", "dead, texts kept")


def measured(kind: str, spans_per_s: float, lasts_s: float, body: bytes) -> dict[str, float]:
    """One sidecar under load: spans/s, CPU in µs a span, and how long senders waited in ms."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("BENCHMARK_FOLDER")))
    with _tables(kind) as tables, forwarding_sidecar(folder / "store", tables) as sidecar:
        host, port = sidecar.http.removeprefix("http://").rsplit(":", 1)
        ingesting = [psutil.Process(sidecar.process.pid), sidecar.store_process]
        time.sleep(1.5)
        sent = [Sent() for _ in range(SENDERS)]
        before_s = sum(map(cpu_s, ingesting))
        began_s = time.monotonic()
        arguments = (spans_per_s / BATCH / SENDERS, began_s + lasts_s)
        threads = [threading.Thread(target=send, args=((host, int(port)), body, each, *arguments)) for each in sent]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.monotonic() - began_s
        wait_until_visible(sidecar.http)
        spans = sum(each.spans for each in sent)
        waits = sorted(wait for each in sent for wait in each.acknowledged_s)
        return {
            "spans/s": spans / took_s,
            "CPU us/span": (sum(map(cpu_s, ingesting)) - before_s) / spans * 1e6,
            "p50 ms": waits[len(waits) // 2] * 1e3,
            "p99 ms": waits[len(waits) * 99 // 100] * 1e3,
        }


def main() -> None:
    """Print the medians of the rounds, and the ratios."""
    given = [float(each) for each in sys.argv[1:]]
    spans_per_s, lasts_s, rounds = [*given, *(4_000.0, 5.0, 3.0)[len(given) :]]
    body = mixed_request()
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for number in range(round(rounds)):
        for kind in KINDS[:: (-1) ** number]:
            found[kind].append(measured(kind, spans_per_s, lasts_s, body))
    medians = {
        kind: {name: statistics.median(each[name] for each in results) for name in results[0]}
        for kind, results in found.items()
    }
    for kind, figures in medians.items():
        ratio = figures["CPU us/span"] / medians["nothing"]["CPU us/span"]
        shown = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())
        print(f"{kind}: {shown}; CPU ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
