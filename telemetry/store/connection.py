"""The connection of a question: statements that all see the same rows of a store.

The tables are `turns`, `spans` and `points` (telemetry.store.schema), complete: a statement restricts them by its
conditions, and the narrower these are in time, the less is read. Temporary tables belong to the question.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import duckdb

from telemetry.model.errors import StoreError
from telemetry.store.schema import ArrowTable, Table

# Percentiles are exact while a view has no more turns, by default.
EXACT_TURNS: Final = 500_000

Row = dict[str, Any]
_Parameters = ParamSpec("_Parameters")
_Read = TypeVar("_Read")


class BadQuestionError(StoreError):
    """Raised for an unknown question, or invalid parameters; the text says which."""


class StoreConnection:
    """Statements over one snapshot of a store, for the questions of one view; `now_unix_ns` is the time of the
    question. For a view of more than `exact_turns`, pages show estimates of percentiles."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        directory: Path,
        now_unix_ns: int | None = None,
        exact_turns: int = EXACT_TURNS,
    ) -> None:
        self._cursor = cursor
        self.directory = directory
        self.now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
        self.exact_turns = exact_turns
        self._known: dict[object, Any] = {}  # what functions marked with `once` have read

    def at(self, now_unix_ns: int) -> "StoreConnection":
        """The same snapshot for a question at another time."""
        return StoreConnection(self._cursor, self.directory, now_unix_ns, self.exact_turns)

    def known(self, key: object, read: Callable[[], _Read]) -> _Read:
        """Call `read` at the first use of a key, and return its result for every use."""
        if key not in self._known:
            self._known[key] = read()
        return self._known[key]

    def execute(
        self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Run a statement, its values bound."""
        return self._cursor.execute(statement, parameters or [])

    def arrow(self, statement: str, parameters: Sequence[Any] = ()) -> ArrowTable:
        """The rows of a statement as a table, without an object for each value."""
        return self._cursor.sql(statement, params=list(parameters)).to_arrow_table()


def once(
    read: Callable[Concatenate[StoreConnection, _Parameters], _Read],
) -> Callable[Concatenate[StoreConnection, _Parameters], _Read]:
    """Mark a function that several questions of a view call: for the same parameters, which are hashable, it reads a
    snapshot once. Nobody changes its result."""

    @functools.wraps(read)
    def known(connection: StoreConnection, *values: _Parameters.args, **named: _Parameters.kwargs) -> _Read:
        key = (read, values, *named.items())
        return connection.known(key, lambda: read(connection, *values, **named))

    return known


def rows(
    connection: StoreConnection, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
) -> list[Row]:
    """The rows of a statement as dictionaries."""
    cursor = connection.execute(statement, parameters)
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def rows_of_trace(connection: StoreConnection, table: Table, trace_id: str, *, columns: str, order: str) -> list[Row]:
    """The rows of a trace, ordered by the given columns."""
    return rows(connection, f"SELECT {columns} FROM {table} WHERE trace_id = ? ORDER BY {order}", [trace_id])
