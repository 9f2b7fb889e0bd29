"""Asks a store one kind of question: `python -m ….asking KIND STORE TIMES URL` prints JSON.

`page` asks what the overview of all turns shows; `lookup` finds turns by their trace id, another one each time;
`summary` sums up the largest run; `fresh` sends a turn to the sidecar at URL and asks until a reader finds it, counted
from its acknowledgment.
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
from tests.benchmarks.bench.sending import HEADERS, LARGE_RUN, one_turn
from tests.benchmarks.peak_memory import peak_rss_bytes_of

_VISIBLE_S: Final = 30.0
_POLL_S: Final = 0.01


def find(reader: StoreReader, trace_id: str, turn_index: int, within_s: float = 0.0) -> None:
    """Ask for a turn until it is there. Raises StoreError."""
    until_s = time.monotonic() + within_s
    while reader.turn(trace_id, turn_index)[0] is None:
        if time.monotonic() > until_s:
            raise StoreError(f"the turn {trace_id} is not found within {within_s:g} s")
        time.sleep(_POLL_S)


def questions(kind: str, reader: StoreReader, times: int, url: str) -> Iterator[Callable[[], object]]:
    """Yield the questions one after the other; the preparation of each is not measured."""
    page = PageQuestion(objectives=load_objectives(None), with_cause=True)
    turns = reader.turns(Filter(run_id=LARGE_RUN), times, source="client") if kind == "lookup" else []
    for number in range(times):
        match kind:
            case "page":
                yield lambda: reader.page(page)
            case "summary":
                yield lambda: reader.summary(Filter(run_id=LARGE_RUN))
            case "lookup":
                turn = turns[number]
                yield lambda turn=turn: find(reader, turn.trace_id, turn.turn_index)
            case _:
                body, trace_id = one_turn(time.time_ns())
                httpx.post(f"{url}/v1/traces", content=body, headers=HEADERS, timeout=30).raise_for_status()
                yield lambda trace_id=trace_id: find(reader, trace_id, 0, _VISIBLE_S)


def main(kind: str, store: Path, times: int, url: str) -> None:
    """Print `wall_s` of each time and `peak_rss_bytes`."""
    wall_s: list[float] = []
    with StoreReader(store) as reader:
        for ask in questions(kind, reader, times, url):
            began_s = time.perf_counter()
            ask()
            wall_s.append(time.perf_counter() - began_s)
    sys.stdout.write(json.dumps({"wall_s": wall_s, "peak_rss_bytes": peak_rss_bytes_of("self")}) + "\n")


if __name__ == "__main__":
    refuse_pandas()  # as the sidecar's process for questions does
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
