"""Which dimensions set a selection of turns apart, from one consistent read; the statistic is
`telemetry.explanation.dimensions`."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from telemetry.explanation.dimensions import NOT_REPORTED, Dimension, ExplainedDimension, rank_dimensions
from telemetry.objectives.judgment import DECIDED, Judgment
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.objectives import verdicts_by_key
from telemetry.store.questions.filters import ASKED, Condition, metric_column, source_of
from telemetry.store.turn_samples import drawn_turns

# What is asked, by its name for people, and where a turn has it.
DIMENSIONS: Final[dict[str, str]] = {
    "cohort": "cohort",
    "domain": "domain",
    "length": "length_class",
    "noise": "noise_profile",
    "channel": "channel_profile",
    "route": "route",
    "cache": "CASE WHEN cache_hit THEN coalesce('hit: ' || cache_tier, 'hit') WHEN NOT cache_hit THEN 'miss' END",
    "model": "model",
    "region": "region",
    "utterance": "utterance_id",
    "worker": "nullif(process_id, '')",
}


@dataclass(frozen=True, slots=True)
class TurnSelection:
    """Which of a filter's turns are selected: those that meet all that is not None.

    Bad by the `objective`; a value of `metric` of at least `at_least` and less than `below` (in its unit); begun from
    `since_unix_ns` on and before `until_unix_ns`. Turns without a value of the metric are not selected, and of an
    objective those that do not count are left out.
    """

    objective: Objective | None = None
    metric: str | None = None
    at_least: float | None = None
    below: float | None = None
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ExplanationQuestion:
    """Which selection, of which turns."""

    selection: TurnSelection
    filter: Filter = Filter()  # noqa: RUF009 - immutable


@dataclass(frozen=True, slots=True)
class Explanation:
    """How many turns were selected, how many they were compared with, and every dimension, that which explains most
    first. `is_sample` where the turns were too many to look at all."""

    selected: int
    others: int
    dimensions: tuple[ExplainedDimension, ...] = ()
    is_sample: bool = False


def explanation(
    connection: StoreConnection, asked: ExplanationQuestion, searched: Condition | None = None
) -> Explanation:
    """The answer. Of the selection only those turns count as selected that `searched` means, too. Raises KeyError for a
    metric that there is none of."""
    selection, f = asked.selection, asked.filter
    column = _column(selection)
    objectives = _objectives(selection)
    turns = drawn_turns(connection, f)
    where = turns.where & Condition(ASKED)
    key, values, verdicts = "0", [], {}
    if objectives:
        key, values, verdicts = verdicts_by_key(connection, where, objectives, source_of(f))
    dimensions = ", ".join(f"{sql} AS d_{name}" for name, sql in DIMENSIONS.items())
    found: dict[str, Any] = connection.execute(
        f"""
        SELECT hash(call_id) AS call, started_unix_ns, {key} AS rule, ({column})::DOUBLE AS value,
               coalesce({"TRUE" if searched is None else searched.sql}, FALSE) AS searched, {dimensions}
        FROM turns WHERE {where.sql}
        """,
        [*values, *([] if searched is None else searched.values), *where.values],
    ).fetchnumpy()
    is_selected, counts = _selected(selection, found, verdicts)
    is_selected &= np.ma.getdata(found["searched"]).astype(bool)
    picked = int(np.count_nonzero(is_selected[counts]))
    ranked = rank_dimensions(
        is_selected[counts],
        np.unique(found["call"][counts], return_inverse=True)[1].reshape(-1),
        {name: _dimension(found[f"d_{name}"][counts]) for name in DIMENSIONS},
    )
    return Explanation(picked, int(np.count_nonzero(counts)) - picked, tuple(ranked), turns.is_sample)


def _column(selection: TurnSelection) -> str:
    return "NULL" if selection.metric is None else metric_column(selection.metric)


def _objectives(selection: TurnSelection) -> list[Objective]:
    return [] if selection.objective is None else [selection.objective]


def _selected(selection: TurnSelection, found: dict[str, Any], verdicts: dict[str, dict[int, Judgment | None]]) -> Any:
    """Which turns are selected, and which count at all."""
    size = found["started_unix_ns"].size
    is_selected, counts = np.ones(size, dtype=bool), np.ones(size, dtype=bool)
    if selection.objective is not None:
        known, places = np.unique(found["rule"], return_inverse=True)
        of_key = [verdicts[selection.objective.name].get(int(key)) for key in known]
        counts &= np.array([verdict in DECIDED for verdict in of_key], dtype=bool)[places.reshape(-1)]
        is_selected &= np.array([verdict is Judgment.BAD for verdict in of_key], dtype=bool)[places.reshape(-1)]
    if selection.metric is not None:
        value = np.ma.filled(found["value"], np.nan)
        is_selected &= ~np.isnan(value)
        is_selected &= value >= selection.at_least if selection.at_least is not None else True
        is_selected &= value < selection.below if selection.below is not None else True
    started = found["started_unix_ns"]
    is_selected &= started >= selection.since_unix_ns if selection.since_unix_ns is not None else True
    is_selected &= started < selection.until_unix_ns if selection.until_unix_ns is not None else True
    return is_selected, counts


def _dimension(column: Any) -> Dimension:
    codes, labels = coded(column)
    return Dimension(codes, labels)


def coded(column: Any) -> tuple[Any, tuple[str, ...]]:
    """A column of texts as places in their sorted values, with these; NOT_REPORTED where there is none."""
    codes = np.full(column.size, NOT_REPORTED, dtype=np.int64)
    is_missing = np.ma.getmaskarray(column)
    if is_missing.all():
        return codes, ()
    encoded: Any = pa.array(np.ma.getdata(column)[~is_missing], pa.string()).dictionary_encode()
    labels = np.array(encoded.dictionary.to_pylist(), dtype=object)
    order = np.argsort(labels, kind="stable")
    places = np.empty(order.size, dtype=np.int64)
    places[order] = np.arange(order.size)
    codes[~is_missing] = places[encoded.indices.to_numpy()]
    return codes, tuple(labels[order].tolist())
