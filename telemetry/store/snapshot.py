"""One consistent read of a store that is being written: which files, which of them can be trusted, and DuckDB on them.

The manifest decides; a question runs against the files that one manifest names. A file that compaction removed in the
meantime sends the question back to a fresh manifest, a damaged file is left out and named.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, values are bound or quoted here

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment, StoreManifest, Table
from telemetry.store.schema import SCHEMAS

_Answer = TypeVar("_Answer")
_ATTEMPTS: Final = 50
# Questions share the machine with what is measured.
_THREADS: Final = 2


class Snapshots:
    """Runs questions against a store directory; thread-safe (one question at a time).

    `faults` names the segments that had to be left out.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.faults: list[str] = []
        self._lock = threading.RLock()
        self._intact: set[Segment] = set()
        self._damaged: dict[Segment, str] = {}
        self._manifest: StoreManifest | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._prepared: tuple[Segment, ...] | None = None
        self._connection = duckdb.connect(
            ":memory:", config={"threads": _THREADS, "autoinstall_known_extensions": "false"}
        )
        for table, schema in SCHEMAS.items():
            self._connection.register("empty_arrow", schema.empty_table())
            self._connection.execute(f"CREATE TEMP TABLE empty_{table} AS SELECT * FROM empty_arrow")
            self._connection.unregister("empty_arrow")

    @property
    def skipped(self) -> int:
        """How many segments of the last read were left out."""
        return len(self.faults)

    def close(self) -> None:
        """Release DuckDB."""
        self._connection.close()

    def ask(self, question: Callable[["Connection"], _Answer]) -> _Answer:
        """Answer a question from one consistent read. Raises StoreError when the store cannot be read at all."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                manifest = self._current()
                try:
                    self._prepare(manifest)
                    return question(self._connection)
                except FileNotFoundError:
                    self._stamp = None  # compaction took a file away: its rows are in another one by now
                except (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException) as error:
                    self._stamp = None
                    if self._current().sequence == manifest.sequence and not self._recheck(manifest):
                        raise StoreError(f"{self.directory}: the store cannot be read ({error})") from error
            raise StoreError(f"{self.directory}: the store changes faster than it can be read; ask again")

    def _current(self) -> StoreManifest:
        try:
            stat = (self.directory / manifests.MANIFEST_NAME).stat()
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        except FileNotFoundError:
            if not self.directory.is_dir():
                raise StoreError(
                    f"{self.directory}: there is no store here; start the sidecar with --store or name its directory"
                ) from None
            stamp = (0, 0, 0)
        if self._manifest is None or stamp != self._stamp:
            self._manifest = manifests.load(self.directory)
            self._stamp = stamp
        return self._manifest

    def _prepare(self, manifest: StoreManifest) -> None:
        if self._prepared == manifest.segments:
            return
        self._prepared = None
        usable: list[Segment] = []
        for segment in manifest.segments:
            fault = self._fault(segment, manifest)
            if fault is None:
                usable.append(segment)
        self._intact &= set(manifest.segments)
        self.faults = [self._damaged[segment] for segment in manifest.segments if segment in self._damaged]
        for table in manifests.TABLES:
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS {self._source(table, usable)}")
        self._prepared = manifest.segments

    def _source(self, table: Table, usable: list[Segment]) -> str:
        files = [
            _quoted(_without_glob(str(manifests.segment_path(self.directory, segment))))
            for segment in usable
            if segment.table == table
        ]
        if not files:
            return f"SELECT * FROM empty_{table}"
        # The empty table gives the columns that segments of an older version do not have.
        return (
            f"SELECT * FROM empty_{table} UNION ALL BY NAME "
            f"SELECT * FROM read_parquet([{', '.join(files)}], union_by_name = true)"
        )

    def _fault(self, segment: Segment, manifest: StoreManifest) -> str | None:
        """Why a segment cannot be used. Raises FileNotFoundError when a newer manifest no longer names it."""
        if segment in self._damaged:
            return self._damaged[segment]
        if segment in self._intact:
            return None
        path = manifests.segment_path(self.directory, segment)
        try:
            intact = manifests.is_intact(self.directory, segment)
            why = "its content is not what was written"
        except FileNotFoundError:
            if manifests.load(self.directory).sequence != manifest.sequence:
                raise
            intact, why = False, "the file is missing"
        except OSError as error:
            intact, why = False, error.strerror or str(error)
        if intact:
            self._intact.add(segment)
            return None
        self._damaged[segment] = f"{path}: {segment.rows} rows of {segment.table} left out, {why}"
        return self._damaged[segment]

    def _recheck(self, manifest: StoreManifest) -> bool:
        """Look again at files that were sound once; True when the question may be tried again without some of them."""
        found = False
        self._prepared = None
        for segment in [each for each in manifest.segments if each in self._intact]:
            path = manifests.segment_path(self.directory, segment)
            try:
                pq.read_metadata(path)
                intact = manifests.is_intact(self.directory, segment)
            except (OSError, ValueError):
                intact = False
            if not intact:
                self._intact.discard(segment)
                self._damaged[segment] = f"{path}: {segment.rows} rows of {segment.table} left out, it was damaged"
                found = True
        return found


Connection = duckdb.DuckDBPyConnection


def rows(connection: Connection, statement: str, parameters: list[Any] | None = None) -> list[dict[str, Any]]:
    """The rows of a statement as dictionaries."""
    cursor = connection.execute(statement, parameters or [])
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _without_glob(path: str) -> str:
    # A directory may be called anything: characters that DuckDB reads as a pattern stand for themselves.
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)
