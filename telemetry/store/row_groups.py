"""The row groups of a segment: how large they are written, and which moments each of them holds.

Readers leave out row groups by their statistics. Small ones are left out more often, large ones are read faster.
"""

from collections.abc import Iterator
from typing import Any, Final

from telemetry.store.manifest import Segment
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_files import TIME_COLUMNS

GROUP_ROWS_MAX: Final = 1 << 16
GROUP_BYTES: Final = 16 << 20

# pyarrow ships no types of its own.
ParquetMetadata = Any


def group_rows(rows: int, raw_bytes: int, group_bytes: int) -> int:
    """How many rows take `group_bytes`, where `rows` of them take `raw_bytes`."""
    return max(1, min(GROUP_ROWS_MAX, group_bytes * rows // max(raw_bytes, 1)))


def row_groups(content: ArrowTable) -> Iterator[ArrowTable]:
    """The rows of a table in parts that are a row group each."""
    size = group_rows(content.num_rows, content.nbytes, GROUP_BYTES)
    for first in range(0, content.num_rows, size):
        yield content.slice(first, size)


def ranges(metadata: ParquetMetadata, segment: Segment) -> Iterator[tuple[int, int]]:
    """The least and the greatest moment of each row group, as far as its statistics tell, else those of the segment."""
    whole = (segment.first_unix_ns or 0, segment.last_unix_ns or 0)
    names = [metadata.schema.column(place).path for place in range(len(metadata.schema))]
    name = TIME_COLUMNS[segment.table]
    place = names.index(name) if name in names else None
    for number in range(metadata.num_row_groups):
        statistics = None if place is None else metadata.row_group(number).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            yield whole
        else:
            yield statistics.min, statistics.max
