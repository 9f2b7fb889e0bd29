"""The file of a roll-up: Parquet, of turns with the cells in one row group, the open turns in the next, and then the
cells of each family of slots (telemetry.store.rollups.slot_tree), where `slot` is the place of a member. The last one,
where there is one, has the cells by combination of values (telemetry.store.rollups.by_value), which `slot` names.

Its name is `rollup-SEGMENT-CRC32.parquet`, with the checksum of its own content.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from isal import isal_zlib

from telemetry.model.errors import StoreError
from telemetry.store.manifest import Segment
from telemetry.store.private_files import write_durably
from telemetry.store.rollups import slot_tree
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.by_value import VALUES
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.rollups.pairs import OPEN_COLUMNS
from telemetry.store.rollups.rollup import DIMENSIONS, Key, Rollup, RollupCell, SegmentRollup, sorted_cells
from telemetry.store.rollups.slot_tree import Cells, Member
from telemetry.store.rollups.staged import with_labels
from telemetry.store.schema import SCHEMAS, ArrowTable

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# Grows when a roll-up's content changes its meaning: one of another version is made anew.
VERSION: Final = 10
_VERSION_KEY: Final = b"voiceprobe.rollup"
_SEGMENT_KEY: Final = b"segment_crc32"
_FAMILIES_KEY: Final = b"families"
_VALUES_KEY: Final = b"values"
_OPEN_TURNS: Final = 1  # row groups
_FIRST_FAMILY: Final = 2
# Of turns whose source or run a window does not tell apart: kept of all times and values only.
_OF_ALL_TIMES: Final = frozenset({"run", "run_target", "run_protocol", "service"})
_SUFFIX: Final = ".parquet"
SEQUENCES: Final = "sequence"
_OF_EVERY_RUN: Final = frozenset({SEQUENCES, "service"})
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


def encoded(rollup: SegmentRollup, segment_crc32: int) -> bytes:
    """The roll-up as the content of its file, which names the segment it belongs to by the segment's checksum."""
    cells, open_turns = rollup.by_slot.cells, rollup.by_slot.open_turns
    families = list(slot_tree.families(_of_slots(cells)))
    members = msgspec.json.encode([[member for member, _ in family] for family in families])
    found = metadata(segment_crc32) | {_FAMILIES_KEY: members}
    if rollup.by_value is not None:
        found[_VALUES_KEY] = b"1"
    schema = _BOTH.with_metadata(found)
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
        whole = _cells_table(Rollup(slot_tree.whole(cells), rollup.by_slot.sequences))
        open_turns = OPEN_SCHEMA.empty_table() if open_turns is None else open_turns
        for table in (whole, open_turns.rename_columns([_OPEN_PREFIX + name for name in OPEN_COLUMNS])):
            writer.write_table(_filled(table, schema))
        for family in families:
            placed = {
                key._replace(slot=str(place)): cell
                for place, (_, cells_of_member) in enumerate(family)
                for key, cell in cells_of_member.items()
            }
            writer.write_table(_filled(_cells_table(Rollup(placed)), schema))
        if rollup.by_value is not None:
            writer.write_table(_filled(_cells_table(Rollup(_of_slots(rollup.by_value.cells))), schema))
    return sink.getvalue()


def _of_slots(cells: Cells) -> Cells:
    """The cells that have a slot, or a combination in its place."""
    return {key: cell for key, cell in cells.items() if key.slot is not None and key.part not in _OF_ALL_TIMES}


