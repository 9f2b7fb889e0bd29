"""Writing a segment one row group after the other, so that memory is bounded by a row group and not by the segment."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from telemetry.store.manifest import (
    MANIFEST_VERSION,
    SEGMENTS_FOLDER,
    TEMPORARY_SUFFIX,
    Segment,
    Table,
    segment_path,
)
from telemetry.store.private_files import open_private
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_files import METADATA_KEY, RUN_IDS_MAX, Origin, bounds_of, named, run_ids_of
from telemetry.store.trace_filters import FILTER_ROWS_MIN, trace_filters

_COMPRESSION: Final = "zstd"
# The name of a file carries its checksum, which is known when all of it is written.
_UNKNOWN_CRC32: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """What is known of a segment before its rows are.

    `number` is for its name, `replaces` are files whose rows it takes over, `sequence` is that of the manifest
    published back then, `stored_unix_ns` is when the newest of its rows was stored, `of_segments` are the segments that
    hold them so far. `filter_rows_min` is how many rows make it large enough for filters of its traces.
    """

    table: Table
    number: int
    sequence: int
    stored_unix_ns: int
    level: int = 0
    replaces: tuple[str, ...] = ()
    filter_rows_min: int = FILTER_ROWS_MIN
    of_segments: tuple[Segment, ...] = ()

    def runs_stored_unix_ns(self, run_ids: Sequence[str]) -> tuple[int, ...] | None:
        """When the newest row of each run was stored; None where that of one of them is not known."""
        if self.level == 0:
            return None  # the same for all
        found = [self._run_stored_unix_ns(run_id) for run_id in run_ids]
        known = tuple(each for each in found if each is not None)
        return known if len(known) == len(found) else None

    def _run_stored_unix_ns(self, run_id: str) -> int | None:
        holding = [each for each in self.of_segments if each.run_ids is None or run_id in each.run_ids]
        found = [each.run_stored_unix_ns(run_id) for each in holding]
        return None if not found or None in found else max(each for each in found if each is not None)


def write_segment(directory: Path, new: NewSegment, groups: Iterable[ArrowTable]) -> Segment:
    """Write a segment which no manifest names yet, one row group after the other; it is either whole or not there.

    At least one row group must be given. Raises OSError and whatever reading the groups raises.
    """
    name = f"{new.table}-{new.number:09d}-{_UNKNOWN_CRC32:08x}.parquet{TEMPORARY_SUFFIX}"
    temporary = directory / SEGMENTS_FOLDER / name
    try:
        with _Stream(temporary, new) as stream:
            for group in groups:
                stream.write(group)
            segment = stream.finish()
        temporary.replace(segment_path(directory, segment))
    except Exception:
        temporary.unlink(missing_ok=True)
        raise
    return segment


class _Stream:
    """A Parquet file being written; its footer says what the rows were."""

    def __init__(self, path: Path, new: NewSegment) -> None:
        self._new = new
        self._file = _Checksummed(open_private(path, os.O_TRUNC))
        self._parquet: Any = None
        self._rows = self._raw_bytes = 0
        self._first: int | None = None
        self._last: int | None = None
        self._run_ids: frozenset[str] | None = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._file.close()

    def write(self, group: ArrowTable) -> None:
        if self._parquet is None:
            sink = pa.PythonFile(self._file, mode="w")
            filters = trace_filters(group, self._new.filter_rows_min)
            self._parquet = pq.ParquetWriter(sink, group.schema, compression=_COMPRESSION, bloom_filter_options=filters)
        self._parquet.write_table(group, row_group_size=max(group.num_rows, 1))
        first, last = bounds_of(self._new.table, group)
        self._first = min((each for each in (self._first, first) if each is not None), default=None)
        self._last = max((each for each in (self._last, last) if each is not None), default=None)
        found = run_ids_of(group)
        united = None if self._run_ids is None or found is None else self._run_ids | found
        self._run_ids = united if united is not None and len(united) <= RUN_IDS_MAX else None
        self._rows += group.num_rows
        self._raw_bytes += group.nbytes

    def finish(self) -> Segment:
        """Write the footer and wait for the disk; the segment that the file is under its final name. Raises OSError."""
        run_ids = None if self._run_ids is None else tuple(sorted(self._run_ids))
        origin = Origin(
            format=MANIFEST_VERSION,
            table=self._new.table,
            level=self._new.level,
            raw_bytes=self._raw_bytes,
            stored_unix_ns=self._new.stored_unix_ns,
            first_unix_ns=self._first,
            last_unix_ns=self._last,
            run_ids=run_ids,
            runs_stored_unix_ns=None if run_ids is None else self._new.runs_stored_unix_ns(run_ids),
            replaces=self._new.replaces,
            sequence=self._new.sequence,
        )
        self._parquet.add_key_value_metadata({METADATA_KEY: msgspec.json.encode(origin)})
        self._parquet.close()
        self._file.sync()
        return named(origin, self._new.number, self._rows, self._file.size_bytes, self._file.crc32)


class _Checksummed:
    """What pyarrow writes to: a file that counts its bytes and knows their CRC-32."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size_bytes = 0
        self.crc32 = 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> int:
        self.crc32 = isal_zlib.crc32(data, self.crc32)
        self.size_bytes += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
