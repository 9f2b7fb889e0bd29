"""Compaction of rows that take hundreds of times their compressed size in memory: measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from telemetry.store.schema import SCHEMAS
from telemetry.store.writer import StoreWriter

ROOT = Path(__file__).parents[4]
FAN_IN = 16
ROWS, TEXT_BYTES = 2_000, 20_000
RAW_BYTES = FAN_IN * ROWS * TEXT_BYTES
BOUND_BYTES = 300 << 20

_COMPACT = """
import json, re, sys
from pathlib import Path
from telemetry.store.compaction import Compactor
from telemetry.store.writer import StoreWriter

def peak_bytes():
    # Not ru_maxrss, which begins at the parent's peak.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

with StoreWriter(Path(sys.argv[1])) as writer:
    compactor = Compactor(writer, grace_s=0.0)
    before = peak_bytes()
    merged = [compactor.run_once(), compactor.run_once()]
    compactor.stop()
    (segment,) = writer.manifest.segments
    print(json.dumps([merged, segment.rows, segment.raw_bytes, segment.size_bytes, before, peak_bytes()]))
"""


def _fill(directory: Path) -> None:
    schema = SCHEMAS["points"]
    others = {table: SCHEMAS[table].empty_table() for table in ("turns", "spans")}
    with StoreWriter(directory, keep_text=True) as writer:
        for number in range(FAN_IN):
            text = json.dumps({"note": "x" * TEXT_BYTES})
            columns = {
                "name": pa.array(["lag"] * ROWS),
                "unix_ns": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64()),
                "attributes": pa.array([text]).take(pa.array([0] * ROWS)),
            }
            arrays = [columns.get(field.name, pa.nulls(ROWS, field.type)) for field in schema]
            writer.append_tables(points=pa.Table.from_arrays(arrays, schema=schema), **others)


@pytest.mark.slow
def test_little_on_the_disk_and_much_in_memory_is_merged_in_bounded_memory(tmp_path: Path) -> None:
    _fill(tmp_path)
    completed = subprocess.run(
        [sys.executable, "-c", _COMPACT, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    merged, rows, raw_bytes, size_bytes, before, peak = json.loads(completed.stdout)
    print(f"{raw_bytes >> 20} MiB of rows, {size_bytes >> 10} KiB on the disk: {before >> 20} → {peak >> 20} MiB")
    assert (merged, rows) == ([True, False], FAN_IN * ROWS)
    assert raw_bytes > RAW_BYTES > 2 * BOUND_BYTES, "the case is large enough to tell"
    assert peak < BOUND_BYTES
