"""Whole turns from the store."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from typing import Final

from telemetry.model.turns import Turn
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import Condition
from telemetry.store.schema import TURN_FIELDS, turn_from_row

TURN_COLUMNS: Final = ", ".join(TURN_FIELDS)


def full_turns(connection: StoreConnection, where: Condition, order: str, limit: int, offset: int = 0) -> list[Turn]:
    """The turns of a condition in an order of columns."""
    statement = f"SELECT {TURN_COLUMNS} FROM turns WHERE {where.sql} ORDER BY {order} LIMIT ? OFFSET ?"
    return [turn_from_row(row) for row in rows(connection, statement, [*where.values, limit, offset])]
