"""The manifest: the one file that says which segments make up the store.

A segment exists for a reader only when the manifest names it, so replacing this small file atomically is what commits
an append or a compaction. Files in the segments folder which it does not name are left-overs of a killed writer.
"""

import os
import zlib
from pathlib import Path
from typing import Final, Literal

import msgspec

from telemetry.model.errors import StoreError

MANIFEST_NAME: Final = "manifest.json"
SEGMENTS_FOLDER: Final = "segments"
LOCK_NAME: Final = "writer.lock"
TEMPORARY_SUFFIX: Final = ".tmp"
MANIFEST_VERSION: Final = 3
_READ_CHUNK_BYTES: Final = 1 << 20

Table = Literal["turns", "spans", "points"]
TABLES: Final[tuple[Table, ...]] = ("turns", "spans", "points")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable Parquet file. `level` counts the compactions it went through; `crc32` is of the whole file."""

    table: Table
    file: str
    rows: int
    size_bytes: int
    crc32: int
    level: int = 0


class StoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The segments in the order of their commits. `sequence` grows with each published manifest."""

    version: int = MANIFEST_VERSION
    sequence: int = 0
    next_file: int = 0
    segments: tuple[Segment, ...] = ()

    def of(self, table: Table) -> tuple[Segment, ...]:
        """The segments of one table, oldest first."""
        return tuple(segment for segment in self.segments if segment.table == table)


def load(directory: Path) -> StoreManifest:
    """Read the manifest; a directory without one is an empty store. Raises StoreError when it cannot be understood."""
    path = directory / MANIFEST_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return StoreManifest()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check the permissions of the store") from error
    try:
        manifest = msgspec.json.decode(content, type=StoreManifest)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"{path}: is not a store's manifest ({error}); point --store at another directory or restore the file"
        ) from error
    if manifest.version != MANIFEST_VERSION:
        raise StoreError(
            f"{path}: has format {manifest.version}, this version reads {MANIFEST_VERSION}; "
            "use the version that wrote it or another directory"
        )
    return manifest


def publish(directory: Path, manifest: StoreManifest) -> None:
    """Replace the manifest atomically. After this a reader sees it; `fsync_directory` makes the rename durable."""
    temporary = directory / (MANIFEST_NAME + TEMPORARY_SUFFIX)
    write_durably(temporary, msgspec.json.encode(manifest))
    temporary.replace(directory / MANIFEST_NAME)


def write_durably(path: Path, content: bytes) -> None:
    """Write a new file and wait until the disk has its content. The name is durable only after `fsync_directory`."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def fsync_directory(directory: Path) -> None:
    """Make renames in the directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def segment_path(directory: Path, segment: Segment) -> Path:
    """Where a segment lies."""
    return directory / SEGMENTS_FOLDER / segment.file


def is_intact(directory: Path, segment: Segment) -> bool:
    """Whether the file holds exactly the bytes that were committed. Raises FileNotFoundError when it is gone."""
    path = segment_path(directory, segment)
    if path.stat().st_size != segment.size_bytes:
        return False
    crc32 = 0
    with path.open("rb") as file:
        while chunk := file.read(_READ_CHUNK_BYTES):
            crc32 = zlib.crc32(chunk, crc32)
    return crc32 == segment.crc32
