"""The one writer of a store: what `append` has returned is on the disk, and a reader sees all of it or none of it.

An append writes one Parquet file per table, waits for the disk, renames them, makes the folder durable and replaces the
manifest. A process killed anywhere in between leaves files that no manifest names; the next writer removes them.
"""

import errno
import fcntl
import io
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.manifest import SEGMENTS_FOLDER, TEMPORARY_SUFFIX, Segment, StoreManifest, Table
from telemetry.store.recent import RECENT_LIMIT, RecentKeys, point_key, span_key, span_row_key, turn_key
from telemetry.store.redaction import span_without_text, turn_without_text, without_text
from telemetry.store.schema import ArrowTable, Batch, PointRow, points_table, spans_table, turn_from_row, turns_table

_Item = TypeVar("_Item")
_COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did: what is durable now (as stored, without text), and how many rows were there already."""

    stored: Batch
    duplicates: int


class StoreWriter:
    """Owns a store directory (created when missing) until `close`; thread-safe.

    Raises StoreError when another writer owns the directory or it cannot be used. `keep_text` stores transcripts and
    prompts; without it they are removed here, so that no way in can store them.
    """

    def __init__(self, directory: Path, *, keep_text: bool = False, recent_limit: int = RECENT_LIMIT) -> None:
        self.directory = directory
        self._keep_text = keep_text
        self._lock = threading.Lock()
        self._recent: dict[Table, RecentKeys] = {table: RecentKeys(recent_limit) for table in manifests.TABLES}
        self._unsynced_rename = False
        try:
            (directory / SEGMENTS_FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock_file = (directory / manifests.LOCK_NAME).open("ab")
        except OSError as error:
            raise StoreError(f"{directory}: cannot be used as a store ({error.strerror}); name another one") from error
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock_file.close()
            raise StoreError(
                f"{directory}: another sidecar is writing to this store; stop it or name another directory"
            ) from error
        try:
            self._manifest = manifests.load(directory)
            self._remove_orphans()
            self._rebuild_recent()
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

    def append(self, batch: Batch) -> Appended:
        """Store what is new in the batch; when this returns it is durable.

        Raises StoreError when it could not be written (a full disk): then nothing of it is stored, and the same batch
        may be appended again.
        """
        if not self._keep_text:
            batch = _batch_without_text(batch)
        with self._lock:
            turns, turn_keys = self._fresh("turns", batch.turns, turn_key)
            spans, span_keys = self._fresh("spans", batch.spans, span_row_key)
            points, point_keys = self._fresh("points", batch.points, point_key)
            tables: list[tuple[Table, ArrowTable]] = []
            if turns:
                tables.append(("turns", turns_table(turns)))
            if spans:
                tables.append(("spans", spans_table(spans)))
            if points:
                tables.append(("points", points_table(points)))
            try:
                if tables:
                    self._commit(tables, {"turns": turn_keys, "spans": span_keys, "points": point_keys})
                if self._unsynced_rename:
                    manifests.fsync_directory(self.directory)
                    self._unsynced_rename = False
            except OSError as error:
                raise self._write_error(error) from error
            stored = Batch(turns, spans, points)
            return Appended(stored, batch.rows - stored.rows)

    def write_segment(self, table: Table, content: ArrowTable, level: int) -> Segment:
        """Write a segment that no reader sees yet; `swap` or an append makes it part of the store. Raises OSError."""
        buffer = io.BytesIO()
        pq.write_table(content, buffer, compression=_COMPRESSION)
        data = buffer.getvalue()
        with self._number_lock:
            number = self._next_file
            self._next_file += 1
        name = f"{table}-{number:09d}.parquet"
        path = self.directory / SEGMENTS_FOLDER / name
        temporary = path.with_name(name + TEMPORARY_SUFFIX)
        try:
            manifests.write_durably(temporary, data)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        return Segment(
            table=table, file=name, rows=content.num_rows, size_bytes=len(data), crc32=zlib.crc32(data), level=level
        )

    def swap(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a merged segment in the place of those it was made of, in one step for every reader. Raises OSError."""
        with self._lock:
            manifests.fsync_directory(self.directory / SEGMENTS_FOLDER)
            gone = set(old)
            first = self._manifest.segments.index(old[0])
            kept = [segment for segment in self._manifest.segments if segment not in gone]
            before = sum(segment not in gone for segment in self._manifest.segments[:first])
            self._publish((*kept[:before], new, *kept[before:]))
            manifests.fsync_directory(self.directory)
            self._unsynced_rename = False

    def _commit(self, tables: list[tuple[Table, ArrowTable]], keys: dict[Table, list[bytes]]) -> None:
        written: list[Segment] = []
        try:
            for table, content in tables:
                written.append(self.write_segment(table, content, level=0))
            manifests.fsync_directory(self.directory / SEGMENTS_FOLDER)
            self._publish((*self._manifest.segments, *written))
        except OSError:
            for segment in written:
                manifests.segment_path(self.directory, segment).unlink(missing_ok=True)
            raise
        # From here readers see the rows: a retry must find them here even if making the rename durable fails.
        for table, added in keys.items():
            self._recent[table].add(added)

    def _publish(self, segments: tuple[Segment, ...]) -> None:
        manifest = StoreManifest(sequence=self._manifest.sequence + 1, next_file=self._next_file, segments=segments)
        manifests.publish(self.directory, manifest)
        self._manifest = manifest
        self._unsynced_rename = True

    def _fresh(
        self, table: Table, items: Sequence[_Item], key_of: Callable[[_Item], bytes]
    ) -> tuple[list[_Item], list[bytes]]:
        known = self._recent[table]
        fresh: dict[bytes, _Item] = {}
        for item in items:
            key = key_of(item)
            if key not in known and key not in fresh:
                fresh[key] = item
        return list(fresh.values()), list(fresh)

    def _write_error(self, error: OSError) -> StoreError:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        return StoreError(f"{self.directory}: nothing of this batch could be stored ({why}); it may be sent again")

    def _remove_orphans(self) -> None:
        self._number_lock = threading.Lock()
        self._next_file = self._manifest.next_file
        named = {segment.file for segment in self._manifest.segments}
        for path in (self.directory / SEGMENTS_FOLDER).iterdir():
            if path.name not in named and path.suffix in (".parquet", TEMPORARY_SUFFIX):
                path.unlink(missing_ok=True)
        (self.directory / (manifests.MANIFEST_NAME + TEMPORARY_SUFFIX)).unlink(missing_ok=True)

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
        columns = {
            "turns": ["trace_id", "span_id", "run_id", "call_id", "turn_index", "source"],
            "spans": ["trace_id", "span_id"],
            "points": ["name", "unix_ns", "service", "attributes"],
        }[segment.table]
        try:
            rows: list[dict[str, Any]] = pq.read_table(path, columns=columns).to_pylist()
        except (OSError, pa.ArrowException):
            return []  # a damaged segment is the reader's to report; its rows can no longer be told from new ones
        if segment.table == "spans":
            return [span_key(row["trace_id"], row["span_id"]) for row in rows]
        if segment.table == "points":
            return [
                point_key(
                    PointRow(row["name"], row["unix_ns"], 0.0, msgspec.json.decode(row["attributes"]), row["service"])
                )
                for row in rows
            ]
        return [
            turn_key(turn_from_row(row | {"outcome": "ok", "started_unix_ns": 0, "started_perf_ns": 0})) for row in rows
        ]


def _batch_without_text(batch: Batch) -> Batch:
    return Batch(
        turns=[turn_without_text(turn) for turn in batch.turns],
        spans=[span_without_text(span) for span in batch.spans],
        points=[replace(point, attributes=without_text(point.attributes)) for point in batch.points],
    )
