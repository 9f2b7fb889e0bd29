"""A metric, counts and the load over time.

Buckets have one round width, aligned to the clock so that a live chart does not shift. A line for each cohort uses
rolling windows: WINDOW_STEPS steps of one width, so wide that a window has enough turns for the percentile even of the
smallest cohort drawn, if its turns came evenly. A window with fewer turns has no value: the line has a gap there.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from telemetry.model.generator_health import gauge_metric
from telemetry.model.metrics import HEADLINE, MIN_COUNT_FOR
from telemetry.model.stats import enough, shown_quantiles
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.filters import (
    ANY,
    ASKED,
    Condition,
    ManyBuckets,
    asks_beyond_phases,
    judged,
    metric_column,
    points_of,
    turns_of,
    valid,
)

_SECOND_NS: Final = 1_000_000_000
# Divides every width of a timeline that is not shorter.
COUNT_TICK_NS: Final = 5_000_000_000
MOST_BUCKETS: Final = 60
STATISTIC: Final = "p95"
WINDOW_STEPS: Final = 4
# More lines than that cannot be distinguished: the cohorts with most turns have one.
MOST_LINES: Final = 6
# Up to so many turns are drawn one by one: their windows are long, and the line has few points.
MOST_DOTS: Final = 500
_MOST_STEPS: Final = 120
# How many times the turns that the percentile needs a window holds on average.
_SPARE: Final = 2
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One time bucket of one metric (valid client-heard turns), with the calls then in flight."""

    start_unix_ns: int
    n: int
    p50: float | None
    p95: float | None
    p99: float | None
    calls_in_flight: int | None
    approximate: bool = False  # whether the percentiles are estimates


@dataclass(frozen=True, slots=True)
class GeneratorPoint:
    """A report of one load generator process on itself at one time; None for values that it did not report."""

    unix_ns: int
    process_id: str
    cpu_ratio: float | None  # since the point before
    frames_sent: int | None  # since the process began


