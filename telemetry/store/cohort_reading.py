"""The turns of two cohorts as a page compares them: their sizes exactly, their columns of at most so many turns.

Of more turns than a page can read while somebody waits, those of whole callers are drawn, by their ids. Bounds of the
differences are taken over what was read, so that they are as wide as the draw makes them.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from telemetry.rollout.cohort_comparison import CohortSize
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import Condition
from telemetry.store.rollout_turns import RolloutQuestion, asked_turns
from telemetry.store.turn_columns import MOST_SLICE_VALUES, TurnColumns, belongs_to, columns_of_turns, rules_of

# To read and sort more takes longer than a page may.
MOST_READ: Final = 200_000


@dataclass(frozen=True, slots=True)
class ReadCohorts:
    """Both cohorts from one consistent read. `one_in` callers of how many the turns are; the sizes are of all."""

    candidate: CohortTurns
    control: CohortTurns
    sizes: tuple[CohortSize, CohortSize]  # of the candidate and of the control
    one_in: int


def read_cohorts(connection: StoreConnection, asked: RolloutQuestion, most_read: int = MOST_READ) -> ReadCohorts:
    """The turns that a question asks for, at most about `most_read`. Raises StoreError for a column that the store does
    not have."""
    read = TurnColumns(asked.metrics, asked.reported, asked.slices, asked.objectives, asked.with_audio, asked.unit)
    read.check()
    where = asked_turns(asked)
    of_both = where & Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    sizes = _sizes(connection, asked, of_both)
    one_in = 1
    while sum(each.turns for each in sizes) > most_read * one_in:
        one_in *= 2  # so that more turns narrow the same draw
    drawn = where if one_in == 1 else where & Condition(f"hash({belongs_to(asked.unit)}) % {one_in:d} = 0")
    of_all = _labels(connection, of_both, asked.slices), rules_of(connection, of_both, asked.objectives, asked.source)
    candidate, control = (
        columns_of_turns(connection, drawn & Condition("cohort = ?", (name,)), name, read, of_all)
        for name in (asked.candidate, asked.control)
    )
    return ReadCohorts(candidate, control, sizes, one_in)


def _sizes(connection: StoreConnection, asked: RolloutQuestion, of_both: Condition) -> tuple[CohortSize, CohortSize]:
    found = {
        row["cohort"]: CohortSize(row["cohort"], row["turns"], row["eligible"], row["invalid"], row["callers"])
        for row in rows(
            connection,
            f"""
            SELECT cohort, count(*) AS turns, count(*) FILTER (outcome NOT IN ('invalid', 'cut')) AS eligible,
                   count(*) FILTER (outcome = 'invalid') AS invalid, count(DISTINCT {belongs_to(asked.unit)}) AS callers
            FROM turns WHERE {of_both.sql} GROUP BY cohort
            """,
            of_both.values,
        )
    }
    candidate, control = (found.get(name, CohortSize(name)) for name in (asked.candidate, asked.control))
    return candidate, control


def _labels(
    connection: StoreConnection, of_both: Condition, dimensions: tuple[str, ...]
) -> Mapping[str, tuple[str, ...]]:
    """The commonest values of every dimension, in the order of the alphabet, from one look at the turns."""
    if not dimensions:
        return {}
    found: dict[str, list[str]] = {name: [] for name in dict.fromkeys(dimensions)}
    sets = ", ".join(f"({name})" for name in found)
    for row in rows(
        connection,
        f"""
        SELECT {", ".join(found)}, count(*) AS turns FROM turns WHERE {of_both.sql}
        GROUP BY GROUPING SETS ({sets}) ORDER BY turns DESC, {", ".join(found)}
        """,
        of_both.values,
    ):
        for name, values in found.items():
            if row[name] is not None and len(values) < MOST_SLICE_VALUES:
                values.append(row[name])
    return {name: tuple(sorted(values)) for name, values in found.items()}
