"""The manifest: the one file that says which segments make up the store.

A segment exists for a reader only when the manifest names it, so replacing this small file atomically is what commits
an append or a compaction. The manifest before it is kept beside it. A folder that holds segments but no manifest is a
damaged store, never an empty one.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec
from isal import isal_zlib

from telemetry.model.errors import StoreError
from telemetry.store.private_files import write_durably

MANIFEST_NAME: Final = "manifest.json"
PREVIOUS_NAME: Final = "manifest.previous.json"
SEGMENTS_FOLDER: Final = "segments"
QUARANTINE_FOLDER: Final = "quarantine"
LOCK_NAME: Final = "writer.lock"
TEMPORARY_SUFFIX: Final = ".tmp"
MANIFEST_VERSION: Final = 4
# What file systems that have no links answer.
_WITHOUT_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_READ_CHUNK_BYTES: Final = 1 << 18
# Table, number and CRC-32 of the content; or the roll-up of a segment. Half-written files end in `.tmp`, and what was
# set aside under a name that was taken in a number.
_OWN_NAME: Final = re.compile(
    r"(?P<file>(?:(?:turns|spans|points)-(?P<number>\d{9,})-(?P<crc32>[0-9a-f]{8})|rollup-[\w.-]+)\.parquet)"
    r"(?:\.tmp)?(?:\.\d+)?"
)

_ROLLUP_NAME: Final = re.compile(r"rollup-[\w.-]+-(?P<crc32>[0-9a-f]{8})\.parquet(?:\.\d+)?")

Table = Literal["turns", "spans", "points"]
TABLES: Final[tuple[Table, ...]] = ("turns", "spans", "points")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable Parquet file. `level` counts the compactions it went through; `crc32` is of the whole file.

    `raw_bytes` is what its rows take in memory. `first_unix_ns` and `last_unix_ns` are the bounds of the rows' time
    (None when it has no rows), `stored_unix_ns` is when the newest of them was stored. `run_ids` are the runs of its
    rows in order, None when they are many or unknown, and `runs_stored_unix_ns` when the newest row of each was stored.
    `rollup` is the file that holds its partial answers.
    """

    table: Table
    file: str
    rows: int
    size_bytes: int
    crc32: int
    raw_bytes: int
    stored_unix_ns: int
    level: int = 0
    first_unix_ns: int | None = None
    last_unix_ns: int | None = None
    run_ids: tuple[str, ...] | None = None
    runs_stored_unix_ns: tuple[int, ...] | None = None
    rollup: str | None = None
    rollup_bytes: int = 0

    @property
    def kept_bytes(self) -> int:
        """What it takes on the disk with its roll-up."""
        return self.size_bytes + self.rollup_bytes

    def run_stored_unix_ns(self, run_id: str) -> int | None:
        """When the newest row of a run was stored; None where the segment does not say."""
        if self.level == 0:
            return self.stored_unix_ns  # one commit
        if self.run_ids is None or self.runs_stored_unix_ns is None or run_id not in self.run_ids:
            return None
        return self.runs_stored_unix_ns[self.run_ids.index(run_id)]


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What retention took out of a table since the store began; `until_unix_ns` is the latest moment of such a row.

    `run_ids` are runs of which rows are gone and others may still be there, as far as segments name their runs.
    """

    segments: int = 0
    rows: int = 0
    until_unix_ns: int | None = None
    run_ids: tuple[str, ...] = ()


class StoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The segments in the order of their commits. `sequence` grows with each published manifest.

    `retired` are files that it no longer names and readers of older manifests may still read; whoever finds them later
    may delete them. Those among `expired` were not merged into others. `removed` is what is missing because it was old.
    """

    version: int = MANIFEST_VERSION
    sequence: int = 0
    next_file: int = 0
    segments: tuple[Segment, ...] = ()
    retired: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    removed: dict[Table, Removed] = {}

    def of(self, table: Table) -> tuple[Segment, ...]:
        """The segments of one table, oldest first."""
        return tuple(segment for segment in self.segments if segment.table == table)

    @property
    def files(self) -> frozenset[str]:
        """The names of all files that belong to the store: segments and their roll-ups."""
        return frozenset(files_of(self.segments))


def files_of(segments: Iterable[Segment]) -> list[str]:
    """The names of the segments' files and of their roll-ups."""
    return [file for segment in segments for file in (segment.file, segment.rollup) if file is not None]


class OtherFormatError(StoreError):
    """A store that another version of voiceprobe wrote."""


class _Version(msgspec.Struct):
    version: int


