"""The rows of one trace, found among tens of millions.

The segments that hold rows of it are found by its id alone, which reads little more than their filters. Only of those
are whole rows read: a statement over a hundred columns takes its time for each file that it names.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.manifest import Table
from telemetry.store.trace_filters import TRACE_COLUMN


def rows_of_trace(connection: StoreConnection, table: Table, trace_id: str, *, columns: str, order: str) -> list[Row]:
    """The rows of a trace in an order of columns."""
    connection.view(f"{table}_of_trace", table, connection.segments_of_trace(table, trace_id))
    statement = f"SELECT {columns} FROM {table}_of_trace WHERE {TRACE_COLUMN} = ? ORDER BY {order}"
    with connection.planned_plainly():
        return rows(connection, statement, [trace_id])
