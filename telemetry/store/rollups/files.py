"""The file of a roll-up: Parquet with the cells in one row group and the open turns in the next."""

import io
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.rollups.pairs import OPEN_COLUMNS
from telemetry.store.rollups.rollup import DIMENSIONS, Key, Rollup, RollupCell, sorted_cells
from telemetry.store.schema import SCHEMAS, ArrowTable

# Grows when a roll-up's content changes its meaning: one of another version is made anew.
VERSION: Final = 1
_VERSION_KEY: Final = b"voiceprobe.rollup"
_SEQUENCES: Final = "sequence"
_MEASURES: Final = ("n", "total", "least", "most", "first", "last", "text_at", "text")
_INTS: Final = pa.list_(pa.int64())

_CELLS: Final = pa.schema(
    [
        pa.field("part", pa.string()),
        *(pa.field(name, pa.string()) for name in DIMENSIONS),
        pa.field("labels", pa.list_(pa.string())),
        pa.field("n", pa.int64()),
        pa.field("total", pa.float64()),
        pa.field("least", pa.float64()),
        pa.field("most", pa.float64()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("text_at", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        pa.field("buckets", _INTS),
        pa.field("counts", _INTS),
    ]
)
OPEN_SCHEMA: Final = pa.schema(
    [
        SCHEMAS["turns"].field(name) if name in SCHEMAS["turns"].names else pa.field(name, pa.string())
        for name in OPEN_COLUMNS
    ]
)
_OPEN_PREFIX: Final = "open_"
_BOTH: Final = pa.schema(
    [*_CELLS, *(pa.field(_OPEN_PREFIX + field.name, field.type) for field in OPEN_SCHEMA)],
    metadata={_VERSION_KEY: str(VERSION).encode()},
)


def encoded(rollup: Rollup, segment_crc32: int) -> bytes:
    """The roll-up as the content of its file, which names the segment it belongs to by the segment's checksum."""
    cells = _cells_table(rollup)
    open_turns = rollup.open_turns if rollup.open_turns is not None else OPEN_SCHEMA.empty_table()
    schema = _BOTH.with_metadata({_VERSION_KEY: str(VERSION).encode(), b"segment_crc32": str(segment_crc32).encode()})
    sink = io.BytesIO()
    # pyarrow's own types know of columns' names here only in its documentation.
    texts: Any = [*(field.name for field in schema if field.type == pa.string()), "labels.list.element"]
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=texts,
        column_encoding={"buckets.list.element": "DELTA_BINARY_PACKED", "counts.list.element": "DELTA_BINARY_PACKED"},
        write_statistics=False,
    ) as writer:
        for table in (cells, open_turns.rename_columns([_OPEN_PREFIX + name for name in OPEN_COLUMNS])):
            writer.write_table(_filled(table, schema))
    content = sink.getvalue()
    return content + zlib.crc32(content).to_bytes(4, "little")


def decoded(content: bytes, segment_crc32: int) -> Rollup:
    """The roll-up in the content of a file. Raises StoreError when it is damaged, of another version, or of another
    segment."""
    content, checksum = content[:-4], int.from_bytes(content[-4:], "little")
    if zlib.crc32(content) != checksum:
        raise StoreError("the roll-up is damaged: it is not what was written")
    try:
        file = pq.ParquetFile(io.BytesIO(content))
        metadata: dict[bytes, bytes] = file.schema_arrow.metadata or {}
        if metadata.get(_VERSION_KEY) != str(VERSION).encode():
            raise StoreError("the roll-up is of another version")
        if metadata.get(b"segment_crc32") != str(segment_crc32).encode():
            raise StoreError("the roll-up is of another segment")
        cells = file.read_row_group(0, columns=_CELLS.names)
        names = [_OPEN_PREFIX + name for name in OPEN_COLUMNS]
        open_turns = file.read_row_group(1, columns=names) if file.num_row_groups > 1 else None
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"the roll-up cannot be read ({error})") from error
    rollup = _rollup(cells)
    if open_turns is not None:
        rollup.open_turns = open_turns.rename_columns(list(OPEN_COLUMNS)).cast(OPEN_SCHEMA)
    return rollup


def write(path: Path, content: bytes) -> None:
    """Write the file. Raises OSError."""
    path.write_bytes(content)


def _cells_table(rollup: Rollup) -> ArrowTable:
    items = sorted_cells(rollup)
    items += [
        (
            Key(_SEQUENCES, run_id, None, None, None, None, (process_id,)),
            RollupCell(histogram=Histogram(ranges[:, 0], ranges[:, 1], None, None)),
        )
        for (run_id, process_id), ranges in sorted(rollup.sequences.items())
    ]
    columns: dict[str, Any] = {"part": [key.part for key, _ in items]}
    for place, name in enumerate(DIMENSIONS, start=1):
        columns[name] = [key[place] for key, _ in items]
    columns["labels"] = [list(key.labels) for key, _ in items]
    for name in _MEASURES:
        columns[name] = [getattr(cell, name) for _, cell in items]
    histograms = [cell.histogram for _, cell in items]
    columns["low"] = [None if each is None else each.low for each in histograms]
    columns["high"] = [None if each is None else each.high for each in histograms]
    columns["buckets"] = _lists([None if each is None else each.buckets for each in histograms])
    columns["counts"] = _lists([None if each is None else each.counts for each in histograms])
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in _CELLS], schema=_CELLS)


def _lists(arrays: list[Ints | None]) -> Any:
    known = [each for each in arrays if each is not None]
    values = np.concatenate(known) if known else np.empty(0, dtype=np.int64)
    ends = np.cumsum([0, *(0 if each is None else len(each) for each in arrays)])
    missing = pa.array([each is None for each in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values, pa.int64()), _INTS, mask=missing)


def _filled(table: ArrowTable, schema: Any) -> ArrowTable:
    return pa.Table.from_arrays(
        [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def _rollup(table: ArrowTable) -> Rollup:
    rollup = Rollup()
    lists = {name: table.column(name).combine_chunks() for name in ("buckets", "counts")}
    ends = lists["buckets"].offsets.to_numpy()
    buckets, counts = (lists[name].values.to_numpy() for name in ("buckets", "counts"))
    is_known = lists["buckets"].is_valid().to_numpy(zero_copy_only=False)
    columns = {name: table.column(name).to_pylist() for name in _CELLS.names if name not in lists}
    keys = zip(*(columns[name] for name in ("part", *DIMENSIONS, "labels")), strict=True)
    bounds = zip(columns["low"], columns["high"], strict=True)
    for place, (key, (low, high)) in enumerate(zip(keys, bounds, strict=True)):
        histogram = None
        if is_known[place]:
            part = slice(int(ends[place]), int(ends[place + 1]))
            histogram = Histogram(buckets[part], counts[part], low, high)
        if key[0] == _SEQUENCES and histogram is not None:
            ranges = np.stack([histogram.buckets, histogram.counts], axis=1)
            rollup.sequences[key[1] or "", key[6][0]] = ranges
        else:
            measures = {name: columns[name][place] for name in _MEASURES}
            rollup.cells[Key._make((*key[:6], tuple(key[6])))] = RollupCell(**measures, histogram=histogram)
    return rollup
