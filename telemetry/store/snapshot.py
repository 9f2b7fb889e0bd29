"""One consistent read of a store that is being written: which files, and DuckDB on them.

The manifest decides; a question runs against the files that one manifest names. A file that compaction removed in the
meantime sends the question back to a fresh manifest. A file is verified before it is first read; a damaged one is left
out and named, and the question is asked again without it.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final, TypeVar

import duckdb
import msgspec

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.connection import StoreConnection
from telemetry.store.manifest import Removed, Segment, StoreManifest
from telemetry.store.segment_checks import SegmentChecks, UnsoundSegmentsError

_Answer = TypeVar("_Answer")
_ATTEMPTS: Final = 50
_LOOK_AGAIN_S: Final = 0.1
# When a file was changed, which one it is, and its size.
_Stamp = tuple[int, int, int]


class GaveWayError(Exception):
    """A question that can wait was interrupted for one that cannot: it is to be asked again."""


class _Patience(threading.local):
    """Whether the questions of a thread can wait, and how many of them are being asked, one within the other."""

    can_wait = False
    depth = 0


class Snapshots:
    """Runs questions against a store directory; thread-safe (one question at a time).

    `faults` names the segments that had to be left out; `checks` knows which those are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.faults: list[str] = []
        self.checks = SegmentChecks(directory)
        self._lock = threading.RLock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._patience = _Patience()
        self._manifest: StoreManifest | None = None
        self._stamp: _Stamp | None = None
        self._prepared: tuple[Segment, ...] | None = None
        self._connection = StoreConnection(directory, self.checks, give_way=self._give_way)

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
        while True:
            with self._turn():
                try:
                    return self._answer(question, run_id)
                except GaveWayError:
                    if self._patience.depth > 1:
                        raise
            while self._waiting:
                time.sleep(_LOOK_AGAIN_S)

    @contextlib.contextmanager
    def patiently(self) -> Generator[None]:
        """Let the questions of this thread give way to those of others: they begin again, with what they have found of
        whole segments."""
        self._patience.can_wait = True
        try:
            yield
        finally:
            self._patience.can_wait = False

    @contextlib.contextmanager
    def _turn(self) -> Generator[None]:
        with self._counting:
            self._waiting += 1
        self._lock.acquire()
        with self._counting:
            self._waiting -= 1
        self._patience.depth += 1
        try:
            yield
        finally:
            self._patience.depth -= 1
            self._lock.release()

    def _give_way(self) -> None:
        if self._patience.can_wait and self._waiting:
            raise GaveWayError

    def _answer(self, question: Callable[[StoreConnection], _Answer], run_id: str | None) -> _Answer:
        self.checks.begin()
        for _ in range(_ATTEMPTS):
            manifest = self._current()
            try:
                self._prepare(manifest)
                return question(self._connection.about(run_id))
            except UnsoundSegmentsError:
                continue  # they are known by now, and left out
            except FileNotFoundError:
                self._stamp = None  # compaction took a file away: its rows are in another one by now
            except msgspec.ValidationError as error:
                # The ingest takes no turn that this version could not read again.
                raise StoreError(
                    f"{self.directory}: a turn cannot be read ({error}); update voiceprobe to the version that wrote it"
                ) from error
            except duckdb.OutOfMemoryException as error:
                what, *_ = str(error).splitlines()  # what follows is advice to who opened the database
                raise StoreError(
                    f"{self.directory}: too many turns for one answer, narrow it by time or a dimension ({what})"
                ) from error
            except duckdb.Error as error:
                if not _may_be_a_file(error):
                    raise
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
        if self.checks.look(manifest):
            self._connection.forget_views()
        faults = {segment.file: self.checks.fault(segment) for segment in manifest.segments}
        self.faults = [fault for fault in faults.values() if fault is not None]
        sound = tuple(segment for segment in manifest.segments if faults[segment.file] is None)
        if sound != self._prepared:
            self._connection.read(sound, manifest.removed.get("turns", Removed()).run_ids)
            self._prepared = sound

    def _recheck(self, manifest: StoreManifest) -> bool:
        """Look again at files that were sound once; True when the question may be tried again without some of them."""
        self._connection.forget_views()
        return self.checks.recheck(manifest.segments)


def _may_be_a_file(error: duckdb.Error) -> bool:
    """Whether an error can come from what a file holds. What cannot be decoded of Parquet's headers has no kind."""
    kinds = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)
    return isinstance(error, kinds) or type(error) is duckdb.Error


def _stamp_of(path: Path) -> _Stamp | None:
    """What changes whenever a file is replaced; None when it is missing, or cannot be looked at now."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