def load(directory: Path) -> StoreManifest:
    """Read the manifest; a folder that holds nothing of a store is an empty store.

    Raises StoreError when there are segments without a manifest, and when the manifest cannot be understood.
    """
    path = directory / MANIFEST_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if any(own_files(directory)) or (directory / PREVIOUS_NAME).exists():
            raise StoreError(
                f"{path}: is missing, but the folder holds a store; `voiceprobe store repair {directory}` makes it anew"
            ) from None
        return StoreManifest()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check the permissions of the store") from error
    return decode(path, content)


def decode(path: Path, content: bytes) -> StoreManifest:
    """The manifest that a file holds. Raises StoreError when it is torn, of another format or none at all."""
    try:
        version = msgspec.json.decode(content, type=_Version).version
        if version == MANIFEST_VERSION:
            return msgspec.json.decode(content, type=StoreManifest)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"{path}: is not a store's manifest ({error}); if {path.parent} is a store, "
            f"`voiceprobe store repair {path.parent}` makes it anew, otherwise name another folder"
        ) from error
    raise OtherFormatError(
        f"{path}: has format {version}, this version reads {MANIFEST_VERSION}; "
        "use the version that wrote it or another directory"
    )


def publish(directory: Path, manifest: StoreManifest, *, keep_previous: bool = True) -> None:
    """Replace the manifest atomically. After this a reader sees it; `fsync_directory` makes the rename durable.

    The one before it becomes `manifest.previous.json`. Raises OSError, and then nothing has changed.
    """
    temporary = directory / (MANIFEST_NAME + TEMPORARY_SUFFIX)
    write_durably(temporary, msgspec.json.encode(manifest))
    try:
        if keep_previous:
            _keep_previous(directory)
        temporary.replace(directory / MANIFEST_NAME)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _keep_previous(directory: Path) -> None:
    path, kept = directory / MANIFEST_NAME, directory / (PREVIOUS_NAME + TEMPORARY_SUFFIX)
    if not path.exists():
        return
    kept.unlink(missing_ok=True)
    try:
        os.link(path, kept)
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        write_durably(kept, path.read_bytes())
    kept.replace(directory / PREVIOUS_NAME)


def own_files(directory: Path) -> Iterator[os.DirEntry[str]]:
    """The files below `segments` and `quarantine` that have a name of ours, half-written ones among them."""
    for name in (SEGMENTS_FOLDER, QUARANTINE_FOLDER):
        try:
            with os.scandir(directory / name) as entries:
                yield from (each for each in entries if is_own_name(each.name) and each.is_file(follow_symlinks=False))
        except FileNotFoundError:
            continue


def is_own_name(name: str) -> bool:
    """Whether a writer of a store could have given this name to a file."""
    return _OWN_NAME.fullmatch(name) is not None


def number_of(name: str) -> int:
    """The number in the name of a segment; -1 when it has none."""
    found = _OWN_NAME.fullmatch(name)
    return -1 if found is None or found["number"] is None else int(found["number"])


def parsed_name(name: str) -> tuple[str, int] | None:
    """The name that a segment had when it was written, and its checksum; None for all other files."""
    found = _OWN_NAME.fullmatch(name)
    return None if found is None or found["crc32"] is None else (found["file"], int(found["crc32"], 16))


def crc32_of_rollup(name: str) -> int | None:
    """The checksum in the name of a roll-up; None for all other files, and for one that was not written to its end."""
    found = _ROLLUP_NAME.fullmatch(name)
    return None if found is None else int(found["crc32"], 16)


def segment_path(directory: Path, segment: Segment) -> Path:
    """Where a segment lies."""
    return directory / SEGMENTS_FOLDER / segment.file


def with_rollup(directory: Path, segment: Segment, rollup: str | None) -> Segment:
    """The segment with a roll-up that lies beside it, or with none. Raises OSError."""
    size_bytes = 0 if rollup is None else (directory / SEGMENTS_FOLDER / rollup).stat().st_size
    return msgspec.structs.replace(segment, rollup=rollup, rollup_bytes=size_bytes)


def crc32_of(path: Path) -> int:
    """The checksum of a file's content. Raises OSError."""
    crc32 = 0
    chunk = memoryview(bytearray(_READ_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(chunk):
            crc32 = isal_zlib.crc32(chunk[:size], crc32)
    return crc32


def is_intact(directory: Path, segment: Segment) -> bool:
    """Whether the file holds exactly the bytes that were committed. Raises FileNotFoundError when it is gone."""
    path = segment_path(directory, segment)
    return path.stat().st_size == segment.size_bytes and crc32_of(path) == segment.crc32