def bucket_width_ns(length_ns: int, buckets: int) -> int:
    """The smallest round width with at most `buckets` buckets for the length, whatever its start."""
    for width_s in _WIDTHS_S:
        if length_ns // (width_s * _SECOND_NS) + 2 <= buckets:
            return width_s * _SECOND_NS
    day_ns = _WIDTHS_S[-1] * _SECOND_NS
    # Aligned buckets: a length of k widths may touch k + 1 of them.
    days = -(-length_ns // (day_ns * max(1, buckets - 1)))
    return max(1, days) * day_ns


def timeline(
    connection: StoreConnection, f: Filter = ANY, metric: str = HEADLINE, buckets: ManyBuckets = MOST_BUCKETS
) -> list[TimelinePoint]:
    """The metric over time in at most `buckets` buckets of one round width, from the first to the last one with a turn;
    those without one are given too (n = 0). Raises BadQuestionError for a metric that there is none of."""
    column, where = metric_column(metric), turns_of(f) & valid(f)
    (span,) = rows(
        connection,
        f"SELECT min(started_unix_ns) AS first, max(started_unix_ns) AS last FROM turns WHERE {where.sql}",
        list(where.values),
    )
    if span["first"] is None:
        return []
    width_ns = bucket_width_ns(span["last"] - span["first"], buckets)
    first = span["first"] // width_ns
    by_bucket = {
        row["bucket"]: row
        for row in rows(
            connection,
            f"""
            SELECT started_unix_ns // {width_ns} AS bucket, count({column}) AS n,
                   quantile_cont({column}, [0.5, 0.95, 0.99]) AS q
            FROM turns WHERE {where.sql} GROUP BY bucket
            """,
            list(where.values),
        )
    }
    in_flight = calls_in_flight(connection, f, width_ns)
    points: list[TimelinePoint] = []
    for bucket in range(first, span["last"] // width_ns + 1):
        row = by_bucket.get(bucket)
        n = 0 if row is None else row["n"]
        p50, p95, p99 = shown_quantiles(n, None if row is None else row["q"])
        points.append(
            TimelinePoint(
                start_unix_ns=bucket * width_ns,
                n=n,
                p50=p50,
                p95=p95,
                p99=p99,
                calls_in_flight=in_flight.get(bucket),
            )
        )
    return points


def calls_in_flight(connection: StoreConnection, f: Filter, width_ns: int) -> dict[int, int]:
    """Return the generator's calls in flight by bucket: the mean of each process, summed. Unknown if no process
    reported, and if the filter restricts what only turns have."""
    if f.phase is not None or asks_beyond_phases(f):
        return {}
    where = points_of(f)
    calls = rows(
        connection,
        f"""
        SELECT bucket, round(sum(mean))::BIGINT AS calls FROM (
            SELECT unix_ns // {width_ns} AS bucket, process_id, avg(value) AS mean
            FROM points WHERE name = ? AND {where.sql} GROUP BY ALL
        ) GROUP BY bucket
        """,
        [gauge_metric("calls_in_flight"), *where.values],
    )
    return {row["bucket"]: row["calls"] for row in calls}


def generator_points(connection: StoreConnection, f: Filter = ANY) -> list[GeneratorPoint]:
    """Return what the generator's processes reported about themselves over time, oldest first."""
    where = points_of(f)
    readings = rows(
        connection,
        f"""
        SELECT unix_ns, process_id, max(value) FILTER (name = ?) AS cpu, max(value) FILTER (name = ?)::BIGINT AS frames
        FROM points WHERE process_id IS NOT NULL AND {where.sql} GROUP BY unix_ns, process_id
        HAVING cpu IS NOT NULL OR frames IS NOT NULL ORDER BY unix_ns, process_id
        """,
        [gauge_metric("cpu_ratio"), gauge_metric("frames_sent"), *where.values],
    )
    return [GeneratorPoint(row["unix_ns"], row["process_id"], row["cpu"], row["frames"]) for row in readings]


@dataclass(frozen=True, slots=True)
class CountsOverTime:
    """Turns by name in buckets of `width_ns`; `counts[name][i]` belongs to the bucket at `starts_unix_ns[i]`."""

    width_ns: int
    starts_unix_ns: tuple[int, ...] = ()
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])


