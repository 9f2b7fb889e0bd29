"""One consistent read of a store that is being written: which files, which of them can be trusted, and DuckDB on them.

The manifest decides; a question runs against the files that one manifest names. A file that compaction removed in the
meantime sends the question back to a fresh manifest, a damaged file is left out and named.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.connection import StoreConnection
from telemetry.store.manifest import Segment, StoreManifest
from telemetry.store.schema import SCHEMAS

_Answer = TypeVar("_Answer")
_ATTEMPTS: Final = 50
# When a file was changed, which one it is, and its size.
_Stamp = tuple[int, int, int]
# Segments whose checksums are computed side by side: of a large store this is most of what its first question takes.
_CHECKED_AT_ONCE: Final = 2


class Snapshots:
    """Runs questions against a store directory; thread-safe (one question at a time).

    `faults` names the segments that had to be left out.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.faults: list[str] = []
        self._lock = threading.RLock()
        self._intact: set[Segment] = set()
        self._incomplete: set[Segment] = set()
        self._damaged: dict[Segment, str] = {}
        self._damaged_as: dict[Segment, _Stamp | None] = {}
        self._manifest: StoreManifest | None = None
        self._stamp: _Stamp | None = None
        self._prepared: tuple[Segment, ...] | None = None
        self._connection = StoreConnection(directory)

    @property
    def skipped(self) -> int:
        """How many segments of the last read were left out."""
        return len(self.faults)

    def close(self) -> None:
        """Release DuckDB."""
        self._connection.close()

    def ask(self, question: Callable[[StoreConnection], _Answer], run_id: str | None = None) -> _Answer:
        """Answer a question from one consistent read, about one run or, for None, the whole store.

        Raises StoreError when the store cannot be read at all, or the question needs more memory than it may take.
        """
        with self._lock:
            for _ in range(_ATTEMPTS):
                manifest = self._current()
                try:
                    self._prepare(manifest)
                    return question(self._connection.about(run_id))
                except FileNotFoundError:
                    self._stamp = None  # compaction took a file away: its rows are in another one by now
                except duckdb.OutOfMemoryException as error:
                    raise StoreError(
                        f"{self.directory}: too many turns for one answer, narrow it by time or a dimension ({error})"
                    ) from error
                except (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException) as error:
                    self._stamp = None
                    if self._current().sequence == manifest.sequence and not self._recheck(manifest):
                        raise StoreError(f"{self.directory}: the store cannot be read ({error})") from error
            raise StoreError(f"{self.directory}: the store changes faster than it can be read; ask again")

    def _current(self) -> StoreManifest:
        stamp = _stamp_of(self.directory / manifests.MANIFEST_NAME)
        if stamp is None and not self.directory.is_dir():
            raise StoreError(
                f"{self.directory}: there is no store here; start the sidecar with --store or name its directory"
            )
        if self._manifest is None or stamp is None or stamp != self._stamp:
            self._manifest = manifests.load(self.directory)
            self._stamp = stamp
        return self._manifest

    def _prepare(self, manifest: StoreManifest) -> None:
        self._forget_mended()
        if self._prepared == manifest.segments:
            return
        self._prepared = None
        named = set(manifest.segments)
        self._intact &= named
        self._incomplete &= named
        new = [segment for segment in manifest.segments if segment not in self._intact | self._damaged.keys()]
        with ThreadPoolExecutor(_CHECKED_AT_ONCE) as pool:
            found = zip(new, pool.map(partial(self._check, manifest), new), strict=True)
            passing = {segment: fault for segment, fault in found if fault is not None}
        faults = {**self._damaged, **passing}
        self.faults = [faults[segment] for segment in manifest.segments if segment in faults]
        self._connection.read(
            (segment for segment in manifest.segments if segment not in faults), frozenset(self._incomplete)
        )
        if not passing.keys() - self._damaged.keys():
            self._prepared = manifest.segments

    def _check(self, manifest: StoreManifest, segment: Segment) -> str | None:
        """Why a segment cannot be used. Raises FileNotFoundError when a newer manifest no longer names it.

        Damage is remembered; that a file cannot be opened at this moment is not.
        """
        path = manifests.segment_path(self.directory, segment)
        left_out = f"{path}: {segment.rows} rows of {segment.table} left out"
        try:
            if manifests.is_intact(self.directory, segment):
                if not pq.read_schema(path).equals(SCHEMAS[segment.table]):
                    self._incomplete.add(segment)
                self._intact.add(segment)
                return None
            self._note_damage(segment, f"{left_out}, its content is not what was written")
        except FileNotFoundError:
            if manifests.load(self.directory).sequence != manifest.sequence:
                raise
            self._note_damage(segment, f"{left_out}, the file is missing")
        except (OSError, pa.ArrowException) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return f"{left_out}, {why}"
        return self._damaged[segment]

    def _recheck(self, manifest: StoreManifest) -> bool:
        """Look again at files that were sound once; True when the question may be tried again without some of them."""
        found = False
        self._prepared = None
        self._connection.forget_views()
        for segment in [each for each in manifest.segments if each in self._intact]:
            path = manifests.segment_path(self.directory, segment)
            try:
                pq.read_metadata(path)
                intact = manifests.is_intact(self.directory, segment)
            except FileNotFoundError:
                intact = False
            except (OSError, ValueError) as error:
                # A file that cannot be opened at this moment may be sound; Arrow's own errors have no number.
                intact = isinstance(error, OSError) and error.errno is not None
            if not intact:
                self._intact.discard(segment)
                self._note_damage(segment, f"{path}: {segment.rows} rows of {segment.table} left out, it was damaged")
                found = True
        return found

    def _note_damage(self, segment: Segment, fault: str) -> None:
        self._damaged[segment] = fault
        self._damaged_as[segment] = _stamp_of(manifests.segment_path(self.directory, segment))

    def _forget_mended(self) -> None:
        """Look again at damaged files that somebody has replaced or brought back."""
        for segment, stamp in list(self._damaged_as.items()):
            if _stamp_of(manifests.segment_path(self.directory, segment)) != stamp:
                del self._damaged[segment], self._damaged_as[segment]
                self._prepared = None


def _stamp_of(path: Path) -> _Stamp | None:
    """What changes whenever a file is replaced; None when it is missing, or cannot be looked at now."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
