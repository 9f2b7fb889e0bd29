"""Merging small segments in the background, so that a store of many appends stays quick to read.

Segments of one table have levels, older ones higher; when `FAN_IN` neighbors share a level they become one of the
next. The merged file takes their place in the manifest in one step. Readers that still hold the old manifest keep the
old files for a while (`grace_s`), and a reader that comes even later asks again.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment, StoreManifest
from telemetry.store.schema import SCHEMAS, ArrowTable
from telemetry.store.writer import StoreWriter

_log = logging.getLogger(__name__)

FAN_IN: Final = 16
# Above this a merge costs more than it saves, and all of it would stand in memory at once.
MERGED_BYTES_MAX: Final = 128 << 20
GRACE_S: Final = 30.0
_EVERY_S: Final = 2.0


def plan(manifest: StoreManifest, unusable: frozenset[Segment] = frozenset()) -> tuple[Segment, ...]:
    """The next segments to merge, oldest first; empty when there is nothing to do."""
    for table in manifests.TABLES:
        by_level: dict[int, list[Segment]] = {}
        for segment in manifest.of(table):
            if segment not in unusable:
                by_level.setdefault(segment.level, []).append(segment)
        for level in sorted(by_level):
            chosen = by_level[level][:FAN_IN]
            if len(chosen) == FAN_IN and sum(segment.size_bytes for segment in chosen) <= MERGED_BYTES_MAX:
                return tuple(chosen)
    return ()


class Compactor:
    """Merges a writer's segments, by `run_once` or in a thread of its own between `start` and `stop`."""

    def __init__(
        self, writer: StoreWriter, *, grace_s: float = GRACE_S, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._writer = writer
        self._grace_s = grace_s
        self._clock_s = clock_s
        self._retired: list[tuple[float, Segment]] = []
        self._unusable: frozenset[Segment] = frozenset()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin compacting in the background."""
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and remove what no reader of a current manifest needs."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._remove_retired(everything=True)

    def run_once(self) -> bool:
        """Do one merge; False when there was none to do. A damaged segment is left where it is for good.

        Raises StoreError when the merged segment cannot be written.
        """
        self._remove_retired(everything=False)
        chosen = plan(self._writer.manifest, self._unusable)
        if not chosen:
            return False
        parts = [self._read(segment) for segment in chosen]
        damaged = frozenset(segment for segment, part in zip(chosen, parts, strict=True) if part is None)
        if damaged:
            self._unusable |= damaged
            return True
        try:
            merged = pa.concat_tables([part for part in parts if part is not None], promote_options="default")
            segment = self._writer.write_segment(chosen[0].table, merged, level=chosen[0].level + 1, replaces=chosen)
            self._writer.swap(chosen, segment)
        except OSError as error:
            raise StoreError(f"{self._writer.directory}: segments could not be merged ({error.strerror})") from error
        retired_at = self._clock_s()
        self._retired += [(retired_at, old) for old in chosen]
        return True

    def _read(self, segment: Segment) -> ArrowTable | None:
        try:
            if not manifests.is_intact(self._writer.directory, segment):
                return None
            content: ArrowTable = pq.read_table(manifests.segment_path(self._writer.directory, segment))
        except (OSError, pa.ArrowException):
            return None
        # Columns that an older version did not have are unknown in its rows; columns of a newer one are kept.
        current = SCHEMAS[segment.table]
        newer = [field for field in content.schema if field.name not in current.names]
        schema = pa.schema([*current, *newer])
        columns = [
            content.column(field.name).cast(field.type)
            if field.name in content.schema.names
            else pa.nulls(content.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _remove_retired(self, *, everything: bool) -> None:
        now = self._clock_s()
        kept: list[tuple[float, Segment]] = []
        for retired_at, segment in self._retired:
            if everything or now - retired_at >= self._grace_s:
                manifests.segment_path(self._writer.directory, segment).unlink(missing_ok=True)
            else:
                kept.append((retired_at, segment))
        self._retired = kept

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            try:
                while self.run_once() and not self._stopping.is_set():
                    pass
            except StoreError as error:
                # Nothing is lost by not merging; a full disk may have room again later.
                _log.warning("%s", error)
