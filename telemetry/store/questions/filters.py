"""Conditions for the turns that a question is about, and whole turns.

A statement narrows `turns`, `spans` and `points` by a `Condition`, whose values are bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from telemetry.model.metrics import HEADLINE, ITL, METRIC_NAMES, METRICS
from telemetry.model.semconv import RAMP, Outcome, Source
from telemetry.model.services import SERVICE_RUN_PREFIX, service_day
from telemetry.model.turns import FILTERED, Turn, fields_for
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.connection import BadQuestionError, StoreConnection, rows
from telemetry.store.schema import TURN_FIELDS, turn_from_row

ANY: Final = Filter()
# What may be asked: an answer over the network stays of a size that both sides can hold.
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
ManyTurns = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
ManyBuckets = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Objectives = Annotated[Sequence[Objective], msgspec.Meta(max_length=200)]
# Those of one question that is kept, which is immutable; and names of columns.
ManyObjectives = Annotated[tuple[Objective, ...], msgspec.Meta(max_length=200)]
Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=200)]

# Which turns count among those of any run: what its callers heard, in a view by service and day what that reported.
VIEWED: Final = f"source = CASE WHEN starts_with(run_id, '{SERVICE_RUN_PREFIX}') THEN 'service' ELSE 'client' END"
VALID: Final = "outcome <> 'invalid'"
FRACTIONS: Final = "[0.5, 0.95, 0.99]"
ASKED: Final = "turn_kind IS DISTINCT FROM 'silence'"
# Which turns the figures of a whole run are taken over.
COUNTED: Final = f"{ASKED} AND phase_kind IS DISTINCT FROM '{RAMP}'"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a WHERE clause with its values."""

    sql: str
    values: tuple[Any, ...] = ()

    def __and__(self, other: "Condition") -> "Condition":
        return Condition(f"({self.sql}) AND ({other.sql})", (*self.values, *other.values))


def source_of(f: Filter) -> Source:
    """Return the source of a filter's figures: its callers, or in a view by service and day the service."""
    return "client" if f.run_id is None or service_day(f.run_id) is None else "service"


def viewed(f: Filter) -> Condition:
    """The turns of one source that a filter's figures are taken over: never both sides of one turn."""
    return Condition(f"source = '{source_of(f)}'")


def valid(f: Filter) -> Condition:
    """Return `viewed` without turns that the load generator made invalid: every figure of the service is over these."""
    return viewed(f) & Condition(VALID)


def turns_of(f: Filter) -> Condition:
    """The turns a filter means, of either source."""
    condition = _within("started_unix_ns", f)
    for column in ("run_id", *FILTERED):
        if (wanted := getattr(f, column)) is not None:
            condition &= Condition(f"{column} = ?", (wanted,))
    return condition


def points_of(f: Filter) -> Condition:
    """The metric points a filter means: they carry their run and their time only."""
    run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    return run & _within("unix_ns", f)


def farthest_from_0(column: str) -> str:
    """The value of a column that is farthest from 0, with its sign; of two equally far, the positive one, so that the
    same store always gives the same answer."""
    return f"CASE WHEN max({column}) >= -min({column}) THEN max({column}) ELSE min({column}) END"


def asks_beyond_phases(f: Filter) -> bool:
    """Return whether the filter restricts turns by anything other than their start."""
    return any(getattr(f, name) for name in FILTERED if name != "phase")


def _within(column: str, f: Filter) -> Condition:
    condition = Condition("true")
    if f.since_unix_ns is not None:
        condition &= Condition(f"{column} >= ?", (f.since_unix_ns,))
    if f.until_unix_ns is not None:
        condition &= Condition(f"{column} < ?", (f.until_unix_ns,))
    return condition


def metric_column(metric: str) -> str:
    """The column of a metric's value on a turn; for `itl` the turn's worst gap. Raises BadQuestionError for another
    name."""
    if metric not in METRIC_NAMES:
        raise BadQuestionError(f"there is no metric {metric!r:.60}; known are {', '.join(METRIC_NAMES)}")
    return "list_max(llm_chunk_gaps_ns)" if metric == ITL else METRICS[metric].column


