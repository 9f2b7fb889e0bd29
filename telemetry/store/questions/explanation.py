"""The dimensions that set a selection of turns apart, from one consistent read; the statistic is
`telemetry.explanation.dimensions`."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from telemetry.explanation.dimensions import NOT_REPORTED, Dimension, ExplainedDimension, rank_dimensions
from telemetry.model.turns import DIMENSIONS as TURN_DIMENSIONS
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.filters import ASKED, Condition, judged, metric_column, source_of, valid
from telemetry.store.questions.objectives import BAD, column_of, with_judgments

# More turns than that take longer to look at than a page may.
MOST_TURNS: Final = 120_000
# The expressions of dimensions that are no column of their own.
_MADE: Final = {
    "cache": "CASE WHEN cache_hit THEN coalesce('hit: ' || cache_tier, 'hit') WHEN NOT cache_hit THEN 'miss' END",
    "worker": "nullif(process_id, '')",
}
# Dimensions that may explain the selected turns, by their names for people, each as an expression over a turn.
DIMENSIONS: Final[dict[str, str]] = {
    dimension.name: dimension.field or _MADE[dimension.name]
    for dimension in TURN_DIMENSIONS
    if "explanation" in dimension.uses
}


@dataclass(frozen=True, slots=True)
class TurnSelection:
    """The selected turns of a filter: those that meet all that is not None.

    Bad by the `objective`; a value of `metric` of at least `at_least` and less than `below` (in its unit); begun at or
    after `since_unix_ns` and before `until_unix_ns`. Turns without a value of the metric are not selected, and turns
    that do not count for the objective are left out.
    """

    objective: Objective | None = None
    metric: str | None = None
    at_least: float | None = None
    below: float | None = None
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ExplanationQuestion:
    """A selection, and the turns it is made from."""

    selection: TurnSelection
    filter: Filter = Filter()  # noqa: RUF009 - immutable


@dataclass(frozen=True, slots=True)
class Explanation:
    """The numbers of selected turns and of those that they were compared with, and every dimension, the one that
    explains most first. `is_sample` if there were too many turns to read all."""

    selected: int
    others: int
    dimensions: tuple[ExplainedDimension, ...] = ()
    is_sample: bool = False


def explanation(connection: StoreConnection, asked: ExplanationQuestion) -> Explanation:
    """Return the dimensions that set a selection of turns apart from the others of its filter, the strongest first.
    Raises BadQuestionError for an unknown metric."""
    return explained(connection, asked, Condition("true"))


def explained(connection: StoreConnection, asked: ExplanationQuestion, searched: Condition) -> Explanation:
    """Return the `explanation` for those turns of the selection that also meet `searched`."""
    selection, f = asked.selection, asked.filter
    objectives = [] if selection.objective is None else [selection.objective]
    turns = drawn_turns(connection, f)
    table = with_judgments(turns.where & Condition(ASKED), objectives, source_of(f))
    selected = _selected(selection) & searched
    counts = f"{column_of(0)} <= {BAD}" if objectives else "true"
    dimensions = ", ".join(f"{sql} AS d_{name}" for name, sql in DIMENSIONS.items())
    counted = connection.arrow(
        f"""
        SELECT hash(call_id) AS call, coalesce({selected.sql}, false) AS is_selected, {dimensions}
        FROM {table.sql} WHERE {counts}
        """,
        [*selected.values, *table.values],
    )
    is_selected = counted["is_selected"].to_numpy()
    ranked = rank_dimensions(
        is_selected,
        np.unique(counted["call"].to_numpy(), return_inverse=True)[1].reshape(-1),
        {name: Dimension(*coded(counted[f"d_{name}"])) for name in DIMENSIONS},
    )
    picked = int(np.count_nonzero(is_selected))
    return Explanation(picked, is_selected.size - picked, tuple(ranked), turns.one_in > 1)


def _selected(selection: TurnSelection) -> Condition:
    """The condition of the selected turns among those that count."""
    condition = Condition("true")
    if selection.objective is not None:
        condition &= Condition(f"{column_of(0)} = {BAD}")
    if selection.metric is not None:
        value = f"({metric_column(selection.metric)})::DOUBLE"
        condition &= Condition(f"{value} IS NOT NULL")
        for sign, bound in ((">=", selection.at_least), ("<", selection.below)):
            condition &= Condition("true") if bound is None else Condition(f"{value} {sign} ?", (bound,))
    for sign, moment in ((">=", selection.since_unix_ns), ("<", selection.until_unix_ns)):
        condition &= Condition("true") if moment is None else Condition(f"started_unix_ns {sign} ?", (moment,))
    return condition


@dataclass(frozen=True, slots=True)
class DrawnTurns:
    """The turns of one in `one_in` calls, as a condition."""

    where: Condition
    one_in: int


def drawn_turns(connection: StoreConnection, f: Filter) -> DrawnTurns:
    """The valid turns of a filter, or those of a sample of its calls."""
    where = judged(f) & valid(f)
    (row,) = rows(connection, f"SELECT count(*) AS turns FROM turns WHERE {where.sql}", where.values)
    return drawn(where, row["turns"], MOST_TURNS, "call_id")


def drawn(where: Condition, turns: int, most: int, unit: str) -> DrawnTurns:
    """Restrict a condition to the turns of a sample of their owners, so that about `most` turns are left. A smaller
    sample is a subset of a larger one."""
    one_in = 1
    while turns > most * one_in:
        one_in *= 2
    return DrawnTurns(where if one_in == 1 else where & Condition(f"hash({unit}) % {one_in:d} = 0"), one_in)


def coded(column: Any) -> tuple[Any, tuple[str, ...]]:
    """A column of texts as indices into their sorted values, with these; NOT_REPORTED for null."""
    encoded: Any = column.combine_chunks().dictionary_encode()
    labels = np.array(encoded.dictionary.to_pylist(), dtype=object)
    order = np.argsort(labels, kind="stable")
    # The place behind all labels is that of a turn without one.
    places = np.full(order.size + 1, NOT_REPORTED, dtype=np.int64)
    places[order] = np.arange(order.size)
    return places[encoded.indices.fill_null(order.size).to_numpy()], tuple(labels[order].tolist())
