"""Removes rows that are too old or too many, in small portions, so that no commit waits long for it.

Age counts from the time of storing, not from the senders' timestamps: a wrong clock elsewhere neither keeps rows
forever nor removes new ones. Removed rows are counted in the table `removed`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from telemetry.store.database import number
from telemetry.store.schema import TABLES, TIME_COLUMNS, Table
from telemetry.store.writer import StoreWriter

PORTION_ROWS: Final = 20_000
# How far beyond the size that is allowed a store may grow before rows go: its file is reused in large pieces.
_SLACK: Final = 1.02


@dataclass(frozen=True, slots=True)
class Keep:
    """Rows stored less than `age_ns` ago are kept, as long as they take at most `size_bytes`; None is no limit.

    The size is that of the parts of the file that hold rows: space of removed rows is reused, and not returned.
    """

    age_ns: int | None = None
    size_bytes: int | None = None


class Retention:
    """Removes rows beyond the limits from a writer's store, a portion at each call of `remove_some`."""

    def __init__(
        self,
        writer: StoreWriter,
        keep: Keep,
        *,
        portion_rows: int = PORTION_ROWS,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._writer = writer
        self._keep = keep
        self._portion_rows = portion_rows
        self._unix_ns = unix_ns
        # Rows that are to go because the file was too large when it was last looked at, and how large that was.
        self._surplus_rows = 0
        self._looked_at_bytes: int | None = None

    def remove_some(self) -> int:
        """Remove one portion of the rows beyond the limits, the oldest first; return the number of rows, 0 if all
        others are to be kept. Raises StoreError if the store cannot be written: then nothing has changed."""
        if self._keep.age_ns is not None:
            before_unix_ns = self._unix_ns() - self._keep.age_ns
            for table in TABLES:
                removed = self._remove(table, before_unix_ns, self._portion_rows)
                if removed:
                    return removed
        return self._remove_surplus()

    def _remove_surplus(self) -> int:
        if self._keep.size_bytes is None:
            return 0
        if not self._surplus_rows:
            self._surplus_rows = self._surplus(self._keep.size_bytes)
        if not self._surplus_rows:
            return 0
        removed = self._remove(self._oldest(), None, min(self._portion_rows, self._surplus_rows))
        self._surplus_rows = max(0, self._surplus_rows - removed) if removed else 0
        if not self._surplus_rows:
            self._writer.checkpoint()  # what was removed is known to the file's size from then on
        return removed

    def _surplus(self, size_bytes: int) -> int:
        """Return how many rows exceed the size, by the average size of a row."""
        with self._writer.database.snapshot() as cursor:
            used_bytes = used_bytes_of(cursor)
            # What is removed leaves the size once whole parts of the file are free: until then no more goes for it.
            if used_bytes <= size_bytes * _SLACK or used_bytes == self._looked_at_bytes:
                return 0
            rows = sum(number(cursor, f"SELECT count(*) FROM {table}") for table in TABLES)
        self._looked_at_bytes = used_bytes
        return max(1, round(rows * (used_bytes - size_bytes) / used_bytes))

    def _oldest(self) -> Table:
        """The table with the row that was stored first."""
        with self._writer.database.snapshot() as cursor:
            first = " UNION ALL ".join(f"(SELECT commit_number, '{table}' FROM {table} LIMIT 1)" for table in TABLES)
            oldest = cursor.execute(first).fetchall()
        return min(oldest)[1] if oldest else "turns"

    def _remove(self, table: Table, before_unix_ns: int | None, rows: int) -> int:
        """Remove about so many rows of a table in whole commits, the oldest first, and only rows stored before a given
        time."""
        is_due = "true" if before_unix_ns is None else f"stored_unix_ns < {int(before_unix_ns)}"
        with self._writer.database.snapshot() as cursor:
            # Rows lie in the order of their commits.
            last: Any = cursor.execute(
                f"SELECT max(commit_number) FROM (SELECT commit_number FROM {table} WHERE {is_due} LIMIT ?)",
                [rows],
            ).fetchone()
        if last is None or last[0] is None:
            return 0
        where, values = f"commit_number <= ? AND {is_due}", [last[0]]
        run = "NULL" if table == "spans" else "run_id"
        moment = f"least({TIME_COLUMNS[table]}, stored_unix_ns)"
        with self._writer.change() as cursor:
            cursor.execute(
                f"""
                INSERT INTO removed SELECT '{table}', {run}, count(*), max({moment}) FROM {table}
                WHERE {where} GROUP BY 2
                """,
                values,
            )
            deleted: Any = cursor.execute(f"DELETE FROM {table} WHERE {where}", values).fetchone()
            _sum_up(cursor, table)
        return int(deleted[0])


def used_bytes_of(cursor: duckdb.DuckDBPyConnection) -> int:
    """Return the size of a database's rows on disk, without free space."""
    return number(cursor, "SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = 'store'")


def _sum_up(cursor: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Leave one row for each run of which rows were removed: also of one without rows now, as more of it may come."""
    cursor.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE summed AS
        SELECT of_table, run_id, sum(row_count)::BIGINT AS row_count, max(until_unix_ns) AS until_unix_ns
        FROM removed WHERE of_table = '{table}' GROUP BY ALL
        """
    )
    cursor.execute(f"DELETE FROM removed WHERE of_table = '{table}'")
    cursor.execute("INSERT INTO removed SELECT * FROM summed")
