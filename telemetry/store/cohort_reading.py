"""The turns of two cohorts as a page compares them: their sizes exactly, their columns of at most so many turns.

Of more turns than a page can read while somebody waits, those of whole callers are drawn, by their ids. Bounds of the
differences are taken over what was read, so that they are as wide as the draw makes them.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from telemetry.rollout.cohort_comparison import CohortSize
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions.filters import Condition
from telemetry.store.rollout_turns import RolloutQuestion, asked_turns
from telemetry.store.turn_columns import (
    MOST_SLICE_VALUES,
    MOST_TURNS,
    TurnColumns,
    belongs_to,
    expressions,
    packed_turns,
    rules_of,
)
from telemetry.store.turn_samples import drawn

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
    where = asked_turns(asked) & Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    counted = _counted(connection, asked, where)
    caller = belongs_to(asked.unit)
    turns = drawn(where, sum(row["turns"] for row in counted if row["by_outcome"]), most_read, caller)
    labels = {name: _commonest(counted, name) for name in dict.fromkeys(asked.slices)}
    rules = rules_of(connection, turns.where, asked.objectives, asked.source)
    sql, values = expressions(read, labels, rules)
    found: dict[str, Any] = connection.execute(
        f"SELECT {sql}, cohort = ? AS is_candidate FROM turns WHERE {turns.where.sql} LIMIT {MOST_TURNS + 1}",
        [*values, asked.candidate, *turns.where.values],
    ).fetchnumpy()
    is_candidate = np.asarray(found["is_candidate"])

    def packed(cohort: str, mine: Any) -> CohortTurns:
        return packed_turns(cohort, {name: each[mine] for name, each in found.items()}, read, labels, rules)

    callers = {
        row["cohort"]: row["callers"]
        for row in rows(
            connection,
            f"SELECT cohort, count(DISTINCT {caller}) AS callers FROM turns WHERE {where.sql} GROUP BY cohort",
            where.values,
        )
    }
    return ReadCohorts(
        packed(asked.candidate, is_candidate),
        packed(asked.control, ~is_candidate),
        (_size(asked.candidate, counted, callers), _size(asked.control, counted, callers)),
        turns.one_in,
    )


def _counted(connection: StoreConnection, asked: RolloutQuestion, where: Condition) -> list[Row]:
    """How many turns there are by cohort and outcome, and by the values of every dimension."""
    dimensions = tuple(dict.fromkeys(asked.slices))
    names = ("cohort", "outcome", *dimensions)
    sets = ", ".join(["(cohort, outcome)", *(f"({name})" for name in dimensions)])
    return rows(
        connection,
        f"""
        SELECT {", ".join(f"{name}, grouping({name}) = 0 AS by_{name}" for name in names)}, count(*) AS turns
        FROM turns WHERE {where.sql} GROUP BY GROUPING SETS ({sets})
        """,
        where.values,
    )


def _size(cohort: str, counted: Sequence[Row], callers: dict[str, int]) -> CohortSize:
    by_outcome = Counter[str]()
    for row in counted:
        if row["by_outcome"] and row["cohort"] == cohort:
            by_outcome[row["outcome"]] += row["turns"]
    turns, invalid = by_outcome.total(), by_outcome["invalid"]
    return CohortSize(cohort, turns, turns - invalid - by_outcome["cut"], invalid, callers.get(cohort, 0))


def _commonest(counted: Sequence[Row], dimension: str) -> tuple[str, ...]:
    """The commonest values of a dimension, in the order of the alphabet."""
    turns = {row[dimension]: row["turns"] for row in counted if row[f"by_{dimension}"] and row[dimension] is not None}
    return tuple(sorted(sorted(turns, key=lambda value: (-turns[value], value))[:MOST_SLICE_VALUES]))
