"""The one writer of a store: what an append has returned is on the disk, and a reader sees all of it or none of it.

An append writes one Parquet file per table, waits for the disk, renames them, makes the folder durable and replaces the
manifest. A process killed anywhere in between leaves files that no manifest names; the next writer sets them aside.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store import quarantine, segment_files
from telemetry.store.manifest import SEGMENTS_FOLDER, TEMPORARY_SUFFIX, Segment, StoreManifest, Table
from telemetry.store.private_files import fsync_directory, make_folder, open_private, write_durably
from telemetry.store.recent import KEY_COLUMNS, RECENT_LIMIT, RecentKeys, row_keys
from telemetry.store.schema import ArrowTable, Batch, points_table, spans_table, turns_table
from telemetry.store.table_redaction import table_without_text

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class AppendedTables:
    """What an append did: the rows that are durable now, as they were stored, and how many were there already."""

    turns: ArrowTable
    spans: ArrowTable
    points: ArrowTable
    duplicates: int

    @property
    def rows(self) -> int:
        """How many rows were new."""
        return self.turns.num_rows + self.spans.num_rows + self.points.num_rows


class StoreWriter:
    """Owns a store directory (created when missing) until `close`; thread-safe.

    Raises StoreError when another writer owns the directory, when it cannot be used, and when its manifest is missing,
    torn or not the last one. `keep_text` stores transcripts and prompts; without it they are removed here, so that no
    way in can store them.
    """

    def __init__(self, directory: Path, *, keep_text: bool = False, recent_limit: int = RECENT_LIMIT) -> None:
        self.directory = directory
        self._keep_text = keep_text
        self._lock = threading.Lock()
        self._number_lock = threading.Lock()
        self._recent: dict[Table, RecentKeys] = {table: RecentKeys(recent_limit) for table in manifests.TABLES}
        self._unsynced_rename = False
        self._lock_file = locked(directory)
        try:
            self._manifest = self._open()
            self._next_file = quarantine.next_number(directory, self._manifest)
            self._rebuild_recent()
        except OSError as error:
            self._lock_file.close()
            raise StoreError(f"{directory}: cannot be used as a store ({error.strerror}); name another one") from error
        except BaseException:
            self._lock_file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the directory to another writer."""
        self._lock_file.close()

    @property
    def manifest(self) -> StoreManifest:
        """What is committed at this moment."""
        return self._manifest

    def append(self, batch: Batch) -> AppendedTables:
        """As `append_tables`, of rows that are objects."""
        return self.append_tables(turns_table(batch.turns), spans_table(batch.spans), points_table(batch.points))

    def append_tables(self, turns: ArrowTable, spans: ArrowTable, points: ArrowTable) -> AppendedTables:
        """Store what is new in tables of the store's schemas; when this returns it is durable.

        Raises StoreError when it could not be written (a full disk): then nothing of it is stored, and the same tables
        may be appended again.
        """
        given: dict[Table, ArrowTable] = {"turns": turns, "spans": spans, "points": points}
        rows = sum(content.num_rows for content in given.values())
        if not self._keep_text:
            given = {table: table_without_text(table, content) for table, content in given.items()}
        with self._lock:
            fresh: dict[Table, ArrowTable] = {}
            keys: dict[Table, list[bytes]] = {}
            for table, content in given.items():
                fresh[table], keys[table] = self._fresh(table, content)
            try:
                if any(content.num_rows for content in fresh.values()):
                    self._commit(fresh)
                    for table, added in keys.items():
                        self._recent[table].add(added)
                if self._unsynced_rename:
                    fsync_directory(self.directory)
                    self._unsynced_rename = False
            except OSError as error:
                raise self._write_error(error) from error
            stored = AppendedTables(fresh["turns"], fresh["spans"], fresh["points"], 0)
            return AppendedTables(stored.turns, stored.spans, stored.points, rows - stored.rows)

    def write_segment(
        self, table: Table, content: ArrowTable, level: int, *, replaces: Sequence[Segment] = ()
    ) -> Segment:
        """Write a segment that no reader sees yet; `swap` or an append makes it part of the store. Raises OSError.

        `replaces` are the segments whose rows it takes over, so that nobody who finds both counts a row twice.
        """
        files = [segment.file for segment in replaces]
        origin = segment_files.origin_of(table, content, level, files, self._manifest.sequence)
        data = segment_files.encoded(content, origin)
        with self._number_lock:
            number = self._next_file
            self._next_file += 1
        segment = segment_files.named(origin, number, content.num_rows, data)
        path = manifests.segment_path(self.directory, segment)
        temporary = path.with_name(segment.file + TEMPORARY_SUFFIX)
        write_durably(temporary, data)
        try:
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        return segment

    def swap(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a merged segment in the place of those it was made of, in one step for every reader. Raises OSError."""
        with self._lock:
            fsync_directory(self.directory / SEGMENTS_FOLDER)
            gone = set(old)
            first = self._manifest.segments.index(old[0])
            kept = [segment for segment in self._manifest.segments if segment not in gone]
            before = sum(segment not in gone for segment in self._manifest.segments[:first])
            self._publish((*kept[:before], new, *kept[before:]))
            fsync_directory(self.directory)
            self._unsynced_rename = False

    def _commit(self, tables: dict[Table, ArrowTable]) -> None:
        """Write the tables that have rows; from its end readers see them, and a retry must find them here even if
        making the rename durable fails."""
        written: list[Segment] = []
        try:
            for table, content in tables.items():
                if content.num_rows:
                    written.append(self.write_segment(table, content, level=0))
            fsync_directory(self.directory / SEGMENTS_FOLDER)
            self._publish((*self._manifest.segments, *written))
        except OSError:
            for segment in written:
                manifests.segment_path(self.directory, segment).unlink(missing_ok=True)
            raise

    def _publish(self, segments: tuple[Segment, ...]) -> None:
        manifest = StoreManifest(sequence=self._manifest.sequence + 1, next_file=self._next_file, segments=segments)
        manifests.publish(self.directory, manifest)
        self._manifest = manifest
        self._unsynced_rename = True

    def _fresh(self, table: Table, content: ArrowTable) -> tuple[ArrowTable, list[bytes]]:
        known = self._recent[table]
        fresh: dict[bytes, int] = {}
        for place, key in enumerate(row_keys(table, content)):
            if key not in known:
                fresh.setdefault(key, place)
        if len(fresh) < content.num_rows:
            content = content.take(pa.array(fresh.values(), pa.int64()))
        return content, list(fresh)

    def _write_error(self, error: OSError) -> StoreError:
        why = "the disk is full" if error.errno in _FULL else error.strerror or str(error)
        return StoreError(f"{self.directory}: nothing of this batch could be stored ({why}); it may be sent again")

    def _open(self) -> StoreManifest:
        """The manifest, after what no manifest names was set aside. Raises StoreError, OSError."""
        manifest = manifests.load(self.directory)
        if not (self.directory / manifests.MANIFEST_NAME).exists():
            # So that from now on segments without a manifest are damage, whenever this process ends.
            manifests.publish(self.directory, manifest)
            fsync_directory(self.directory)
        make_folder(self.directory / SEGMENTS_FOLDER)
        orphans = quarantine.left_overs(self.directory, manifest)
        quarantine.refuse_outdated(self.directory, manifest, orphans)
        for path in orphans:
            quarantine.move_to_quarantine(self.directory, path)
        return manifest

    def _rebuild_recent(self) -> None:
        for table, recent in self._recent.items():
            newest_first: list[list[bytes]] = []
            count = 0
            for segment in reversed(self._manifest.of(table)):
                if count >= recent.limit:
                    break
                keys = self._segment_keys(segment)
                newest_first.append(keys)
                count += len(keys)
            for keys in reversed(newest_first):
                recent.add(keys)

    def _segment_keys(self, segment: Segment) -> list[bytes]:
        path = manifests.segment_path(self.directory, segment)
        try:
            content = pq.read_table(path, columns=list(KEY_COLUMNS[segment.table]))
        except (OSError, pa.ArrowException):
            return []  # a damaged segment is the reader's to report; its rows can no longer be told from new ones
        return row_keys(segment.table, content)


def locked(directory: Path) -> BinaryIO:
    """Make the folder of a store where it is missing and own it until the file is closed. Raises StoreError."""
    try:
        make_folder(directory)
        lock_file = open_private(directory / manifests.LOCK_NAME, os.O_APPEND)
    except OSError as error:
        raise StoreError(f"{directory}: cannot be used as a store ({error.strerror}); name another one") from error
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock_file.close()
        raise StoreError(
            f"{directory}: another sidecar is writing to this store; stop it or name another directory"
        ) from error
    return lock_file
