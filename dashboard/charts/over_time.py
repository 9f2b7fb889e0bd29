"""Pictures over time: latency by cohort, load, counts, gauges, error budgets, and the bounds of a rollout's looks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from dashboard import descriptions
from telemetry.charts import over_time
from telemetry.charts.drawing import ChartTable, Palette, Picture, Row, table_of
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import in_milliseconds, milliseconds, number
from telemetry.objectives.error_budgets import ErrorBudget
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import Funnel
from telemetry.store.questions.timelines import CohortLines, CountsOverTime

_LONGEST_COHORT: Final = 24
# Of a limit that is farther above all values a line would leave them no height to be read in.
_FARTHEST_LIMIT: Final = 4
Clock = Callable[[int], str]


def cohort_label(cohort: str | None) -> str:
    """A cohort's name in a picture: short, on one line."""
    return "all turns" if cohort is None else one_line(cohort, _LONGEST_COHORT)


def latency_lines(
    found: CohortLines, name: str, colors: Palette, clock: Clock, *, objective_ms: float | None, missed_ns: int | None
) -> Picture:
    """Draw p95 over time, a straight line with a color, a dash and a shape of its own for each cohort, gaps where turns
    are too few; the objective, and the moment since when it is missed, as rules."""
    nothing = dict.fromkeys(("cohort", "value", "n", "n_text", "value_text", "from_text", "to_text", "onset_text"))
    points: list[Row] = [
        {
            **nothing,
            "time": in_milliseconds(point.end_unix_ns),
            "cohort": cohort_label(line.cohort),
            "value": None if point.value is None else in_milliseconds(point.value),
            "n": point.n,
            "n_text": number(point.n),
            "value_text": "too few" if point.value is None else milliseconds(point.value),
            "from_text": clock(point.end_unix_ns - found.window_ns),
            "to_text": clock(point.end_unix_ns),
        }
        for line in found.lines
        for point in line.points
    ]
    moments: list[Row] = []
    if missed_ns is not None:
        words = f"missed since {clock(missed_ns)}"
        moments.append({**nothing, "time": in_milliseconds(missed_ns), "onset_text": words})
    if found.load:
        moments.append({**nothing, "time": in_milliseconds(found.load[0].start_unix_ns)})
    cohorts = tuple(dict.fromkeys(row["cohort"] for row in points))
    columns = {"window from": "from_text", "cohort": "cohort", "turns": "n_text", "p95": "value_text"}
    return Picture(
        [*points, *moments],
        over_time.latency_lines(colors, cohorts, objective_ms),
        f"{name} over time, p95 by cohort against the objective",
        table_of(f"{name} over time", points, columns),
    )


