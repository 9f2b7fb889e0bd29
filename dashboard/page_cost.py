"""What one refresh of the page costs: `python -m dashboard.page_cost STORE [TIMES]` prints one JSON object.

It asks what the Now page asks, for the newest run, in a process that has asked nothing yet, and has
imported pandas as the dashboard has.
"""

import importlib
import json
import sys
import time
from pathlib import Path

from dashboard.links import Choice
from dashboard.source import Source
from telemetry.objectives.slo import load_objectives
from telemetry.store.peak_memory import peak_rss_bytes
from telemetry.store.reader import StoreReader


def main(store: Path, times: int) -> None:
    """Print `wall_s` and `cpu_s` of each time, `peak_rss_bytes` and the number of `turns` that the page is about."""
    importlib.import_module("pandas")  # pyarrow would do it, as a part of the first question
    wall_s: list[float] = []
    cpu_s: list[float] = []
    turns = 0
    with StoreReader(store) as reader:
        source = Source(reader, tuple(load_objectives(None)))
        for _ in range(times):
            began_s, used_s = time.perf_counter(), time.process_time()
            view = source.now(Choice())
            wall_s.append(time.perf_counter() - began_s)
            cpu_s.append(time.process_time() - used_s)
            turns = 0 if view.summary is None else view.summary.turns.total
    found = {"wall_s": wall_s, "cpu_s": cpu_s, "peak_rss_bytes": peak_rss_bytes(), "turns": turns}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
