"""A metric over time, a line for each cohort: a percentile over rolling windows wide enough for it.

A window is WINDOW_STEPS steps of one round width, and the windows of one picture are alike. They are so wide that the
turns of a window are enough for the percentile even of the smallest cohort that is drawn, had its turns come evenly. A
window with fewer turns has no value: the line has a gap there.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.model.stats import enough
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import ASKED, Condition, judged, metric_column, valid
from telemetry.store.timelines import bucket_width_ns, calls_in_flight

STATISTIC: Final = "p95"
WINDOW_STEPS: Final = 4
# More lines than that nobody tells apart: the cohorts with most turns have one.
MOST_LINES: Final = 6
_MOST_STEPS: Final = 120
# How many times the turns that the percentile needs a window holds on average.
_SPARE: Final = 2


@dataclass(frozen=True, slots=True)
class LinePoint:
    """The percentile over the turns that began in the window before a moment, None where they are too few."""

    end_unix_ns: int
    n: int
    value: float | None


@dataclass(frozen=True, slots=True)
class CohortLine:
    """The points of a cohort; `cohort` is None for turns that name none."""

    cohort: str | None
    points: Sequence[LinePoint]


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """How many calls were in flight on average in the step that begins at a moment; None where no process said so."""

    start_unix_ns: int
    calls: int | None


@dataclass(frozen=True, slots=True)
class CohortLines:
    """A line for each cohort and the load, on one axis of time. `left_out` cohorts have too few turns to be among the
    lines."""

    metric: str
    window_ns: int = 0
    lines: Sequence[CohortLine] = ()
    load: Sequence[LoadPoint] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _Axis:
    first: int  # step
    last: int
    step_ns: int

    def points(self, found: Mapping[int, tuple[int, float | None]]) -> list[LinePoint]:
        """The windows by the step that they end with; the first are not whole, unless the axis is so short."""
        begin = min(self.last, self.first + WINDOW_STEPS - 1)
        return [
            LinePoint((step + 1) * self.step_ns, n, enough(STATISTIC, n, value))
            for step in range(begin, self.last + 1)
            for n, value in [found.get(step, (0, None))]
        ]


def cohort_lines(connection: StoreConnection, f: Filter, metric: str) -> CohortLines:
    """The lines of a filter's turns. Raises KeyError for a metric that there is none of."""
    column, where = metric_column(metric), judged(f) & valid(f) & Condition(ASKED)
    counted = rows(
        connection,
        f"""
        SELECT cohort, count({column}) AS n, min(started_unix_ns) AS first, max(started_unix_ns) AS last
        FROM turns WHERE {where.sql} GROUP BY cohort HAVING n > 0 ORDER BY n DESC, coalesce(cohort, '')
        """,
        where.values,
    )
    if not counted:
        return CohortLines(metric)
    kept = {row["cohort"]: row["n"] for row in counted[:MOST_LINES]}
    first, last = min(row["first"] for row in counted), max(row["last"] for row in counted)
    windows = min(kept.values()) // (_SPARE * MIN_COUNT_FOR[STATISTIC])
    steps = min(_MOST_STEPS, max(WINDOW_STEPS, WINDOW_STEPS * windows))
    step_ns = bucket_width_ns(last - first, steps)
    axis = _Axis(first // step_ns, last // step_ns, step_ns)
    found = _windows(connection, where, column, step_ns)
    in_flight = calls_in_flight(connection, f, step_ns)
    return CohortLines(
        metric,
        window_ns=step_ns * min(WINDOW_STEPS, axis.last - axis.first + 1),
        lines=[
            CohortLine(cohort, axis.points(found.get(cohort, {}))) for cohort in sorted(kept, key=lambda c: c or "")
        ],
        load=[LoadPoint(step * step_ns, in_flight.get(step)) for step in range(axis.first, axis.last + 1)]
        if in_flight
        else (),
        left_out=len(counted) - len(kept),
    )


def _windows(
    connection: StoreConnection, where: Condition, column: str, step_ns: int
) -> dict[str | None, dict[int, tuple[int, float | None]]]:
    """Count and percentile of every window by cohort and the step that it ends with."""
    steps = ", ".join(f"started_unix_ns // {step_ns} + {place}" for place in range(WINDOW_STEPS))
    found: dict[str | None, dict[int, tuple[int, float | None]]] = {}
    for row in rows(
        connection,
        f"""
        SELECT cohort, step, count(value) AS n, quantile_cont(value, 0.95) AS value
        FROM (SELECT cohort, {column} AS value, unnest([{steps}]) AS step FROM turns WHERE {where.sql})
        WHERE value IS NOT NULL GROUP BY cohort, step
        """,
        where.values,
    ):
        found.setdefault(row["cohort"], {})[row["step"]] = row["n"], row["value"]
    return found
