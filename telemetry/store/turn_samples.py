"""The turns that are looked at one by one: all that a filter means while they are few, of many those of some calls."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from dataclasses import dataclass
from typing import Final

from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.filters import Condition, judged, valid

# More turns than that take longer than a page may.
MOST_TURNS: Final = 120_000


@dataclass(frozen=True, slots=True)
class DrawnTurns:
    """The turns of one in so many calls, as a condition."""

    where: Condition
    one_in: int

    @property
    def is_sample(self) -> bool:
        """Whether they are not all."""
        return self.one_in > 1


def drawn_turns(connection: StoreConnection, f: Filter) -> DrawnTurns:
    """The valid turns of a filter, or those of some of their calls."""
    where = judged(f) & valid(f)
    (row,) = rows(connection, f"SELECT count(*) AS turns FROM turns WHERE {where.sql}", where.values)
    return drawn(where, row["turns"], MOST_TURNS, "call_id")


def drawn(where: Condition, turns: int, most: int, unit: str) -> DrawnTurns:
    """So many turns that meet a condition, or those of one in so many of whom they belong to that about `most` are
    left. One in twice as many is a part of the same."""
    one_in = 1
    while turns > most * one_in:
        one_in *= 2
    return DrawnTurns(where if one_in == 1 else where & Condition(f"hash({unit}) % {one_in:d} = 0"), one_in)