def load_strip(found: CohortLines, colors: Palette, clock: Clock) -> Picture:
    """Draw the calls in flight as a strip of its own, as far as the lines above it reach."""
    rows: list[Row] = [{"time": in_milliseconds(each.start_unix_ns), "calls": each.calls} for each in found.load]
    last_ns = max((point.end_unix_ns for line in found.lines for point in line.points), default=0)
    if rows and in_milliseconds(last_ns) > rows[-1]["time"]:
        rows.append({**rows[-1], "time": in_milliseconds(last_ns)})
    shown = [(clock(point.start_unix_ns), number(point.calls)) for point in found.load]
    return Picture(
        rows,
        over_time.load_strip(colors),
        "Calls in flight over the same time",
        ChartTable("Calls in flight over time", ("from", "calls in flight"), shown),
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """A value that lines are not to exceed, in the unit of their chart and in words; `is_drawn` where they come near
    it or exceed it."""

    at: float
    text: str
    is_drawn: bool


def limit_of(at: float, text: str, drawn: Iterable[Sequence[float | None]]) -> Limit:
    """The limit of the lines that are drawn."""
    most = max((value for values in drawn for value in values if value is not None), default=0.0)
    return Limit(at, text, is_drawn=at <= _FARTHEST_LIMIT * most)


@dataclass(frozen=True, slots=True)
class Series:
    """Named series over time: their values in the unit of the chart, and as texts with their units."""

    title: str
    starts_unix_ns: Sequence[int]
    values: Mapping[str, Sequence[float | None]]
    texts: Sequence[Sequence[str]]

    def rows(self) -> list[Row]:
        """A row for each bucket and name; `order` is the name's place, by which bars are stacked."""
        return [
            {"time": in_milliseconds(start), "name": name, "value": value, "order": order}
            for order, (name, values) in enumerate(self.values.items())
            for start, value in zip(self.starts_unix_ns, values, strict=True)
        ]

    def table(self, caption: str, zone: tzinfo) -> ChartTable:
        """The same as text."""
        begins = [descriptions.day_and_second(start, zone) for start in self.starts_unix_ns]
        rows = [tuple(cells) for cells in zip(begins, *self.texts, strict=True)]
        return ChartTable(f"{caption} over time", ("from", *self.values), rows)


def count_bars(title: str, counts: CountsOverTime, colors: Palette, zone: tzinfo) -> Picture:
    """Draw the counts of each name in buckets, stacked."""
    texts = [[number(n) for n in values] for values in counts.counts.values()]
    series = Series(title, counts.starts_unix_ns, counts.counts, texts)
    alternative = f"{title}: bars of {formatting.seconds(counts.width_ns)}, stacked by {', '.join(counts.counts)}"
    return Picture(
        series.rows(),
        over_time.count_bars(list(counts.counts), in_milliseconds(counts.width_ns), colors),
        alternative,
        series.table(title, zone),
    )


def gauge_lines(series: Series, unit: str, colors: Palette, zone: tzinfo, limit: Limit | None = None) -> Picture:
    """Draw a line for each name, straight from bucket to bucket, broken where there is no value; a limit as a rule."""
    names, title = list(series.values), series.title
    limited, caption = "", title
    if limit is not None:
        limited = f", {'against' if limit.is_drawn else 'all far below'} the limit of {limit.text}"
        caption = f"{title} (limit {limit.text})"
    rule = (limit.at, f"limit {limit.text}") if limit is not None and limit.is_drawn else None
    return Picture(
        series.rows(),
        over_time.gauge_lines(names, unit, colors, rule),
        f"{title} over time in {unit}, a line for each of {', '.join(names)}{limited}",
        series.table(caption, zone),
    )


def left_text(left: float | None) -> str:
    """The share of the error budget that is left."""
    if left is None:
        return "not known"
    if left == float("-inf"):
        return "overspent"
    return f"overspent {formatting.factor(1 - left)}" if left < 0 else f"{formatting.percent(left)} left"


def budget_days(budget: ErrorBudget, colors: Palette) -> Picture:
    """Draw what was left at the end of each day, from all of the budget to none (dotted) and beyond."""
    rows: list[Row] = [
        {
            "day": -day.days_ago,
            "ago": str(day.days_ago),
            "left": None if day.budget_left is None else max(over_time.LOWEST_DRAWN, day.budget_left),
            "text": left_text(day.budget_left),
            "bad": f"{day.counts.bad:,}",
            "turns": f"{day.counts.eligible:,}",
        }
        for day in budget.days
    ]
    columns = {"days ago": "ago", "left": "text", "bad turns": "bad", "turns": "turns"}
    return Picture(
        rows,
        over_time.budget_days(colors),
        f"Error budget of {budget.title} over 28 days: {left_text(budget.budget_left)} now",
        table_of("error budget left at the end of each day", rows, columns),
    )


DECISIONS: Final[dict[Decision, str]] = {"promote": "promote", "hold": "hold", "roll_back": "roll back"}


def funnel(found: Funnel, colors: Palette, zone: tzinfo, alternative: str) -> Picture | None:
    """Draw the figure at each look with bounds that close over time, beside the limit and, of a difference, zero, and
    the verdict of each look; None where it has bounds at no look."""
    rows: list[Row] = [
        {
            "time": in_milliseconds(point.at_unix_ns),
            "stage": point.stage,
            "estimate": point.estimate,
            "lower": point.lower,
            "upper": point.upper,
            "when": descriptions.day_and_time(point.at_unix_ns, zone),
            "figure": found.text(point.estimate),
            "bounds": found.bounds_text(point),
            "text": f"{found.text(point.estimate)}, {found.bounds_text(point)}",
            "verdict": DECISIONS[point.decision],
        }
        for point in found.points
    ]
    if found.limit is None or not any(row["lower"] is not None and row["upper"] is not None for row in rows):
        return None
    known = [row for row in rows if row["estimate"] is not None]
    what = "share" if found.unit == "share" else "difference"
    columns = {"when": "when", "stage": "stage", what: "figure", "bounds": "bounds", "verdict": "verdict"}
    table = table_of("bounds at each look", known, columns)
    spec = over_time.funnel(colors, found.unit, found.limit, found.limit_text)
    return Picture(rows, spec, alternative, table)
