"""The file of a roll-up: Parquet, of turns with the cells in one row group and the open turns in the next.

Its name is `rollup-SEGMENT-CRC32.parquet`, with the checksum of its own content.
"""

import io
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store.manifest import Segment
from telemetry.store.private_files import write_durably
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.rollups.pairs import OPEN_COLUMNS
from telemetry.store.rollups.rollup import DIMENSIONS, Key, Rollup, RollupCell, sorted_cells
from telemetry.store.schema import SCHEMAS, ArrowTable

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# Grows when a roll-up's content changes its meaning: one of another version is made anew.
VERSION: Final = 1
_VERSION_KEY: Final = b"voiceprobe.rollup"
_SEGMENT_KEY: Final = b"segment_crc32"
_SUFFIX: Final = ".parquet"
SEQUENCES: Final = "sequence"
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
_BOTH: Final = pa.schema([*_CELLS, *(pa.field(_OPEN_PREFIX + field.name, field.type) for field in OPEN_SCHEMA)])


def metadata(segment_crc32: int) -> dict[bytes, bytes]:
    """What the file of a roll-up says of itself: its version, and which segment it belongs to."""
    return {_VERSION_KEY: str(VERSION).encode(), _SEGMENT_KEY: str(segment_crc32).encode()}


def encoded(rollup: Rollup, segment_crc32: int) -> bytes:
    """The roll-up as the content of its file, which names the segment it belongs to by the segment's checksum."""
    cells = _cells_table(rollup)
    open_turns = rollup.open_turns if rollup.open_turns is not None else OPEN_SCHEMA.empty_table()
    schema = _BOTH.with_metadata(metadata(segment_crc32))
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
    return sink.getvalue()


def decoded(content: bytes, segment_crc32: int, parts: frozenset[str] | None = None) -> Rollup:
    """The roll-up in the content of a file; of named `parts` only the cells of those. Raises StoreError when it is
    damaged, of another version, or of another segment."""
    file = opened(content, segment_crc32)
    try:
        cells = file.read_row_group(0, columns=_CELLS.names)
        names = [_OPEN_PREFIX + name for name in OPEN_COLUMNS]
        has_open_turns = parts is None and file.num_row_groups > 1
        open_turns = file.read_row_group(1, columns=names) if has_open_turns else None
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"the roll-up cannot be read ({error})") from error
    if parts is not None:
        cells = cells.filter(pc.is_in(cells.column("part"), pa.array(sorted(parts))))
    rollup = _rollup(cells)
    if open_turns is not None:
        rollup.open_turns = open_turns.rename_columns(list(OPEN_COLUMNS)).cast(OPEN_SCHEMA)
    return rollup


def opened(content: bytes, segment_crc32: int) -> Any:
    """The Parquet file in the content of a roll-up's file. Raises StoreError as `decoded`."""
    try:
        file = pq.ParquetFile(io.BytesIO(content))
        found: dict[bytes, bytes] = file.schema_arrow.metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"the roll-up cannot be read ({error})") from error
    expected = metadata(segment_crc32)
    if found.get(_VERSION_KEY) != expected[_VERSION_KEY]:
        raise StoreError("the roll-up is of another version")
    if found.get(_SEGMENT_KEY) != expected[_SEGMENT_KEY]:
        raise StoreError("the roll-up is of another segment")
    return file


def write(folder: Path, segment: Segment, rollup: Rollup, most_bytes: int) -> str | None:
    """Write the roll-up of a segment; the file's name, or None for one that would be larger than that. Raises
    OSError."""
    return write_content(folder, segment, encoded(rollup, segment.crc32), most_bytes)


def write_content(folder: Path, segment: Segment, content: bytes, most_bytes: int) -> str | None:
    """Write the file of a segment's roll-up with this content, as `write`."""
    if len(content) > most_bytes:
        return None
    name = f"{_prefix(segment.file)}{zlib.crc32(content):08x}{_SUFFIX}"
    write_durably(folder / name, content)
    return name


def read(folder: Path, segment: Segment, parts: frozenset[str] | None = None) -> Rollup | None:
    """The roll-up that a segment names, or only some parts of it; None when it names none. Raises StoreError when it
    is missing or damaged."""
    return None if segment.rollup is None else decoded(content_of(folder / segment.rollup), segment.crc32, parts)


def read_of_file(folder: Path, file: str) -> Rollup | None:
    """The roll-up of a segment by the name of the segment's file; None when there is none that can be read."""
    for path in sorted(folder.glob(f"{_prefix(file)}*{_SUFFIX}")):
        try:
            return decoded(content_of(path), int(file.removesuffix(_SUFFIX)[-8:], 16))
        except (StoreError, ValueError):
            continue
    return None


def content_of(path: Path) -> bytes:
    """The content of a roll-up's file. Raises StoreError when it is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: the roll-up cannot be read ({error.strerror})") from error
    if path.name.removesuffix(_SUFFIX)[-8:] != f"{zlib.crc32(content):08x}":
        raise StoreError(f"{path}: the roll-up is damaged, its content is not what was written")
    return content


def _prefix(file: str) -> str:
    return f"rollup-{file.removesuffix(_SUFFIX)}-"


def _cells_table(rollup: Rollup) -> ArrowTable:
    items = sorted_cells(rollup)
    items += [
        (
            Key(SEQUENCES, run_id, None, None, None, None, (process_id,)),
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
        if key[0] == SEQUENCES and histogram is not None:
            ranges = np.stack([histogram.buckets, histogram.counts], axis=1)
            rollup.sequences[key[1] or "", key[6][0]] = ranges
        else:
            measures = {name: columns[name][place] for name in _MEASURES}
            rollup.cells[Key._make((*key[:6], tuple(key[6])))] = RollupCell(**measures, histogram=histogram)
    return rollup
