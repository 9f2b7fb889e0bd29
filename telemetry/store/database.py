"""The store's one file: a DuckDB database, in a folder that only its user may read, and its owner.

One process owns a store: it alone writes, and while it does, it alone can read; every other process asks it
(`owner.json` has its address). If no process owns a store, readers open its file read-only, for one question. A commit
is a transaction, and what is committed is on disk.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, Self

import duckdb

from telemetry.model.errors import StoreError
from telemetry.store.private_files import FILE_MODE, make_folder
from telemetry.store.schema import TABLES, WHOLE_SCHEMAS, without_rows

DATABASE_NAME: Final = "store.duckdb"
LOG_NAME: Final = DATABASE_NAME + ".wal"
OWNER_NAME: Final = "owner.json"
SPILL_FOLDER: Final = "spill"
# Counts with each change of what a row or a table means: a database of another format is refused, never guessed at.
FORMAT: Final = 2
# Questions share the machine with what is measured.
THREADS: Final = 2
MEMORY_LIMIT: Final = "1GB"
# A checkpoint rewrites the last row group, and commits wait for it: small ones keep that wait short.
_ROW_GROUP_ROWS: Final = 16_384
# Reopening a store reads its log, and commits wait while a checkpoint puts it into the file: at a million turns that
# takes 0.8 and 0.25 s of CPU for one of this size. A shorter one would hold up more than one in a hundred requests.
CHECKPOINT_BYTES: Final = 96 << 20
# How long a new owner of a store waits for its readers and its previous owner.
OWN_WITHIN_S: Final = 10.0
READ_WITHIN_S: Final = 5.0
_EVERY_S: Final = 0.05
_HELD_BY: Final = re.compile(r"PID (\d+)")
# What was decided on rollouts (telemetry.store.rollout_rows): `verdict` is a JSON object, the first row has the plan.
_ROLLOUT_ROWS: Final = """
    CREATE TABLE IF NOT EXISTS rollout_rows (
        rollout VARCHAR, sequence BIGINT, at_unix_ns BIGINT, decided_by VARCHAR, fingerprint VARCHAR, stage VARCHAR,
        since_unix_ns BIGINT, decision VARCHAR, candidate_turns BIGINT, control_turns BIGINT, verdict VARCHAR,
        plan VARCHAR
    )
