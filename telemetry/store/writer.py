"""The one writer of a store: what an append has returned is on the disk, and a reader sees all of it or none of it.

An append writes one Parquet file per table, waits for the disk, renames them, makes the folder durable and replaces the
manifest. A process killed anywhere in between leaves files that no manifest names; the next writer sets them aside.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.store import identity, quarantine
from telemetry.store import manifest as manifests
from telemetry.store.interrupted import remove_redundant
from telemetry.store.known_items import RECENT_ROWS_MAX, KnownItems, NewRows
from telemetry.store.manifest import SEGMENTS_FOLDER, Removed, Segment, StoreManifest, Table, files_of
from telemetry.store.private_files import fsync_directory, make_folder, open_private
from telemetry.store.row_groups import row_groups
from telemetry.store.schema import ArrowTable, Batch, points_table, spans_table, turns_table
from telemetry.store.segment_stream import NewSegment, write_segment
from telemetry.store.stored_keys import StoredKeys
from telemetry.store.table_redaction import table_without_text
from telemetry.store.trace_filters import FILTER_ROWS_MIN
from telemetry.store.write_health import StoreFaults, WriteHealth, reason_of

_Segments = tuple[Segment, ...]


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

    def __init__(
        self,
        directory: Path,
        *,
        keep_text: bool = False,
        recent_rows_max: int = RECENT_ROWS_MAX,
        filter_rows_min: int = FILTER_ROWS_MIN,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.directory = directory
        self._unix_ns = unix_ns
        self._filter_rows_min = filter_rows_min
        self._keep_text = keep_text
        self._lock = threading.Lock()
        self._number_lock = threading.Lock()
        self._known = KnownItems(StoredKeys(directory), recent_rows_max=recent_rows_max)
        self._unsynced_rename = False
        self._health = WriteHealth(directory)
        self._damaged: dict[Segment, str] = {}
        self._deleted: set[str] = set()
        self._replaced: list[Segment] = []
        self._quarantined = 0
        self._lock_file = locked(directory)
        try:
            self._manifest = self._open()
            self._next_file = quarantine.next_number(directory, self._manifest)
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

    def faults(self) -> StoreFaults:
        """Whether it can store now, which segments are known to be damaged, and how much is in quarantine."""
        named = self._manifest.segments
        damaged = tuple(why for segment, why in list(self._damaged.items()) if segment in named)
        return StoreFaults(self._health.why_unwritable(), damaged, self._quarantined)

    def note_damage(self, segment: Segment, why: str) -> None:
        """Show in `faults` that the rows of a segment cannot be read, and why."""
        path = manifests.segment_path(self.directory, segment)
        self._damaged[segment] = f"{path}: {segment.rows:,} rows of {segment.table} cannot be read, {why}"

    def remove_redundant(self) -> None:
        """Delete what a killed writer left, where each row of it is in the store: to be called when the ingest log has
        been committed. Everything else stays in quarantine, and in `faults`."""
        with self._lock, contextlib.suppress(OSError):
            left = quarantine.unexplained(self.directory, self._manifest)
            self._quarantined = len(remove_redundant(self._manifest, self.directory, left))

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
            try:
                new: dict[Table, NewRows] = {
                    table: self._known.new_rows(table, content, self._manifest.of(table))
                    for table, content in given.items()
                }
                self._commit(new)
                self._sync()
            except OSError as error:
                self._health.failed(error)
                raise StoreError(
                    f"{self.directory}: nothing of this batch could be stored ({reason_of(error)}); "
                    "it may be sent again"
                ) from error
            self._health.succeeded()
            stored = {table: each.content for table, each in new.items()}
            new_count = sum(content.num_rows for content in stored.values())
            return AppendedTables(**stored, duplicates=rows - new_count)

    def write_segment(
        self,
        table: Table,
        groups: Iterable[ArrowTable],
        level: int,
        *,
        replaces: Sequence[Segment] = (),
        stored_unix_ns: int | None = None,
    ) -> Segment:
        """Write a segment that no reader sees yet, one row group after the other; `swap` or an append makes it part of
        the store. When it fails, no file is left. Raises OSError and whatever reading the groups raises.

        `replaces` are the segments whose rows it takes over, so that nobody who finds both counts a row twice. Without
        `stored_unix_ns` its rows were stored when those of `replaces` were, or now.
        """
        with self._number_lock:
            number = self._next_file
            self._next_file += 1
        if stored_unix_ns is None:
            stored_unix_ns = max((each.stored_unix_ns for each in replaces), default=self._unix_ns())
        new = NewSegment(
            table=table,
            number=number,
            sequence=self._manifest.sequence,
            stored_unix_ns=stored_unix_ns,
            level=level,
            replaces=tuple(segment.file for segment in replaces),
            filter_rows_min=self._filter_rows_min,
            of_segments=tuple(replaces),
        )
        return write_segment(self.directory, new, groups)

    def replace_turns(self, turns: Sequence[Turn]) -> ArrowTable:
        """Put turns in the place of those with the same span, in one step for every reader, and return the rows that
        are durable now. One that is not stored is left out. Raises StoreError when it could not be written."""
        wanted = {(turn.trace_id, turn.span_id): turn for turn in turns}
        done: list[Turn] = []
        looked_at: set[Segment] = set()
        # What is merged meanwhile is looked for in what it was merged to.
        while wanted and (left := [each for each in self._manifest.of("turns") if each not in looked_at]):
            looked_at.add(left[-1])
            done += self._replaced_in(left[-1], wanted)
        return turns_table(done)

    def _replaced_in(self, segment: Segment, wanted: dict[tuple[str, str], Turn]) -> list[Turn]:
        """Replace those of the turns that a segment holds, and take them out of `wanted`. A segment that was merged
        meanwhile keeps what it has: its turns are found in the other one the next time."""
        path = manifests.segment_path(self.directory, segment)
        try:
            ids = pq.read_table(path, columns=["trace_id", "span_id"])
            keys = list(zip(*(ids.column(name).to_pylist() for name in ("trace_id", "span_id")), strict=True))
            found = {key: place for place, key in enumerate(keys) if key in wanted}
            if not found:
                return []
            content, gone = pq.read_table(path), set(found.values())
            kept = content.take(pa.array([place for place in range(len(keys)) if place not in gone], pa.int64()))
            fresh = turns_table([wanted[key] for key in found])
            if not self._keep_text:
                fresh = table_without_text("turns", fresh)
            together = pa.concat_tables([kept, fresh], promote_options="default")
            moments = identity.starts("turns", together)
            in_order = together.take(pa.array(np.argsort(moments, kind="stable")))
            # It takes over no rows as they were: what was counted of the old segment does not hold for it.
            stored_unix_ns = segment.stored_unix_ns
            new = self.write_segment("turns", row_groups(in_order), level=0, stored_unix_ns=stored_unix_ns)
            try:
                self.swap([segment], new)
            finally:
                self.discard_unpublished([new.file])
        except (OSError, pa.ArrowException) as error:
            if segment not in self._manifest.segments:
                return []
            raise StoreError(f"{path}: turns that changed could not be stored ({error}); it is tried again") from error
        if new not in self._manifest.segments:
            return []
        self._replaced.append(segment)
        return [wanted.pop(key) for key in found]

    def take_replaced(self) -> list[Segment]:
        """The segments whose files `replace_turns` left behind, each once: they are to be removed after a while."""
        found, self._replaced = self._replaced, []
        return found

    def add(self, new: Segment) -> None:
        """Make a segment part of the store whose rows are not in it yet, which is not looked at. Raises OSError."""
        self._change(lambda now: (*now, new))

    def swap(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a merged segment in the place of those it was made of, in one step for every reader. Raises OSError."""
        gone = set(old)

        def swapped(now: _Segments) -> _Segments:
            if not gone <= set(now):
                raise OSError(errno.ESTALE, "other segments have taken the place of these meanwhile")
            first = now.index(old[0])
            before, after = ([each for each in part if each not in gone] for part in (now[:first], now[first:]))
            return (*before, new, *after)

        self._change(swapped, old=old, new=new)

    def name_rollup(self, segment: Segment, rollup: str) -> None:
        """Give a segment a roll-up that lies beside it, instead of its former one, whose file stays. Does nothing to
        one that is gone. Raises OSError."""
        named = manifests.with_rollup(self.directory, segment, rollup)
        former = [] if segment.rollup in (None, rollup) else [segment.rollup]
        self._change(lambda now: tuple(named if each == segment else each for each in now), replaced=former)

    def remove(self, old: Sequence[Segment]) -> None:
        """Take segments out of the store, in one step for every reader; their files stay. Raises OSError."""
        gone = set(old)
        self._change(lambda now: tuple(each for each in now if each not in gone), old=old, expired=old)

    def discard_unpublished(self, files: Iterable[str]) -> None:
        """Delete new files, except those that the manifest names: what is published stays published, even if making
        that durable failed. Raises OSError."""
        for file in set(files) - self._manifest.files:
            (self.directory / SEGMENTS_FOLDER / file).unlink(missing_ok=True)

    def _change(
        self,
        changed: Callable[[_Segments], _Segments],
        *,
        old: Sequence[Segment] = (),
        new: Segment | None = None,
        expired: Sequence[Segment] = (),
        replaced: Sequence[str] = (),
    ) -> None:
        """Publish other segments, in one step for every reader: their files are made durable before, and the manifest
        after. What is known of `old` ones is known of `new` then; `replaced` are further files that are not named any
        more. Raises OSError."""
        with self._lock:
            segments = changed(self._manifest.segments)
            if segments == self._manifest.segments:
                return
            fsync_directory(self.directory / SEGMENTS_FOLDER)
            self._publish(segments, retired=[*files_of(old), *replaced], expired=expired)
            by_table: dict[Table, list[Segment]] = {}
            for segment in old:
                by_table.setdefault(segment.table, []).append(segment)
            for of_table in by_table.values():
                self._known.replace(of_table, new)
        self.sync()

    def deleted(self, files: Iterable[str]) -> None:
        """Retired files are gone; manifests need not name them any more."""
        with self._lock:
            self._deleted.update(files)

    def sync(self) -> None:
        """Make the published manifest durable, after which files that it no longer names may go. Raises OSError."""
        with self._lock:
            self._sync()

    def _sync(self) -> None:
        if self._unsynced_rename:
            fsync_directory(self.directory)
            self._unsynced_rename = False

    def _commit(self, new: dict[Table, NewRows]) -> None:
        """Write the tables that have rows; from its end readers see them, and a retry must find them here even if
        making the rename durable fails."""
        written: dict[Table, Segment] = {}
        try:
            for table, rows in new.items():
                if rows.keys:
                    written[table] = self.write_segment(table, row_groups(rows.content), level=0)
            if not written:
                return
            fsync_directory(self.directory / SEGMENTS_FOLDER)
            self._publish((*self._manifest.segments, *written.values()))
        except Exception:
            self.discard_unpublished(segment.file for segment in written.values())
            raise
        for table, segment in written.items():
            self._known.add(segment, new[table].keys)

    def _publish(
        self,
        segments: tuple[Segment, ...],
        *,
        retired: Sequence[str] = (),
        expired: Sequence[Segment] = (),
    ) -> None:
        before = self._manifest
        manifest = StoreManifest(
            sequence=before.sequence + 1,
            next_file=self._next_file,
            segments=segments,
            retired=(*(file for file in before.retired if file not in self._deleted), *retired),
            expired=(*(file for file in before.expired if file not in self._deleted), *files_of(expired)),
            removed=_with_removed(before.removed, expired, segments) if expired else before.removed,
        )
        manifests.publish(self.directory, manifest)
        self._manifest = manifest
        self._deleted.clear()
        self._unsynced_rename = True

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
        for segment in manifest.segments:
            if (why := _visible_damage(self.directory, segment)) is not None:
                self.note_damage(segment, why)
        # Merged files hold the rows of retired ones: as long as one of those is missing, a repair may need these.
        for file in () if self._damaged else manifest.retired:
            (self.directory / SEGMENTS_FOLDER / file).unlink(missing_ok=True)
            self._deleted.add(file)
        for path in orphans:
            with contextlib.suppress(OSError):  # on a full disk it stays where it is: no name is given twice
                quarantine.move_to_quarantine(self.directory, path)
        self._quarantined = len(quarantine.unexplained(self.directory, manifest))
        return manifest


