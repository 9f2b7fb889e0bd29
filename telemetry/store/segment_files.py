"""A segment as a Parquet file that says of itself what the manifest says of it: so a manifest can be made anew.

The name carries the CRC-32 of the whole file. The footer's key-value metadata holds the rest under `voiceprobe`, and
the files whose rows a merged segment took over: as long as it is intact, those must not be counted beside it.
"""

from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from telemetry.store.manifest import MANIFEST_VERSION, Segment, Table
from telemetry.store.schema import ArrowTable

METADATA_KEY: Final = "voiceprobe"
TIME_COLUMNS: Final[dict[Table, str]] = {"turns": "started_unix_ns", "spans": "timestamp_unix_ns", "points": "unix_ns"}
RUN_COLUMN: Final = "run_id"
RUN_IDS_MAX: Final = 16


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What the footer says: the segment's fields, the files it `replaces`, and the manifest's `sequence` back then."""

    format: int
    table: Table
    level: int
    raw_bytes: int
    stored_unix_ns: int
    first_unix_ns: int | None
    last_unix_ns: int | None
    run_ids: tuple[str, ...] | None
    replaces: tuple[str, ...]
    sequence: int
    runs_stored_unix_ns: tuple[int, ...] | None = None


def bounds_of(table: Table, content: ArrowTable) -> tuple[int | None, int | None]:
    """The least and the greatest moment of the rows; None without rows."""
    bounds = pc.call_function("min_max", [content.column(TIME_COLUMNS[table])]).as_py()
    return bounds["min"], bounds["max"]


def run_ids_of(content: ArrowTable) -> frozenset[str] | None:
    """The runs of the rows; None when they are many, or when the table does not tell."""
    if RUN_COLUMN not in content.schema.names:
        return None
    found = content.column(RUN_COLUMN).unique().drop_null()
    return frozenset(found.to_pylist()) if len(found) <= RUN_IDS_MAX else None


def named(origin: Origin, number: int, rows: int, size_bytes: int, crc32: int) -> Segment:
    """The segment that a file of this content is, under the name that it shall have."""
    return _segment(origin, f"{origin.table}-{number:09d}-{crc32:08x}.parquet", rows, size_bytes, crc32)


def read_footer(path: Path, crc32: int) -> tuple[Segment, Origin] | None:
    """The segment that a file says it is, whatever its present name, and its footer; None when it is not one of ours.

    `crc32` is that of its content. Raises OSError.
    """
    try:
        metadata = pq.read_metadata(path)
        origin = msgspec.json.decode((metadata.metadata or {})[METADATA_KEY.encode()], type=Origin)
    except (KeyError, msgspec.DecodeError, pa.ArrowException):
        return None
    except OSError as error:
        if error.errno is None:  # Arrow's word for a footer that it cannot decode
            return None
        raise
    if origin.format != MANIFEST_VERSION:
        return None
    return _segment(origin, path.name, metadata.num_rows, path.stat().st_size, crc32), origin


def _segment(origin: Origin, file: str, rows: int, size_bytes: int, crc32: int) -> Segment:
    return Segment(
        table=origin.table,
        file=file,
        rows=rows,
        size_bytes=size_bytes,
        crc32=crc32,
        raw_bytes=origin.raw_bytes,
        stored_unix_ns=origin.stored_unix_ns,
        level=origin.level,
        first_unix_ns=origin.first_unix_ns,
        last_unix_ns=origin.last_unix_ns,
        run_ids=origin.run_ids,
        runs_stored_unix_ns=origin.runs_stored_unix_ns,
    )