"""
# What earlier versions left in a store's folder.
_EARLIER: Final = ("manifest.json", "manifest.previous.json", "segments")

# The databases that this process owns, by folder: its readers use them, since a file can be opened once.
_owned: dict[Path, "Database"] = {}


class InUseError(StoreError):
    """Raised for a store that another process owns."""


class Database:
    """An open store; thread-safe through its cursors. Made by `owned` or `read_only`."""

    def __init__(self, directory: Path, connection: duckdb.DuckDBPyConnection, attach: str) -> None:
        self.directory = directory
        # It has no default database: only so can the file be opened again in its place.
        self._connection = connection
        self._attach = attach
        # Held while something is committed: one transaction at a time.
        self.writing = threading.Lock()
        # Why the last commit failed, None when it did not.
        self.why_unwritable: str | None = None
        self._changed = threading.Condition()
        self._snapshots: dict[duckdb.DuckDBPyConnection, int] = {}
        self._is_reopening = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file; the owner's last commits are merged into it."""
        if _owned.get(self.directory.resolve()) is self:
            del _owned[self.directory.resolve()]
        self._connection.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Open a separate connection to the database with its own transactions, to be closed by the caller. Raises
        StoreError."""
        try:
            with self._changed:
                cursor = self._connection.cursor()
            cursor.execute("USE store")
        except duckdb.Error as error:
            raise StoreError(f"{self.directory}: the store cannot be read ({first_line(error)})") from error
        return cursor

    @contextlib.contextmanager
    def snapshot(self) -> Generator[duckdb.DuckDBPyConnection]:
        """Open a cursor whose statements all see the rows committed now. Raises StoreError."""
        with self._changed:
            if self._is_reopening:
                raise StoreError(f"{self.directory}: the store is opened again after a fault; ask again")
            cursor = self.cursor()
            self._snapshots[cursor] = threading.get_ident()
        try:
            cursor.execute("BEGIN TRANSACTION")
            yield cursor
        finally:
            with contextlib.suppress(duckdb.Error):
                cursor.execute("ROLLBACK")
            cursor.close()
            with self._changed:
                del self._snapshots[cursor]
                self._changed.notify_all()

    def interrupt(self, thread: int | None = None) -> None:
        """Interrupt the statement that a thread runs in a snapshot; with None, those of all threads."""
        with self._changed:
            for cursor, thread_id in self._snapshots.items():
                if thread in (None, thread_id):
                    with contextlib.suppress(duckdb.Error):  # it has just ended
                        cursor.interrupt()

    def reopen(self, within_s: float = READ_WITHIN_S) -> None:
        """Open the file again after DuckDB has invalidated it: it does so if a checkpoint finds the disk full, and no
        committed row is lost. Snapshots are interrupted; other cursors must be closed before.

        Raises StoreError if it cannot be opened; then this may be tried again.
        """
        with self._changed:
            self._is_reopening = True
            try:
                self.interrupt()
                self._changed.wait_for(lambda: not self._snapshots, within_s)
                with contextlib.suppress(duckdb.IOException):  # it is detached, and its checkpoint finds the disk full
                    self._connection.execute("DETACH DATABASE IF EXISTS store")
                self._connection.execute(self._attach)
            except duckdb.Error as error:
                raise StoreError(f"{self.directory}: the store cannot be opened ({first_line(error)})") from error
            finally:
                self._is_reopening = False


def owned(
    directory: Path,
    *,
    memory_limit: str = MEMORY_LIMIT,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
    within_s: float = OWN_WITHIN_S,
    clock_s: Callable[[], float] = time.monotonic,
    sleep_s: Callable[[float], None] = time.sleep,
) -> Database:
    """Open a store to write it, creating it if missing; a commit that makes the write-ahead log longer than
    `checkpoint_bytes` merges it into the file. Raises StoreError if it cannot be used, and InUseError if another
    process holds it for longer than `within_s`."""
    _refuse_own(directory)
    refuse_earlier(directory)
    try:
        make_folder(directory)
    except OSError as error:
        raise StoreError(f"{directory}: cannot be used as a store ({error.strerror}); name another one") from error
    attach = _attach_statement(directory, f"ROW_GROUP_SIZE {_ROW_GROUP_ROWS}")
    config = {"memory_limit": memory_limit, "checkpoint_threshold": f"{checkpoint_bytes}B"}
    connection = _patiently(lambda: _attached(directory, attach, config), directory, within_s, clock_s, sleep_s)
    database = Database(directory, connection, attach)
    try:
        (directory / DATABASE_NAME).chmod(FILE_MODE)
        _make_tables(database)
    except BaseException:  # an interruption must not leave the store locked either
        connection.close()
        raise
    _owned[directory.resolve()] = database
    return database


def owned_here(directory: Path) -> Database | None:
    """The database of a store that this process owns."""
    return _owned.get(directory.resolve())


def is_at_rest(directory: Path) -> bool:
    """Return whether no process owns the store, so that nothing can be added to it."""
    try:
        with read_only(directory, within_s=0):
            return True
    except InUseError:
        return False
    except StoreError:
        return not directory.exists()  # of a damaged one nobody can say


def read_only(
    directory: Path,
    *,
    within_s: float = READ_WITHIN_S,
    clock_s: Callable[[], float] = time.monotonic,
    sleep_s: Callable[[float], None] = time.sleep,
) -> Database:
    """Open a store without an owner to read it. Raises StoreError if there is none or it cannot be read, and InUseError
    if it has an owner after all."""
    if not directory.is_dir():
        raise StoreError(f"{directory}: there is no store here; start the sidecar with --store or name its directory")
    _refuse_own(directory)
    refuse_earlier(directory)
    if not (directory / DATABASE_NAME).exists():
        # A sidecar that has just been started, or a folder in which nothing was stored yet: an empty store.
        attach = "ATTACH ':memory:' AS store"
        database = Database(directory, _attached(directory, attach, {}), attach)
        _make_tables(database)
        return database
    attach = _attach_statement(directory, "READ_ONLY")
    config = {"memory_limit": MEMORY_LIMIT}
    connection = _patiently(lambda: _attached(directory, attach, config), directory, within_s, clock_s, sleep_s)
    database = Database(directory, connection, attach)
    try:
        with contextlib.closing(database.cursor()) as cursor:
            _check_format(cursor, directory)
    except BaseException:  # as in `owned`
        connection.close()
        raise
    return database


def is_earlier(directory: Path) -> bool:
    """Return whether an earlier version wrote the store in a folder."""
    return not (directory / DATABASE_NAME).exists() and any((directory / name).exists() for name in _EARLIER)


def refuse_earlier(directory: Path) -> None:
    """Raise StoreError for a folder with the store of an earlier version."""
    if is_earlier(directory):
        raise StoreError(
            f"{directory}: this store was written by an earlier version; export it with that version's "
            f"`voiceprobe store export {directory} FOLDER`, then `voiceprobe store import FOLDER NEW_STORE` here"
        )


def _refuse_own(directory: Path) -> None:
    if directory.resolve() in _owned:
        raise InUseError(f"{directory}: this process writes to the store already")


def _patiently(
    attach: Callable[[], duckdb.DuckDBPyConnection],
    directory: Path,
    within_s: float,
    clock_s: Callable[[], float],
    sleep_s: Callable[[float], None],
) -> duckdb.DuckDBPyConnection:
    until_s = clock_s() + within_s
    while True:
        try:
            return attach()
        except duckdb.IOException as error:
            if "lock" not in str(error).lower():
                raise StoreError(f"{directory}: the store cannot be opened ({first_line(error)})") from error
            if clock_s() >= until_s:
                holder = _HELD_BY.search(str(error))
                who = f"process {holder[1]}" if holder else "another process"
                raise InUseError(
                    f"{directory}: the store is in use by {who}; stop it, or ask it by the address of its sidecar"
                ) from error
        except duckdb.Error as error:
            raise StoreError(f"{directory}: the store cannot be opened ({first_line(error)})") from error
        sleep_s(_EVERY_S)


def _attach_statement(directory: Path, mode: str) -> str:
    if "?" in str(directory):  # DuckDB would look for the write-ahead log elsewhere
        raise StoreError(f"{directory}: a store cannot be in a folder with `?` in its path; name another one")
    path = str(directory / DATABASE_NAME).replace("'", "''")
    return f"ATTACH '{path}' AS store ({mode})"


def _attached(directory: Path, attach: str, config: dict[str, str]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": THREADS,
            "temp_directory": str(directory / SPILL_FOLDER),
            "autoinstall_known_extensions": "false",
            **config,
        },
    )
    try:
        connection.execute(attach)
    except BaseException:  # as in `owned`
        connection.close()
        raise
    return connection


def _make_tables(database: Database) -> None:
    with contextlib.closing(database.cursor()) as cursor:
        if cursor.execute("SELECT 1 FROM duckdb_tables() WHERE database_name = 'store'").fetchone() is not None:
            _check_format(cursor, database.directory)
            cursor.execute(_ROLLOUT_ROWS)
            return
        cursor.execute("BEGIN TRANSACTION")
        cursor.execute(_ROLLOUT_ROWS)
        for table in TABLES:
            cursor.register("empty_table", without_rows(WHOLE_SCHEMAS[table]))
            cursor.execute(f"CREATE TABLE {table} AS SELECT * FROM empty_table")
            cursor.unregister("empty_table")
        cursor.execute("CREATE TABLE store_state (format INTEGER, commits BIGINT)")
        cursor.execute("INSERT INTO store_state VALUES (?, 0)", [FORMAT])
        # What retention took out of a table, by run where the table knows runs.
        cursor.execute(
            "CREATE TABLE removed (of_table VARCHAR, run_id VARCHAR, row_count BIGINT, until_unix_ns BIGINT)"
        )
        cursor.execute("COMMIT")


def _check_format(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    try:
        row: Any = connection.execute("SELECT format FROM store_state").fetchone()
    except duckdb.Error as error:
        raise StoreError(
            f"{directory / DATABASE_NAME}: is not a store of voiceprobe ({first_line(error)}); name another folder"
        ) from error
    if row is None or row[0] != FORMAT:
        number = "none" if row is None else row[0]
        raise StoreError(
            f"{directory}: the store has format {number}, this version reads {FORMAT}; export it with the version that "
            f"wrote it (`voiceprobe store export`) and import it here (`voiceprobe store import`)"
        )


def number(cursor: duckdb.DuckDBPyConnection, statement: str) -> int:
    """Return the whole number that a statement selects as its only value."""
    ((value,),) = cursor.execute(statement).fetchall()
    return int(value)


def first_line(error: Exception) -> str:
    """Return the message of an error, without DuckDB's advice on the statement."""
    line, *_ = str(error).splitlines() or [type(error).__name__]
    return line