def _with_removed(
    before: dict[Table, Removed], old: Sequence[Segment], left: Sequence[Segment]
) -> dict[Table, Removed]:
    """The sums of what was removed. No row is later than when it was stored, whatever its sender says."""
    after = dict(before)
    runs_left = {run_id for segment in left for run_id in segment.run_ids or ()}
    for segment in old:
        known = after.get(segment.table, Removed())
        moments = (known.until_unix_ns, min(segment.last_unix_ns or 0, segment.stored_unix_ns))
        after[segment.table] = Removed(
            segments=known.segments + 1,
            rows=known.rows + segment.rows,
            until_unix_ns=max(moment for moment in moments if moment is not None),
            run_ids=tuple(sorted(runs_left.intersection((*known.run_ids, *(segment.run_ids or ()))))),
        )
    return after


def _visible_damage(directory: Path, segment: Segment) -> str | None:
    """What is wrong with a file, as far as can be seen without reading it."""
    try:
        size_bytes = manifests.segment_path(directory, segment).stat().st_size
    except OSError as error:
        return "the file is missing" if isinstance(error, FileNotFoundError) else reason_of(error)
    return None if size_bytes == segment.size_bytes else "its content is not what was written"


def is_at_rest(directory: Path) -> bool:
    """Whether no process owns the store, so that nothing can come to it."""
    try:
        with (directory / manifests.LOCK_NAME).open("rb") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go at once
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    except OSError:
        return False  # nobody can say
    return True


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
