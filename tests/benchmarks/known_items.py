"""Benchmark of finding what is stored already; prints one JSON object, times as CPU time of this process.

For developers of the store. Spans are appended in commits of `--rows` every 0.4 s of their own time; `late` gives over
how many seconds before the commit their beginnings are spread, which is what sends a question to older segments.
"""

import argparse
import json
import resource
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from telemetry.store import segment_files
from telemetry.store.compaction import Compactor
from telemetry.store.known_items import KnownItems
from telemetry.store.schema import SCHEMAS
from telemetry.store.stored_keys import StoredKeys
from telemetry.store.writer import StoreWriter

COMMIT_NS = 400_000_000
_RNG = np.random.default_rng(10)


def spans(count: int, until_ns: int, spread_ns: int) -> Any:
    """A table of spans with ids, beginnings up to `until_ns`, and nothing else."""
    schema = SCHEMAS["spans"]
    columns = {
        "trace_id": [secrets.token_hex(16) for _ in range(count)],
        "span_id": [secrets.token_hex(8) for _ in range(count)],
        segment_files.TIME_COLUMNS["spans"]: (until_ns - _RNG.random(count) * spread_ns).astype(np.int64),
    }
    arrays = [
        pa.array(columns[each.name], each.type) if each.name in columns else pa.nulls(count, each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def measure(directory: Path, commits: int, rows: int, late_s: float) -> dict[str, float]:
    """Fill a store and give µs of CPU a span: new ones, the same again from memory, and again from the segments."""
    spread_ns = round(late_s * 1e9)
    empty = {table: SCHEMAS[table].empty_table() for table in ("turns", "points")}
    spent_s = 0.0
    with StoreWriter(directory, recent_rows_max=0, keep_text=True) as writer:
        compactor = Compactor(writer, grace_s=0.0)
        known = KnownItems(StoredKeys(directory))
        for number in range(commits):
            table = spans(rows, spread_ns + number * COMMIT_NS, spread_ns)
            before = writer.manifest.of("spans")
            began_s = time.process_time()
            new = known.new_rows("spans", table, before)
            spent_s += time.process_time() - began_s
            assert len(new.keys) == rows
            writer.append_tables(spans=table, **empty)
            (segment,) = set(writer.manifest.of("spans")) - set(before)
            began_s = time.process_time()
            known.add(segment, new.keys)
            spent_s += time.process_time() - began_s
            while compactor.run_once():
                (merged,) = set(writer.manifest.of("spans")) - {*before, segment}
                known.replace([each for each in (*before, segment) if each not in writer.manifest.segments], merged)
                before = writer.manifest.of("spans")
            if number == 0:
                oldest = table
        compactor.stop()
        segments = writer.manifest.of("spans")
        again: dict[str, float] = {}
        for name, each in (("again_from_memory", table), ("again_from_segments", oldest)):
            began_s = time.process_time()
            assert not known.new_rows("spans", each, segments).keys
            again[name] = (time.process_time() - began_s) / rows * 1e6
    began_s = time.process_time()
    StoreWriter(directory).close()
    return {
        "late_s": late_s,
        "new_us": spent_s / commits / rows * 1e6,
        **{f"{name}_us": value for name, value in again.items()},
        "start_ms": (time.process_time() - began_s) * 1e3,
        "segments": len(segments),
    }


def main() -> None:
    """Measure with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--rows", type=int, default=6_000)
    arguments = parser.parse_args()
    cases: list[dict[str, float]] = []
    for late_s in (1.0, 10.0, 60.0):
        with tempfile.TemporaryDirectory() as folder:
            cases.append(measure(Path(folder), arguments.commits, arguments.rows, late_s))
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump({"commits": arguments.commits, "rows": arguments.rows, "cases": cases, "rss_mb": rss_mb}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
