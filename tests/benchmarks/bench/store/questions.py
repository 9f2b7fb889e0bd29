"""Asks a store one kind of question: `python -m ….store.questions KIND STORE TIMES [URL]` prints JSON.

`page` asks what the overview of the newest run shows; `lookup` finds turns by their trace id, another one each time;
`summary` sums up the newest run; `fresh` sends a turn to
the sidecar at URL and asks until a reader finds it, counted from its acknowledgment.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx

from telemetry.model.errors import StoreError
from telemetry.objectives.slo import load_objectives
from telemetry.store.answers import Filter
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.without_pandas import refuse_pandas
from tests.benchmarks.bench.store.exports import one_turn
from tests.benchmarks.peak_memory import peak_rss_bytes

_HEADERS: Final = {"content-type": "application/x-protobuf"}
_VISIBLE_S: Final = 30.0
_POLL_S: Final = 0.01


def lookups(reader: StoreReader, times: int) -> Iterator[Callable[[], None]]:
    """Finds one turn after the other by its trace id."""
    newest = reader.runs()[0]
    turns = reader.turns(Filter(run_id=newest.run_id), times, source="client")
    for turn in turns:

        def find(trace_id: str = turn.trace_id, turn_index: int = turn.turn_index) -> None:
            if reader.turn(trace_id, turn_index)[0] is None:
                raise StoreError(f"the turn {trace_id} is not found in its own store")

        yield find


def pages(reader: StoreReader, times: int) -> Iterator[Callable[[], None]]:
    """Asks for the overview of the newest run, again and again."""
    asked = PageQuestion(objectives=load_objectives(None), with_cause=True)
    for _ in range(times):
        yield lambda: (reader.page(asked), None)[1]


def summaries(reader: StoreReader, times: int) -> Iterator[Callable[[], None]]:
    """Sums up the newest run, again and again."""
    newest = reader.runs()[0]
    for _ in range(times):
        yield lambda: (reader.summary(Filter(run_id=newest.run_id)), None)[1]


def fresh(reader: StoreReader, times: int, url: str) -> Iterator[Callable[[], None]]:
    """Waits until a turn that was just acknowledged is found."""
    for _ in range(times):
        body, trace_id = one_turn(time.time_ns())
        httpx.post(f"{url}/v1/traces", content=body, headers=_HEADERS, timeout=30).raise_for_status()

        def find(trace_id: str = trace_id) -> None:
            until_s = time.monotonic() + _VISIBLE_S
            while reader.turn(trace_id, 0)[0] is None:
                if time.monotonic() > until_s:
                    raise StoreError(f"an acknowledged turn is not visible after {_VISIBLE_S:g} s")
                time.sleep(_POLL_S)

        yield find


_KINDS: Final = {"page": pages, "lookup": lookups, "summary": summaries}


def main(kind: str, store: Path, times: int, url: str) -> None:
    """Print `wall_s` of each time and `peak_rss_bytes`."""
    wall_s: list[float] = []
    with StoreReader(store) as reader:
        asked = fresh(reader, times, url) if kind == "fresh" else _KINDS[kind](reader, times)
        for ask in asked:
            began_s = time.perf_counter()
            ask()
            wall_s.append(time.perf_counter() - began_s)
    sys.stdout.write(json.dumps({"wall_s": wall_s, "peak_rss_bytes": peak_rss_bytes()}) + "\n")


if __name__ == "__main__":
    refuse_pandas()  # as the sidecar's process for questions does
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
