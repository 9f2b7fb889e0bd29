"""The turns of a filter by run, and the values that occur in their dimensions."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from dataclasses import dataclass
from typing import Final

from telemetry.model.semconv import Source
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.filters import ASKED, Condition, judged, turns_of

_CHOSEN_BY: Final = ("cohort", "noise_profile", "length_class", "route")


@dataclass(frozen=True, slots=True)
class CountedTurns:
    """Turns that were asked something and are of no ramp."""

    total: int = 0
    invalid: int = 0

    @property
    def valid(self) -> int:
        """Those that say something about the service."""
        return self.total - self.invalid

    def __add__(self, other: "CountedTurns") -> "CountedTurns":
        return CountedTurns(self.total + other.total, self.invalid + other.invalid)


def turns_by_run(connection: StoreConnection, f: Filter, source: Source) -> dict[str, CountedTurns]:
    """By run, the turns of a source that a filter means."""
    where = judged(f) & Condition(f"{ASKED} AND source = ?", (source,))
    statement = f"""
        SELECT run_id, count(*) AS total, count(*) FILTER (outcome = 'invalid') AS invalid
        FROM turns WHERE {where.sql} GROUP BY run_id
        """
    found = rows(connection, statement, list(where.values))
    return {row["run_id"]: CountedTurns(row["total"], row["invalid"]) for row in found}


def values_of_turns(connection: StoreConnection, f: Filter, source: Source) -> dict[str, tuple[str, ...]]:
    """The values of each dimension that a page may be narrowed by, among the turns of a source of the filter's run and
    time, whatever else it asks for."""
    where = turns_of(Filter(f.run_id, since_unix_ns=f.since_unix_ns, until_unix_ns=f.until_unix_ns))
    lists = ", ".join(f"list_sort(array_agg(DISTINCT {name})) AS {name}" for name in _CHOSEN_BY)
    statement = f"SELECT {lists} FROM turns WHERE {where.sql} AND source = ?"
    (row,) = rows(connection, statement, [*where.values, source])
    return {name: tuple(value for value in row[name] or () if value) for name in _CHOSEN_BY}
