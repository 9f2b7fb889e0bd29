"""The one writer of a store: once an append returns, it is on disk, and a reader sees all of it or none of it.

An append is one transaction. Rows that are already stored are left out: their identity is searched among the rows of
about the same time, in the same transaction, so that a batch sent twice is stored once, however late.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import duckdb
import numpy as np
import pyarrow as pa

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.store import identity
from telemetry.store.database import CHECKPOINT_BYTES, LOG_NAME, THREADS, Database, first_line, number, owned
from telemetry.store.identity import RecentIdentities
from telemetry.store.pairing import TurnSides
from telemetry.store.redaction import table_without_text
from telemetry.store.schema import (
    SCHEMAS,
    TABLES,
    TIME_COLUMNS,
    WHOLE_SCHEMAS,
    ArrowTable,
    Batch,
    Table,
    points_table,
    spans_table,
    turns_table,
    without_rows,
)

_LAST_COMMIT: Final = "SELECT commits FROM store_state"
_CHECKPOINT_ROOM_BYTES: Final = 16 << 20
# Rows can only be the same where these are. The range of their moments lets DuckDB skip what is older. With the whole
# ids, nearly all rows that are found are the same: senders may number their spans.
_SAME: Final[dict[Table, tuple[str, ...]]] = {
    "turns": ("started_unix_ns", "trace_id", "span_id"),
    "spans": ("timestamp_unix_ns", "trace_id", "span_id"),
    "points": ("unix_ns", "name"),
}


@dataclass(frozen=True, slots=True)
class AppendedTables:
    """The durable result of an append: which of the given turns were new, the new spans and points as stored, and how
    many rows were already stored."""

    turn_places: Sequence[int]
    spans: ArrowTable
    points: ArrowTable
    duplicates: int

    @property
    def rows(self) -> int:
        """Number of new rows."""
        return len(self.turn_places) + self.spans.num_rows + self.points.num_rows


@dataclass(slots=True)
class _PreparedRows:
    """The rows that a prepared statement reads: planning one for so many columns takes longer than running it."""

    content: ArrowTable

    def __arrow_c_schema__(self) -> object:
        return self.content.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.content.__arrow_c_stream__(requested_schema)


@dataclass(slots=True)
class _Statements:
    """The prepared statements of a cursor, by table: to find stored rows that may be the same, and to insert."""

    cursor: duckdb.DuckDBPyConnection
    _given: dict[Table, _PreparedRows] = field(default_factory=dict[Table, _PreparedRows])
    _new: dict[Table, _PreparedRows] = field(default_factory=dict[Table, _PreparedRows])

    def __post_init__(self) -> None:
        # Planned for several threads, an insert gathers its rows before it appends them; of few rows that is slower.
        self.cursor.execute("SET threads = 1")
        self.cursor.execute("PREPARE count_commit AS UPDATE store_state SET commits = ?")
        for table in TABLES:
            same = _SAME[table]
            self._given[table] = _PreparedRows(without_rows(SCHEMAS[table]).select(same))
            self._new[table] = _PreparedRows(without_rows(WHOLE_SCHEMAS[table]))
            self.cursor.register(f"given_{table}", self._given[table])
            self.cursor.register(f"new_{table}", self._new[table])
            columns = ", ".join(identity.KEY_COLUMNS[table])
            on = " AND ".join(f"t.{name} = n.{name}" for name in same)
            self.cursor.execute(
                f"PREPARE known_{table} AS SELECT {columns} FROM {table} t SEMI JOIN given_{table} n ON {on}"
            )
            self.cursor.execute(f"PREPARE insert_{table} AS INSERT INTO {table} BY NAME FROM new_{table}")
        self.cursor.execute(f"SET threads = {THREADS}")

    def known(self, table: Table, content: ArrowTable) -> set[bytes]:
        """The identities of the stored rows that may be among these."""
        self._given[table].content = content.select(_SAME[table])
        rows = self.cursor.execute(f"EXECUTE known_{table}").fetchall()
        if not rows:
            return set()
        schema = pa.schema([SCHEMAS[table].field(name) for name in identity.KEY_COLUMNS[table]])
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
        return set(identity.keys(table, pa.Table.from_arrays(columns, schema=schema)))

    def insert(self, table: Table, content: ArrowTable, stored_unix_ns: Any, commit: int) -> None:
        """Insert rows with the times of storing. Missing columns are null."""
        schema, rows = self._new[table].content.schema, content.num_rows
        columns = {name: content.column(name) for name in content.column_names}
        columns |= {"stored_unix_ns": stored_unix_ns, "commit_number": pa.array(np.full(rows, commit, np.int64))}
        self._new[table].content = pa.Table.from_arrays(
            [
                columns[declared.name] if declared.name in columns else pa.nulls(rows, declared.type)
                for declared in schema
            ],
            schema=schema,
        )
        self.cursor.execute(f"EXECUTE insert_{table}")


class StoreWriter:
    """Owns a store (created if missing) until `close`; thread-safe.

    Raises StoreError if another process owns the store and if it cannot be used. `keep_text` stores transcripts and
    prompts; without it they are removed here, so that no caller can store them.
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
        self._lock = self.database.writing
        self._cursor = self.database.cursor()
        self._statements, self._pairing = _Statements(self._cursor), TurnSides(self._cursor)
        self._recent: dict[Table, RecentIdentities] = {}
        self._commits = number(self._cursor, _LAST_COMMIT)

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
        """The number of commits of the store, which changes with everything stored."""
        return self._commits

    def why_unwritable(self) -> str | None:
        """Return why the last append failed, None if it did not."""
        return self.database.why_unwritable

    def checkpoint_when_due(self) -> None:
        """Merge a long write-ahead log into the database file, if the disk has room for it; automatic checkpoints are
        disabled."""
        if self._log_bytes() >= CHECKPOINT_BYTES:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Merge committed rows into the database file, if the disk has room for it: without room DuckDB invalidates the
        database, and `reopen` must follow."""
        if shutil.disk_usage(self.directory).free < self._log_bytes() + _CHECKPOINT_ROOM_BYTES:
            return
        with self._lock:
            try:
                self._cursor.execute("CHECKPOINT store")
            except duckdb.Error as error:
                self.database.why_unwritable = reason_of(error)

    def reopen(self) -> None:
        """Open the file again if DuckDB has invalidated it. Raises StoreError if it cannot be opened; then this may be
        tried again."""
        with self._lock:
            self._cursor.close()
            self._recent.clear()
            self.database.reopen()
            self._cursor = self.database.cursor()
            self._statements, self._pairing = _Statements(self._cursor), TurnSides(self._cursor)
            self._commits = number(self._cursor, _LAST_COMMIT)

    def _log_bytes(self) -> int:
        try:
            return (self.directory / LOG_NAME).stat().st_size
        except OSError:
            return 0

    def append(self, batch: Batch) -> AppendedTables:
        """Append rows given as objects, as `append_tables` does with tables."""
        return self.append_tables(turns_table(batch.turns), spans_table(batch.spans), points_table(batch.points))

    def append_tables(self, turns: ArrowTable, spans: ArrowTable, points: ArrowTable) -> AppendedTables:
        """Store the new rows of tables with the store's schemas; when this returns they are durable.

        Raises StoreError if they could not be written (a full disk): then nothing is stored, and the same tables may be
        appended again.
        """
        given: dict[Table, ArrowTable] = {"turns": turns, "spans": spans, "points": points}
        received = sum(content.num_rows for content in given.values())
        if not self._keep_text:
            given = {table: table_without_text(table, content) for table, content in given.items()}
        with self._lock:
            with self._transaction():
                rows = {table: self._identified(table, content) for table, content in given.items()}
                places = {table: self._new_places(table, content, rows[table]) for table, content in given.items()}
                new: dict[Table, ArrowTable] = {table: _taken(given[table], places[table]) for table in TABLES}
                stored = sum(map(len, places.values()))
                if stored:
                    for table, content in new.items():
                        self._insert(table, self._pairing.paired(content) if table == "turns" else content)
                    self._count_commit()
            for table in TABLES:
                self._recent[table].add(rows[table][place] for place in places[table])
        return AppendedTables(places["turns"], new["spans"], new["points"], received - stored)

    def replace_turns(self, changes: Sequence[tuple[Turn | None, Turn | None]]) -> Sequence[Turn]:
        """Put the second turn of each pair in the place of the first, which is stored, in one step for every reader,
        and return those that are durable now. None means no turn. What takes a place was stored when the other
        was, and is left out where that is not stored any more. Raises StoreError when it could not be written."""
        with self._lock, self._transaction():
            removed = [before for before, _ in changes if before is not None]
            stored = self._remove_turns(removed)
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
            places = self._new_places("turns", fresh, self._identified("turns", fresh))
            moments = pa.array([kept[place][1] for place in places], pa.int64())
            calls = [(turn.source, turn.trace_id, turn.call_id, turn.started_unix_ns) for turn in removed]
            self._insert("turns", self._pairing.paired(_taken(fresh, places), calls), moments)
            self._recent.pop("turns", None)
            self._count_commit()
        return [kept[place][0] for place in places]

    def _remove_turns(self, turns: Sequence[Turn]) -> dict[tuple[str, str], int]:
        """Remove stored turns; return when each was stored, by its ids."""
        self._recent.pop("turns", None)
        if not turns:
            return {}
        began = [turn.started_unix_ns for turn in turns]
        ids = {name: [getattr(turn, name) for turn in turns] for name in ("trace_id", "span_id")}
        self._cursor.register("removed_turns", pa.table(ids))
        gone: Any = self._cursor.execute(
            """
            DELETE FROM turns USING removed_turns n
            WHERE turns.started_unix_ns BETWEEN ? AND ?
                AND turns.trace_id = n.trace_id AND turns.span_id = n.span_id
            RETURNING turns.trace_id, turns.span_id, turns.stored_unix_ns
            """,
            [min(began), max(began)],
        ).fetchall()
        return {(trace_id, span_id): unix_ns for trace_id, span_id, unix_ns in gone}

    @contextlib.contextmanager
    def change(self) -> Generator[duckdb.DuckDBPyConnection]:
        """A cursor in a transaction that is committed at the end, for removing or importing rows. Raises StoreError if
        it could not be written."""
        with self._lock, self._transaction():
            self._recent.clear()
            yield self._cursor
            self._count_commit()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        commits = self._commits
        try:
            self._cursor.execute("BEGIN TRANSACTION")
            yield
            self._cursor.execute("COMMIT")
            self.database.why_unwritable = None
        except (duckdb.Error, OSError) as error:
            self._rollback(commits)
            self.database.why_unwritable = reason_of(error)
            raise StoreError(
                f"{self.directory}: nothing of this batch could be stored ({self.database.why_unwritable}); "
                "it may be sent again"
            ) from error
        except BaseException:  # whatever ends the block, an open transaction would keep the next one from beginning
            self._rollback(commits)
            raise

    def _rollback(self, commits: int) -> None:
        self._commits = commits
        self._recent.clear()
        with contextlib.suppress(duckdb.Error):
            self._cursor.execute("ROLLBACK")

    def _insert(self, table: Table, content: ArrowTable, stored_unix_ns: Any = None) -> None:
        if not content.num_rows:
            return
        if "stored_unix_ns" in content.column_names:  # of an export
            stored_unix_ns = content.column("stored_unix_ns")
        elif stored_unix_ns is None:
            stored_unix_ns = pa.array(np.full(content.num_rows, self._unix_ns(), np.int64))
        self._statements.insert(table, content, stored_unix_ns, self._commits + 1)

    def _count_commit(self) -> None:
        self._commits += 1
        self._cursor.execute(f"EXECUTE count_commit({self._commits})")

    def _identified(self, table: Table, content: ArrowTable) -> Sequence[tuple[bytes, int]]:
        """Each row's identity and time."""
        if table not in self._recent:  # nothing is stored after the last moment of those that are stored
            last = f"SELECT coalesce(max({TIME_COLUMNS[table]}), 0) FROM {table}"
            self._recent[table] = RecentIdentities(number(self._cursor, last) + 1)
        if not content.num_rows:
            return ()
        return [*zip(identity.keys(table, content), identity.moments(table, content), strict=True)]

    def _new_places(self, table: Table, content: ArrowTable, rows: Sequence[tuple[bytes, int]]) -> Sequence[int]:
        """Return the rows that are not stored, each once, in their order."""
        recent = self._recent[table]
        is_recent = all(moment >= recent.since_ns for _, moment in rows)
        known = recent.among(rows) if is_recent else self._statements.known(table, content)
        places: list[int] = []
        for place, (key, _) in enumerate(rows):
            if key not in known:
                known.add(key)
                places.append(place)
        return places


def _taken(content: ArrowTable, places: Sequence[int]) -> ArrowTable:
    return content if len(places) == content.num_rows else content.take(pa.array(places, pa.int64()))


def reason_of(error: Exception) -> str:
    """Return why a database or a disk failed, as part of a sentence."""
    line = first_line(error)
    return "the disk is full" if "No space left on device" in line else line
