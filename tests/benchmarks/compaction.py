"""Benchmark of merging segments; prints one JSON object, times as CPU time of this process.

For developers of the store. Turns with their stage spans are appended in commits of `--turns`, as a sidecar does, and
merged as far as the plan goes; `written_per_byte` is how many bytes merges write for each byte that a commit wrote.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.schema import TABLES
from telemetry.store.peak_memory import peak_rss_bytes
from telemetry.store.schema import points_table, spans_table, turns_table
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import exchange, stage_spans


def _tables(first: int, count: int) -> tuple[Any, Any]:
    client = [exchange(index)[0] for index in range(first, first + count)]
    return turns_table(client), spans_table([span for turn in client for span in stage_spans(turn)])


def measure(directory: Path, commits: int, turns: int) -> dict[str, Any]:
    """Append and merge; what merging cost."""
    points = points_table([])
    append_s = merge_s = 0.0
    committed = written = merged_rows = 0
    with StoreWriter(directory) as writer:
        compactor = Compactor(writer, limits=MergeLimits(), grace_s=0.0)
        for number in range(commits):
            tables = _tables(number * turns, turns)
            before = set(writer.manifest.segments)
            began_s = time.process_time()
            writer.append_tables(*tables, points)
            append_s += time.process_time() - began_s
            committed += sum(each.size_bytes for each in set(writer.manifest.segments) - before)
            while True:
                before = set(writer.manifest.segments)
                began_s = time.process_time()
                if not compactor.run_once():
                    break
                merge_s += time.process_time() - began_s
                (new,) = set(writer.manifest.segments) - before
                written += new.size_bytes
                merged_rows += new.rows
        compactor.stop()
        rows = sum(each.rows for each in writer.manifest.segments)
        return {
            "rows": rows,
            "raw_bytes_per_row": round(sum(each.raw_bytes for each in writer.manifest.segments) / rows),
            "segments": {table: len(writer.manifest.of(table)) for table in TABLES},
            "store_bytes_per_row": round(sum(each.size_bytes for each in writer.manifest.segments) / rows, 1),
            "committed_bytes_per_row": round(committed / rows, 1),
            "written_per_byte": round(written / committed, 2),
            "merged_per_row": round(merged_rows / rows, 2),
            "append_us_per_row": round(append_s / rows * 1e6, 2),
            "merge_us_per_row": round(merge_s / rows * 1e6, 2),
            "merge_us_per_merged_row": round(merge_s / max(merged_rows, 1) * 1e6, 2),
            "peak_mb": round(peak_rss_bytes() / 1e6),
        }


def main() -> None:
    """Measure with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commits", type=int, default=64)
    parser.add_argument("--turns", type=int, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), arguments.commits, arguments.turns)
    json.dump({"commits": arguments.commits, "turns": arguments.turns, **figures}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
