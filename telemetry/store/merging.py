"""Merging segments in the order of their rows' moments with bounded memory, whatever their size.

Row groups are read in the order in which they begin. Rows that lie before everything still unread are settled: they are
sorted and given out. Where row groups overlap so far that too much waits, what waits is given out all the same; the
order is then kept within it only, and readers leave out a little less.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from telemetry.store import identity, row_groups
from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment, Table
from telemetry.store.schema import SCHEMAS, ArrowTable

WAITING_BYTES_MAX: Final = row_groups.GROUP_BYTES * 5 // 4
_READ_BYTES: Final = 4 << 20

# pyarrow ships no types of its own.
ArrowSchema = Any
ParquetFile = Any


class UnreadableError(Exception):
    """A segment is not the file that was committed; `segment` says which."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.file} is damaged")
        self.segment = segment


@dataclass(frozen=True, slots=True)
class _UnreadGroup:
    """A row group to read: `first_unix_ns` is the least moment of its rows."""

    segment: Segment
    file: ParquetFile
    number: int
    first_unix_ns: int

    def batches(self) -> Iterator[ArrowTable]:
        rows = row_groups.group_rows(self.segment.rows, self.segment.raw_bytes, _READ_BYTES)
        try:
            yield from self.file.iter_batches(rows, [self.number], use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise _fault(self.segment, error) from error


def merged(directory: Path, segments: Sequence[Segment]) -> Iterator[ArrowTable]:
    """The rows of segments of one table, as parts that are a row group each.

    Columns that a segment does not have are unknown in its rows. Raises UnreadableError for a damaged segment, and
    OSError when one cannot be read now.
    """
    table = segments[0].table
    with contextlib.ExitStack() as opened:
        files = [(segment, _open(directory, segment, opened)) for segment in segments]
        schema = _schema(table, [file.schema_arrow for _, file in files])
        groups = sorted(
            (group for segment, file in files for group in _groups(segment, file)), key=lambda each: each.first_unix_ns
        )
        waiting = _UnsettledRows(table)
        for place, group in enumerate(groups):
            for batch in group.batches():
                waiting.add(_with_schema(batch, schema))
                if waiting.raw_bytes >= WAITING_BYTES_MAX:
                    yield from waiting.take(waiting.rows)
            if place + 1 < len(groups):
                yield from waiting.take(waiting.rows_before(groups[place + 1].first_unix_ns))
        yield from waiting.take(waiting.rows, everything=True)


class _UnsettledRows:
    """Rows that were read and not given out yet."""

    def __init__(self, table: Table) -> None:
        self._table: Table = table
        self._parts: list[ArrowTable] = []
        self._moments: list[NDArray[np.int64]] = []
        self.rows = 0
        self.raw_bytes = 0

    def add(self, part: ArrowTable) -> None:
        self._parts.append(part)
        self._moments.append(identity.starts(self._table, part))
        self.rows += part.num_rows
        self.raw_bytes += part.nbytes

    def rows_before(self, moment: int) -> int:
        return sum(int(np.count_nonzero(each < moment)) for each in self._moments)

    def take(self, count: int, *, everything: bool = False) -> Iterator[ArrowTable]:
        """Give out the first `count` rows in the order of their moments: whole row groups only, or everything."""
        size = row_groups.group_rows(self.rows, self.raw_bytes, row_groups.GROUP_BYTES)
        count = count if everything else count - count % size
        if not count:
            return
        order = np.argsort(np.concatenate(self._moments), kind="stable")
        content = pa.concat_tables(self._parts).combine_chunks()
        self._parts, self._moments, self.rows, self.raw_bytes = [], [], 0, 0
        for first in range(0, count, size):
            yield content.take(pa.array(order[first : min(first + size, count)]))
            pa.default_memory_pool().release_unused()
        if count < len(order):
            self.add(content.take(pa.array(order[count:])))


def _open(directory: Path, segment: Segment, opened: contextlib.ExitStack) -> ParquetFile:
    try:
        if not manifests.is_intact(directory, segment):
            raise UnreadableError(segment)
        source = opened.enter_context(manifests.segment_path(directory, segment).open("rb"))
        return pq.ParquetFile(source)
    except (OSError, pa.ArrowException) as error:
        raise _fault(segment, error) from error


def _fault(segment: Segment, error: Exception) -> Exception:
    """Whether an error is the file's or the moment's: pyarrow gives no errno where the content is at fault."""
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
        return OSError(error.errno, error.strerror or str(error), segment.file)
    return UnreadableError(segment)


def _groups(segment: Segment, file: ParquetFile) -> Iterator[_UnreadGroup]:
    for number, (first_unix_ns, _) in enumerate(row_groups.ranges(file.metadata, segment)):
        yield _UnreadGroup(segment, file, number, first_unix_ns)


def _schema(table: Table, found: Sequence[ArrowSchema]) -> ArrowSchema:
    """The current columns, and those that only a newer version knows."""
    fields = {field.name: field for field in SCHEMAS[table]}
    for schema in found:
        for field in schema:
            fields.setdefault(field.name, field)
    return pa.schema([pa.field(name, field.type) for name, field in fields.items()])


def _with_schema(batch: ArrowTable, schema: ArrowSchema) -> ArrowTable:
    if batch.schema.equals(schema):  # nearly always, and a cast of each of a hundred columns takes its time
        return pa.Table.from_batches([batch])
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
