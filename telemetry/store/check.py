"""Check of a store's contents: every row is read, nothing is changed."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb

from telemetry.store.database import first_line, number, read_only
from telemetry.store.schema import TABLES, Table

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """The rows that retention has removed from a table: `until_unix_ns` is the latest time of such a row, `run_ids` are
    the runs with other rows left."""

    rows: int
    until_unix_ns: int | None
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The state of a store. `faults` are sentences; a store without any is intact. `duplicate_turns` are stored more
    than once."""

    store: str
    rows: dict[Table, int]
    duplicate_turns: int
    removed: dict[Table, RemovedRows]
    faults: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The state as a JSON object."""
        return asdict(self)


def check(directory: Path, *, progress: Progress = lambda _done, _total: None) -> StoreCheck:
    """Read every row of a store that no process writes to. Raises StoreError for a folder that is not a store or has
    another format, and InUseError while a sidecar owns it."""
    rows: dict[Table, int] = {}
    faults: list[str] = []
    with read_only(directory) as database, database.snapshot() as cursor:
        for place, table in enumerate(TABLES):
            progress(place, len(TABLES))
            rows[table] = number(cursor, f"SELECT count(*) FROM {table}")
            try:
                # The hash of a whole row needs each of its columns; DuckDB verifies the checksum of what it reads.
                cursor.execute(f"SELECT bit_xor(hash(t)) FROM {table} t").fetchall()
            except duckdb.Error as error:
                faults.append(f"{directory}: rows of {table} cannot be read ({first_line(error)})")
        duplicates = 0 if faults else _duplicate_turns(cursor)
        if duplicates:
            faults.append(f"{directory}: {duplicates:,} turns are in the store more than once")
        removed: dict[Table, RemovedRows] = {
            table: removed_rows for table in TABLES if (removed_rows := _removed(cursor, table)) is not None
        }
        progress(len(TABLES), len(TABLES))
    return StoreCheck(str(directory), rows, duplicates, removed, tuple(faults))


def _duplicate_turns(cursor: duckdb.DuckDBPyConnection) -> int:
    return number(
        cursor,
        """
        SELECT coalesce(sum(n - 1), 0)::BIGINT FROM (
            SELECT count(*) AS n FROM turns WHERE span_id <> '' GROUP BY trace_id, span_id HAVING n > 1)
        """,
    )


def _removed(cursor: duckdb.DuckDBPyConnection, table: Table) -> RemovedRows | None:
    left = "false" if table == "spans" else f"run_id IN (SELECT run_id FROM {table})"
    removals = cursor.execute(
        f"SELECT run_id, row_count, until_unix_ns, {left} FROM removed WHERE of_table = ? ORDER BY run_id", [table]
    ).fetchall()
    if not removals:
        return None
    moments = [until for _, _, until, _ in removals if until is not None]
    runs = tuple(run_id for run_id, _, _, is_left in removals if is_left)
    return RemovedRows(sum(rows for _, rows, _, _ in removals), max(moments, default=None), runs)