def counts_over_time(
    ticks: Sequence[tuple[str, int, int]], order: Sequence[str] = (), *, among: Sequence[int] = ()
) -> CountsOverTime:
    """Rows `name, tick, n` (of COUNT_TICK_NS) in at most MOST_BUCKETS buckets of one round width, from the first to the
    last tick of these and of those `among` which they lie, so that what is rare is seen to be. Names of `order` come
    first, the others by the alphabet: a name keeps its place, and so its color, while the counts grow."""
    if not ticks:
        return CountsOverTime(COUNT_TICK_NS)
    every = [*among, *(tick for _, tick, _ in ticks)]
    first, last = (by(every) * COUNT_TICK_NS for by in (min, max))
    width_ns = max(COUNT_TICK_NS, bucket_width_ns(last - first, MOST_BUCKETS))
    begin = first // width_ns
    length = last // width_ns - begin + 1
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * length)
    for name, tick, n in ticks:
        counts[name][tick * COUNT_TICK_NS // width_ns - begin] += n
    ordered = sorted(
        counts.items(), key=lambda item: (order.index(item[0]) if item[0] in order else len(order), item[0])
    )
    starts = tuple((begin + place) * width_ns for place in range(length))
    return CountsOverTime(width_ns, starts, {name: tuple(counts) for name, counts in ordered})


@dataclass(frozen=True, slots=True)
class LinePoint:
    """The percentile over the turns that began in the window before a time, None if they are too few."""

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
    """The mean number of calls in flight in the step that begins at a time; None if no process reported it."""

    start_unix_ns: int
    calls: int | None


@dataclass(frozen=True, slots=True)
class TurnDot:
    """The value of one turn, and when it began."""

    started_unix_ns: int
    value: float


@dataclass(frozen=True, slots=True)
class CohortLines:
    """A line for each cohort and the load, on one time axis. `left_out` is the number of cohorts with too few turns for
    a line; `dots` are the turns, if they are enough for a percentile and no more than MOST_DOTS."""

    metric: str
    window_ns: int = 0
    lines: Sequence[CohortLine] = ()
    load: Sequence[LoadPoint] = ()
    left_out: int = 0
    dots: Sequence[TurnDot] = ()


@dataclass(frozen=True, slots=True)
class _Axis:
    first: int  # step
    last: int
    step_ns: int

    def points(self, windows: Mapping[int, tuple[int, float | None]]) -> list[LinePoint]:
        """The windows by the step that they end with; the first are not whole, unless the axis is so short."""
        begin = min(self.last, self.first + WINDOW_STEPS - 1)
        return [
            LinePoint((step + 1) * self.step_ns, n, enough(STATISTIC, n, value))
            for step in range(begin, self.last + 1)
            for n, value in [windows.get(step, (0, None))]
        ]


def cohort_lines(connection: StoreConnection, f: Filter, metric: str) -> CohortLines:
    """The lines of a filter's turns. Raises BadQuestionError for a metric that there is none of."""
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
    turns = sum(row["n"] for row in counted)
    windows = min(kept.values()) // (_SPARE * MIN_COUNT_FOR[STATISTIC])
    steps = min(_MOST_STEPS, max(WINDOW_STEPS, WINDOW_STEPS * windows))
    step_ns = bucket_width_ns(last - first, steps)
    axis = _Axis(first // step_ns, last // step_ns, step_ns)
    by_cohort = _windows(connection, where, column, step_ns)
    in_flight = calls_in_flight(connection, f, step_ns)
    return CohortLines(
        metric,
        window_ns=step_ns * min(WINDOW_STEPS, axis.last - axis.first + 1),
        lines=[
            CohortLine(cohort, axis.points(by_cohort.get(cohort, {}))) for cohort in sorted(kept, key=lambda c: c or "")
        ],
        load=[LoadPoint(step * step_ns, in_flight.get(step)) for step in range(axis.first, axis.last + 1)]
        if in_flight
        else (),
        left_out=len(counted) - len(kept),
        dots=_dots(connection, where, column) if MIN_COUNT_FOR[STATISTIC] <= turns <= MOST_DOTS else (),
    )


def _dots(connection: StoreConnection, where: Condition, column: str) -> list[TurnDot]:
    turns = rows(
        connection,
        f"""
        SELECT started_unix_ns AS started, {column} AS value FROM turns
        WHERE {where.sql} AND {column} IS NOT NULL ORDER BY started, value
        """,
        where.values,
    )
    return [TurnDot(row["started"], row["value"]) for row in turns]


def _windows(
    connection: StoreConnection, where: Condition, column: str, step_ns: int
) -> dict[str | None, dict[int, tuple[int, float | None]]]:
    """Count and percentile of every window by cohort and the step that it ends with."""
    steps = ", ".join(f"started_unix_ns // {step_ns} + {place}" for place in range(WINDOW_STEPS))
    windows: dict[str | None, dict[int, tuple[int, float | None]]] = {}
    for row in rows(
        connection,
        f"""
        SELECT cohort, step, count(value) AS n, quantile_cont(value, 0.95) AS value
        FROM (SELECT cohort, {column} AS value, unnest([{steps}]) AS step FROM turns WHERE {where.sql})
        WHERE value IS NOT NULL GROUP BY cohort, step
        """,
        where.values,
    ):
        windows.setdefault(row["cohort"], {})[row["step"]] = row["n"], row["value"]
    return windows