def is_steady(f: Filter) -> str:
    """Return whether a turn of a filter is in figures: it is outside ramps, unless the filter names its phase."""
    return "true" if f.phase is not None else f"phase_kind IS DISTINCT FROM '{RAMP}'"


def judged(f: Filter) -> Condition:
    """The turns in figures: outside ramps, unless the filter names one."""
    return turns_of(f) & Condition(is_steady(f))


def grouped(f: Filter) -> Condition:
    """The turns over which counts and metrics are taken: a silent turn has no question and is counted separately."""
    return judged(f) & viewed(f) & Condition(ASKED)


UNREAD: Final = "count(*) FILTER (WHERE endpoint_did_not_read AND outcome <> 'invalid')"
_OFFERED: Final = (*fields_for("choice"), "target")


def dimension_values(connection: StoreConnection, f: Filter = ANY) -> dict[str, tuple[str, ...]]:
    """The values that occur among the client turns, sorted, by dimension."""
    return values_of(connection, f, _OFFERED)


def values_of(connection: StoreConnection, f: Filter, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of columns that occur among the client turns, sorted, by column."""
    where = turns_of(f) & viewed(f)
    lists = ", ".join(
        f"list_sort(array_agg(DISTINCT {name}) FILTER (WHERE {name} IS NOT NULL)) AS {name}" for name in names
    )
    (row,) = rows(connection, f"SELECT {lists} FROM turns WHERE {where.sql}", where.values)
    return {name: tuple(values or ()) for name, values in row.items()}


TURN_COLUMNS: Final = ", ".join(TURN_FIELDS)


def full_turns(connection: StoreConnection, where: Condition, order: str, limit: int, offset: int = 0) -> list[Turn]:
    """The turns that meet a condition, ordered by columns."""
    statement = f"SELECT {TURN_COLUMNS} FROM turns WHERE {where.sql} ORDER BY {order} LIMIT ? OFFSET ?"
    return [turn_from_row(row) for row in rows(connection, statement, [*where.values, limit, offset])]


def slowest(connection: StoreConnection, f: Filter = ANY, metric: str = HEADLINE, limit: ManyTurns = 10) -> list[Turn]:
    """The valid client turns with the largest values of a metric, the largest first, outside ramps. Raises
    BadQuestionError for an unknown metric."""
    column = metric_column(metric)
    where = judged(f) & valid(f) & Condition(f"{column} IS NOT NULL")
    return full_turns(connection, where, f"{column} DESC, started_unix_ns, span_id", limit)


def turns(
    connection: StoreConnection,
    f: Filter = ANY,
    limit: ManyTurns = 1000,
    offset: Natural = 0,
    *,
    source: Source | None = None,
    outcome: Outcome | None = None,
) -> list[Turn]:
    """Turns of a filter ordered by start, of either source unless one is named."""
    where = turns_of(f)
    for column, wanted in (("source", source), ("outcome", outcome)):
        if wanted is not None:
            where &= Condition(f"{column} = ?", (wanted,))
    return full_turns(connection, where, "started_unix_ns, span_id", limit, offset)


def metric_values(connection: StoreConnection, f: Filter, metric: str) -> list[float]:
    """The raw values of a metric over the valid client turns in the order of the turns, in the metric's unit."""
    column = "unnest(llm_chunk_gaps_ns)" if metric == ITL else metric_column(metric)
    where = judged(f) & valid(f)
    statement = f"""
        SELECT value::DOUBLE FROM (SELECT {column} AS value, started_unix_ns, span_id FROM turns WHERE {where.sql})
        WHERE value IS NOT NULL ORDER BY started_unix_ns, span_id
        """
    return [value for (value,) in connection.execute(statement, where.values).fetchall()]