class RollupFile:
    """The content of the file of a segment's roll-up, of which only what is asked for is decoded.

    Raises StoreError when it is damaged, of another version, or of another segment; so do its methods.
    """

    def __init__(self, content: bytes, segment_crc32: int) -> None:
        self._file = opened(content, segment_crc32)
        found: dict[bytes, bytes] = self._file.schema_arrow.metadata
        self.families = msgspec.json.decode(found[_FAMILIES_KEY], type=list[list[Member]])
        self.has_values = _VALUES_KEY in found

    def rollup(self, run_id: str | None = None, parts: frozenset[str] | None = None) -> Rollup:
        """The turns of all times, without those that are open; of one run, beside what is asked of all turns of
        services, if one is named; with named `parts` only the cells of those."""
        cells = self._cells(0)
        if parts is not None:
            cells = cells.filter(pc.is_in(cells.column("part"), pa.array(sorted(parts))))
        if run_id is not None:
            is_of_all = pc.is_in(cells.column("part"), pa.array(sorted(_OF_EVERY_RUN)))
            cells = cells.filter(pc.or_(is_of_all, pc.equal(cells.column("run_id"), run_id).fill_null(False)))
        return _rollup(cells)

    def of_other_runs(self) -> Rollup:
        """What of a segment is asked for a run that it holds no turn of."""
        return self.rollup(parts=_OF_EVERY_RUN)

    def members(
        self, taken: Mapping[int, Sequence[int]], run_id: str | None, parts: frozenset[str] | None = None
    ) -> Iterator[tuple[Key, RollupCell]]:
        """The cells of some members of families, by the places of the members; of one run if one is named, and of
        these parts if any are."""
        for number, places in taken.items():
            cells = self._cells(_FIRST_FAMILY + number)
            is_meant = pc.is_in(cells.column("slot"), pa.array([str(place) for place in places], pa.string()))
            if parts is not None:
                is_meant = pc.and_(is_meant, pc.is_in(cells.column("part"), pa.array(sorted(parts))))
            if run_id is not None:
                is_meant = pc.and_(is_meant, pc.equal(cells.column("run_id"), run_id).fill_null(False))
            found = cells.filter(is_meant)
            place = found.column_names.index("slot")
            yield from _cells_of(found.set_column(place, "slot", pa.nulls(found.num_rows, pa.string())))

    def by_slot(self) -> Rollup:
        """The roll-up with the cells of each slot apart, and those that are of all times only."""
        rollup = self.rollup()
        rollup.open_turns = self.open_turns()
        cells = {key: cell for key, cell in rollup.cells.items() if key.part in _OF_ALL_TIMES}
        for number, family in enumerate(self.families):
            names = {str(place): member.slot.name for place, member in enumerate(family) if member.family is None}
            for key, cell in _cells_of(self._cells(_FIRST_FAMILY + number)) if names else ():
                if key.slot in names:
                    cells[key._replace(slot=names[key.slot])] = cell
        return Rollup(cells, rollup.sequences, rollup.open_turns)

    def by_value(self) -> Rollup | None:
        """The cells of each combination of values apart, with the open turns; None where they are not known."""
        if not self.has_values:
            return None
        return Rollup(dict(_cells_of(self._cells(self._of_values))), {}, with_labels(self.open_turns(), VALUES))

    def values(self, run_id: str | None) -> ArrowTable | None:
        """The rows of the cells of each combination of values, which stands in the column `slot`; of one run if one is
        named. None where they are not known."""
        if not self.has_values:
            return None
        cells = self._cells(self._of_values)
        return cells if run_id is None else cells.filter(pc.equal(cells.column("run_id"), run_id).fill_null(False))

    @property
    def _of_values(self) -> int:
        return _FIRST_FAMILY + len(self.families)

    def _cells(self, row_group: int) -> ArrowTable:
        return self._read(row_group, _CELLS.names)

    def open_turns(self) -> ArrowTable:
        """The turns that are open (columns OPEN_COLUMNS)."""
        found = self._read(_OPEN_TURNS, [_OPEN_PREFIX + name for name in OPEN_COLUMNS])
        return found.rename_columns(list(OPEN_COLUMNS)).cast(OPEN_SCHEMA)

    def _read(self, row_group: int, names: Sequence[str]) -> ArrowTable:
        try:
            return self._file.read_row_group(row_group, columns=list(names))
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"the roll-up cannot be read ({error})") from error


def opened(content: bytes, segment_crc32: int) -> Any:
    """The Parquet file in the content of a roll-up's file. Raises StoreError as RollupFile."""
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


def is_current(path: Path, segment_crc32: int) -> bool:
    """Whether a file holds the roll-up of a segment as this version writes it."""
    try:
        opened(content_of(path), segment_crc32)
    except StoreError:
        return False
    return True


def write(folder: Path, segment: Segment, rollup: SegmentRollup, most_bytes: int) -> str | None:
    """Write the roll-up of a segment, without what is by value where it would be larger than that; the file's name, or
    None where it still would be. Raises OSError."""
    content = encoded(rollup, segment.crc32)
    if len(content) > most_bytes and rollup.by_value is not None:
        content = encoded(SegmentRollup(rollup.by_slot), segment.crc32)
    return write_content(folder, segment, content, most_bytes)


def write_content(folder: Path, segment: Segment, content: bytes, most_bytes: int) -> str | None:
    """Write the file of a segment's roll-up with this content, as `write`."""
    if len(content) > most_bytes:
        return None
    name = f"{_prefix(segment.file)}{isal_zlib.crc32(content):08x}{_SUFFIX}"
    write_durably(folder / name, content)
    return name


def read(folder: Path, segment: Segment) -> RollupFile | None:
    """The roll-up that a segment names; None when it names none. Raises StoreError when it is missing or damaged."""
    return None if segment.rollup is None else RollupFile(content_of(folder / segment.rollup), segment.crc32)


def read_of_file(folder: Path, file: str) -> SegmentRollup | None:
    """The roll-up of a segment by the name of the segment's file; None when there is none that can be read."""
    for path in sorted(folder.glob(f"{_prefix(file)}*{_SUFFIX}")):
        try:
            found = RollupFile(content_of(path), int(file.removesuffix(_SUFFIX)[-8:], 16))
            return SegmentRollup(found.by_slot(), found.by_value())
        except (StoreError, ValueError):
            continue
    return None


def content_of(path: Path) -> bytes:
    """The content of a roll-up's file. Raises StoreError when it is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: the roll-up cannot be read ({error.strerror})") from error
    if path.name.removesuffix(_SUFFIX)[-8:] != f"{isal_zlib.crc32(content):08x}":
        raise StoreError(f"{path}: the roll-up is damaged, its content is not what was written")
    return content


def _prefix(file: str) -> str:
    return f"rollup-{file.removesuffix(_SUFFIX)}-"


def _cells_table(rollup: Rollup) -> ArrowTable:
    items = sorted_cells(rollup)
    items += [
        (
            Key(SEQUENCES, run_id, None, None, None, None, None, (process_id,)),
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
    for key, cell in _cells_of(table):
        if key.part == SEQUENCES and cell.histogram is not None:
            ranges = np.stack([cell.histogram.buckets, cell.histogram.counts], axis=1)
            rollup.sequences[key.run_id or "", key.labels[0] or ""] = ranges
        else:
            rollup.cells[key] = cell
    return rollup


def _cells_of(table: ArrowTable) -> Iterator[tuple[Key, RollupCell]]:
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
        measures = {name: columns[name][place] for name in _MEASURES}
        yield Key._make((*key[:-1], tuple(key[-1]))), RollupCell(**measures, histogram=histogram)
