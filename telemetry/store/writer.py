"""The one writer of a store: what an append has returned is on the disk, and a reader sees all of it or none of it.

An append is one transaction. A row that is stored already is left out of it: its identity is looked for among the rows
of about its moment, in the same transaction, so that a batch which is sent twice is stored once, however late.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import duckdb
import numpy as np
import pyarrow as pa

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.store import identity
from telemetry.store.database import LOG_NAME, Database, first_line, number, owned
from telemetry.store.schema import (
    TIME_COLUMNS,
    ArrowTable,
    Batch,
    Table,
    points_table,
    spans_table,
    turns_table,
)
from telemetry.store.table_redaction import table_without_text

_NEW_ROWS: Final = "new_rows"
_LAST_COMMIT: Final = "SELECT commits FROM store_state"
# Reopening a store reads its log, and commits wait while a checkpoint puts it into the file: both take less than half a
# second for one of this size.
_CHECKPOINT_BYTES: Final = 64 << 20
_CHECKPOINT_ROOM_BYTES: Final = 16 << 20
# What narrows the rows of a moment to those that can be the same: hashed, which a comparison of moments is not.
_SAME: Final[dict[Table, tuple[str, ...]]] = {
    "turns": ("started_unix_ns",),
    "spans": ("timestamp_unix_ns", "span_id"),
    "points": ("unix_ns", "name"),
}


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
    """Owns a store (created when missing) until `close`; thread-safe.

    Raises StoreError when another process holds the store and when it cannot be used. `keep_text` stores transcripts
    and prompts; without it they are removed here, so that no way in can store them.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep_text: bool = False,
        unix_ns: Callable[[], int] = time.time_ns,
        database: Database | None = None,
    ) -> None:
        self.directory = directory
        self.database = owned(directory) if database is None else database
        self._unix_ns = unix_ns
        self._keep_text = keep_text
        self._lock = threading.Lock()
        self._cursor = self.database.cursor()
        self._commits = number(self._cursor, _LAST_COMMIT)
        self._why_unwritable: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the store to another process."""
        with self._lock:
            self._cursor.close()
            self.database.close()

    @property
    def commits(self) -> int:
        """How many commits the store has seen: it changes with whatever is stored."""
        return self._commits

    def why_unwritable(self) -> str | None:
        """Why the last append failed, None when it did not."""
        return self._why_unwritable

    def checkpoint_when_due(self) -> None:
        """Put a long log of the database into its file, where the disk has room for it: for an owner that has the
        database leave it to this."""
        if self._log_bytes() >= _CHECKPOINT_BYTES:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Put what was committed into the file itself, where the disk has room for it: DuckDB gives up a file for which
        there is none, and `reopen` is to follow."""
        if shutil.disk_usage(self.directory).free < self._log_bytes() + _CHECKPOINT_ROOM_BYTES:
            return
        with self._lock:
            try:
                self._cursor.execute("CHECKPOINT store")
            except duckdb.Error as error:
                self._why_unwritable = reason_of(error)

    def reopen(self) -> None:
        """Open the file again where DuckDB has given it up. Raises StoreError when it cannot be opened; then this may
        be tried again."""
        with self._lock:
            self._cursor.close()
            self.database.reopen()
            self._cursor = self.database.cursor()
            self._commits = number(self._cursor, _LAST_COMMIT)

    def _log_bytes(self) -> int:
        try:
            return (self.directory / LOG_NAME).stat().st_size
        except OSError:
            return 0

    def append(self, batch: Batch) -> AppendedTables:
        """As `append_tables`, of rows that are objects."""
        return self.append_tables(turns_table(batch.turns), spans_table(batch.spans), points_table(batch.points))

    def append_tables(self, turns: ArrowTable, spans: ArrowTable, points: ArrowTable) -> AppendedTables:
        """Store what is new in tables of the store's schemas; when this returns it is durable.

        Raises StoreError when it could not be written (a full disk): then nothing of it is stored, and the same tables
        may be appended again.
        """
        given: dict[Table, ArrowTable] = {"turns": turns, "spans": spans, "points": points}
        received = sum(content.num_rows for content in given.values())
        if not self._keep_text:
            given = {table: table_without_text(table, content) for table, content in given.items()}
        with self._lock, self._transaction():
            new: dict[Table, ArrowTable] = {
                table: self._without_known(table, content) for table, content in given.items()
            }
            if any(content.num_rows for content in new.values()):
                for table, content in new.items():
                    self._insert(table, content)
                self._count_commit()
        stored = sum(content.num_rows for content in new.values())
        return AppendedTables(**new, duplicates=received - stored)

    def replace_turns(self, changes: Sequence[tuple[Turn | None, Turn | None]]) -> ArrowTable:
        """Put the second turn of each pair in the place of the first, which is stored, in one step for every reader,
        and return the rows that are durable now. None stands for no turn. What takes a place was stored when the other
        was, and is left out where that is not stored any more. Raises StoreError when it could not be written."""
        with self._lock, self._transaction():
            stored = self._remove_turns([before for before, _ in changes if before is not None])
            now_ns = self._unix_ns()
            placed = [
                (turn, now_ns if before is None else stored.get((before.trace_id, before.span_id)))
                for before, turn in changes
                if turn is not None
            ]
            kept = [(turn, unix_ns) for turn, unix_ns in placed if unix_ns is not None]
            fresh = turns_table([turn for turn, _ in kept])
            if not self._keep_text:
                fresh = table_without_text("turns", fresh)
            moments = pa.array([unix_ns for _, unix_ns in kept], pa.int64())
            fresh = self._without_known("turns", fresh.append_column("stored_unix_ns", moments))
            self._insert("turns", fresh)
            self._count_commit()
        return fresh

    def _remove_turns(self, turns: Sequence[Turn]) -> dict[tuple[str, str], int]:
        """Remove stored turns; when each was stored, by its ids."""
        if not turns:
            return {}
        began = [turn.started_unix_ns for turn in turns]
        ids: ArrowTable = pa.table(
            {"trace_id": [turn.trace_id for turn in turns], "span_id": [turn.span_id for turn in turns]}
        )
        with self._registered(ids):
            gone: Any = self._cursor.execute(
                f"""
                DELETE FROM turns USING {_NEW_ROWS} n
                WHERE turns.started_unix_ns BETWEEN ? AND ?
                    AND turns.trace_id = n.trace_id AND turns.span_id = n.span_id
                RETURNING turns.trace_id, turns.span_id, turns.stored_unix_ns
                """,
                [min(began), max(began)],
            ).fetchall()
        return {(trace_id, span_id): unix_ns for trace_id, span_id, unix_ns in gone}

    @contextlib.contextmanager
    def change(self) -> Generator[duckdb.DuckDBPyConnection]:
        """A cursor in a transaction that is committed at the end, for what removes or imports rows. Raises StoreError
        when it could not be written."""
        with self._lock, self._transaction():
            yield self._cursor
            self._count_commit()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        commits = self._commits
        try:
            self._cursor.execute("BEGIN TRANSACTION")
            yield
            self._cursor.execute("COMMIT")
            self._why_unwritable = None
        except (duckdb.Error, OSError) as error:
            self._rollback(commits)
            self._why_unwritable = reason_of(error)
            raise StoreError(
                f"{self.directory}: nothing of this batch could be stored ({self._why_unwritable}); "
                "it may be sent again"
            ) from error
        except BaseException:
            self._rollback(commits)
            raise

    def _rollback(self, commits: int) -> None:
        self._commits = commits
        with contextlib.suppress(duckdb.Error):
            self._cursor.execute("ROLLBACK")

    def _insert(self, table: Table, content: ArrowTable) -> None:
        if not content.num_rows:
            return
        if "stored_unix_ns" not in content.column_names:
            now = pa.array(np.full(content.num_rows, self._unix_ns(), np.int64))
            content = content.append_column("stored_unix_ns", now)
        with self._registered(content):
            self._cursor.execute(
                f"INSERT INTO {table} BY NAME SELECT *, ? AS commit_number FROM {_NEW_ROWS}", [self._commits + 1]
            )

    def _count_commit(self) -> None:
        self._commits += 1
        self._cursor.execute("UPDATE store_state SET commits = ?", [self._commits])

    def _without_known(self, table: Table, content: ArrowTable) -> ArrowTable:
        """The rows that are not stored, each once, in their order."""
        if not content.num_rows:
            return content
        keys = identity.keys(table, content)
        known = self._known(table, content)
        places: list[int] = []
        for place, key in enumerate(keys):
            if key not in known:
                known.add(key)
                places.append(place)
        return content if len(places) == len(keys) else content.take(pa.array(np.array(places, np.int64)))

    def _known(self, table: Table, content: ArrowTable) -> set[bytes]:
        """The identities of the stored rows that may be among these."""
        moment = TIME_COLUMNS[table]
        bounds = identity.moments(table, content)
        columns = ", ".join(f"t.{name}" for name in identity.KEY_COLUMNS[table])
        same = " AND ".join(f"t.{name} = n.{name}" for name in _SAME[table])
        with self._registered(content.select(list(_SAME[table]))):
            stored = self._cursor.sql(
                f"""
                SELECT {columns} FROM {table} t SEMI JOIN {_NEW_ROWS} n ON {same}
                WHERE t.{moment} BETWEEN ? AND ?
                """,
                params=[int(bounds.min()), int(bounds.max())],
            ).to_arrow_table()
        return set(identity.keys(table, stored)) if stored.num_rows else set()

    @contextlib.contextmanager
    def _registered(self, content: ArrowTable) -> Generator[None]:
        self._cursor.register(_NEW_ROWS, content)
        try:
            yield
        finally:
            with contextlib.suppress(duckdb.Error):  # of a transaction that failed; the next rows take the name over
                self._cursor.unregister(_NEW_ROWS)


def reason_of(error: Exception) -> str:
    """Why a database or a disk refused something, as part of a sentence."""
    line = first_line(error)
    return "the disk is full" if "No space left on device" in line else line
