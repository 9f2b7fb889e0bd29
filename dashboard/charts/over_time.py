"""Pictures over time: latency by cohort, load, counts, gauges, error budgets, and the bounds of a rollout's looks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import altair as alt

from dashboard import descriptions
from telemetry.charts.drawing import (
    DASHES,
    MOMENT,
    ONCE,
    ROWS,
    SHAPES,
    ChartTable,
    Palette,
    Picture,
    Row,
    amount,
    finished,
    having,
    named_rule,
    scale_of,
    table_of,
    time_axis,
    tips,
)
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import declared_milliseconds, in_milliseconds, milliseconds, number
from telemetry.objectives.error_budgets import ErrorBudget
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import Funnel
from telemetry.store.questions.timelines import CohortLines, CountsOverTime

LINES_HEIGHT: Final = 236
LOAD_HEIGHT: Final = 44
SERIES_HEIGHT: Final = 170
_LONGEST_COHORT: Final = 24
# Left of both pictures over one time, so that their times are below each other.
_LEFT: Final[dict[str, Any]] = {"minExtent": 40, "maxExtent": 40}
# What a picture reaches up to at the least, by its unit: what is less than that is nothing, and is drawn as nothing.
_LEAST_SHOWN: Final = {"ms": 0.1, "bytes": 1.0, "cores": 0.01}
# Of a limit that is farther above all values a line would leave them no height to be read in.
_FARTHEST_LIMIT: Final = 4
# Above the line of a limit there is room for its words.
_ROOM_ABOVE: Final = 1.12
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
        lines_spec(colors, cohorts, objective_ms),
        f"{name} over time, p95 by cohort against the objective",
        table_of(f"{name} over time", points, columns),
    )


def lines_spec(colors: Palette, cohorts: tuple[str, ...], objective_ms: float | None) -> Row:
    """The specification of `latency_lines`."""
    legend = alt.Legend(title=None, orient="top", symbolSize=70, symbolStrokeWidth=2, offset=2, padding=0)
    x, y = alt.X("time:T", title=None, axis=time_axis(7)), amount("value", "ms", **_LEFT)
    color = alt.Color("cohort:N", scale=scale_of(cohorts, colors.cohorts), legend=legend)
    dash = alt.StrokeDash("cohort:N", scale=scale_of(cohorts, DASHES[:6]), legend=legend)
    shape = alt.Shape("cohort:N", scale=scale_of(cohorts, SHAPES), legend=legend)
    lines = having("cohort").mark_line(
        interpolate="linear", strokeWidth=2, tooltip=False, invalid="break-paths-show-domains"
    )
    shown = tips("cohort", "from_text|from", "to_text|until", "value_text|p95", "n:Q|turns")
    onset = having("onset_text")
    mark: dict[str, Any] = {"align": "left", "baseline": "top", "dx": 4, "fontSize": 11}
    # Room above the largest value, so that no mark is cut off by the edge and the objective's words stay readable.
    most = having("cohort").transform_aggregate(most="max(value)")
    most = most.transform_calculate(value=f"1.08 * max(datum.most, {objective_ms or 0})")
    layers: list[Any] = [
        lines.encode(x=x, y=y, color=color, strokeDash=dash),
        having("cohort", "value")
        .mark_point(size=22, filled=True)
        .encode(x=x, y=y, color=color, shape=shape, tooltip=shown),
        onset.mark_rule(color=colors.ink, strokeWidth=1.5).encode(x=x),
        onset.mark_text(color=colors.ink, fontWeight="bold", **mark).encode(x=x, y=alt.value(14), text="onset_text:N"),
        # The time of every row, also of those without a value: as long as that of the strip below.
        ROWS.mark_point(opacity=0, tooltip=False).encode(x=x),
        most.mark_point(opacity=0, tooltip=False).encode(y=y),
    ]
    if objective_ms is not None:
        words = f"objective {declared_milliseconds(objective_ms * formatting.NS_PER_MS)}"
        layers += named_rule(colors, objective_ms, words)
    return finished(layers, colors, LINES_HEIGHT)


def load_strip(found: CohortLines, colors: Palette, clock: Clock) -> Picture:
    """Draw the calls in flight as a strip of its own, as far as the lines above it reach."""
    rows: list[Row] = [{"time": in_milliseconds(each.start_unix_ns), "calls": each.calls} for each in found.load]
    last_ns = max((point.end_unix_ns for line in found.lines for point in line.points), default=0)
    if rows and in_milliseconds(last_ns) > rows[-1]["time"]:
        rows.append({**rows[-1], "time": in_milliseconds(last_ns)})
    # The title is about as long as the strip is high: from the top on, it has the room below the strip as well.
    axis = alt.Axis(grid=False, tickMinStep=1, tickCount=2, titleAnchor="end", **_LEFT)
    area = ROWS.mark_area(interpolate="step-after", color=colors.soft, opacity=0.45).encode(
        x=alt.X("time:T", title=None, axis=alt.Axis(grid=False, labels=False)),
        y=alt.Y("calls:Q", title="calls", axis=axis),
        tooltip=tips("calls:Q|calls in flight"),
    )
    shown = [(clock(point.start_unix_ns), number(point.calls)) for point in found.load]
    return Picture(
        rows,
        finished([area], colors, LOAD_HEIGHT),
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
    bars = (
        ROWS.transform_calculate(until=f"datum.time + {in_milliseconds(counts.width_ns)}")
        .transform_stack(stack="value", as_=["low", "high"], groupby=["time"], sort=[alt.SortField("order")])
        # A bar that spans a part of x is drawn as one of y: a rectangle says both ends of both.
        .mark_rect(stroke=colors.paper, strokeWidth=0.5)
        .encode(
            x=alt.X("time:T", title=None, axis=time_axis(5)),
            x2="until:T",
            y=alt.Y("low:Q", title="turns", axis=alt.Axis(tickMinStep=1, tickCount=4)),
            y2="high:Q",
            color=_color(colors, list(counts.counts), symbolType="square", symbolSize=90),
            tooltip=_series_tips("turns"),
        )
    )
    alternative = f"{title}: bars of {formatting.seconds(counts.width_ns)}, stacked by {', '.join(counts.counts)}"
    return Picture(series.rows(), finished([bars], colors, SERIES_HEIGHT), alternative, series.table(title, zone))


def gauge_lines(series: Series, unit: str, colors: Palette, zone: tzinfo, limit: Limit | None = None) -> Picture:
    """Draw a line for each name, straight from bucket to bucket, broken where there is no value; a limit as a rule."""
    names, least, title = list(series.values), _LEAST_SHOWN.get(unit, 0.0), series.title
    lines = ROWS.mark_line(interpolate="linear", point=alt.OverlayMarkDef(size=14, filled=True)).encode(
        x=alt.X("time:T", title=None, axis=time_axis(5)),
        y=amount("value", unit, tickCount=4, tickMinStep=least),
        color=_color(colors, names),
        strokeDash=alt.StrokeDash("name:N", scale=scale_of(names, DASHES), legend=_legend()),
        tooltip=_series_tips(unit),
    )
    rule: list[alt.Chart] = []
    limited, caption = "", title
    if limit is not None:
        limited = f", {'against' if limit.is_drawn else 'all far below'} the limit of {limit.text}"
        caption = f"{title} (limit {limit.text})"
    if limit is not None and limit.is_drawn:
        rule, least = named_rule(colors, limit.at, f"limit {limit.text}"), max(least, _ROOM_ABOVE * limit.at)
    room = ONCE.mark_point(opacity=0, tooltip=False).encode(y=alt.YDatum(least))
    return Picture(
        series.rows(),
        finished([lines, room, *rule], colors, SERIES_HEIGHT),
        f"{title} over time in {unit}, a line for each of {', '.join(names)}{limited}",
        series.table(caption, zone),
    )


def _legend(**symbol: Any) -> alt.Legend:
    given: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 260, **symbol}
    return alt.Legend(title=None, orient="top", direction="horizontal", columns=4, labelLimit=150, padding=0, **given)


def _color(colors: Palette, names: Sequence[str], **symbol: Any) -> alt.Color:
    return alt.Color("name:N", scale=scale_of(names, colors.series), legend=_legend(**symbol))


def _series_tips(unit: str) -> list[alt.Tooltip]:
    return tips(f"time:T|from|{MOMENT}", "name|name", f"value:Q|{unit}|,.3~f")


_DAYS_HEIGHT: Final = 220
# What is overspent more is drawn at this share, and the axis says so: otherwise it flattens all days within the budget.
_LOWEST_DRAWN: Final = -2.0
_BUDGET_LABEL: Final = f"datum.value <= {_LOWEST_DRAWN} ? '\u2264 ' + datum.label : datum.label"


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
            "left": None if day.budget_left is None else max(_LOWEST_DRAWN, day.budget_left),
            "text": left_text(day.budget_left),
            "bad": f"{day.counts.bad:,}",
            "turns": f"{day.counts.eligible:,}",
        }
        for day in budget.days
    ]
    axis = alt.Axis(format="%", tickCount=5, labelExpr=_BUDGET_LABEL)
    line = ROWS.mark_line(interpolate="linear", color=colors.p95, point=alt.OverlayMarkDef(size=22)).encode(
        x=alt.X("day:Q", title="days from now", axis=alt.Axis(grid=False, tickMinStep=1)),
        y=alt.Y("left:Q", title="budget left", scale=alt.Scale(domainMax=1), axis=axis),
        tooltip=tips("text|budget", "bad|bad turns", "turns"),
    )
    empty = ONCE.mark_rule(color=colors.ink, strokeDash=[2, 3]).encode(y=alt.YDatum(0))
    columns = {"days ago": "ago", "left": "text", "bad turns": "bad", "turns": "turns"}
    return Picture(
        rows,
        finished([line, empty], colors, _DAYS_HEIGHT),
        f"Error budget of {budget.title} over 28 days: {left_text(budget.budget_left)} now",
        table_of("error budget left at the end of each day", rows, columns),
    )


DECISIONS: Final[dict[Decision, str]] = {"promote": "promote", "hold": "hold", "roll_back": "roll back"}
_FUNNEL_HEIGHT: Final = 260
# By the unit of a funnel: the title of its axis, and its labels in Vega's JavaScript.
_FUNNEL_AXES: Final = {
    "s": ("difference, ms", "format(datum.value * 1000, '+,.4~r')"),
    "share": ("share of turns", "format(datum.value * 100, ',.4~r') + ' %'"),
}


def funnel(found: Funnel, colors: Palette, zone: tzinfo, alternative: str) -> Picture | None:
    """Draw the figure at each look with bounds that close over time, beside the limit and, of a difference, zero; None
    where it has bounds at no look."""
    known: list[Row] = [
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
        if point.estimate is not None
    ]
    rows = [row for row in known if row["lower"] is not None and row["upper"] is not None]
    if not rows or found.limit is None:
        return None
    what = "share" if found.unit == "share" else "difference"
    columns = {"when": "when", "stage": "stage", what: "figure", "bounds": "bounds", "verdict": "verdict"}
    table = table_of("bounds at each look", known, columns)
    spec = funnel_spec(colors, found.unit, found.limit, found.limit_text)
    return Picture(rows, spec, alternative, table)


def funnel_spec(colors: Palette, unit: str, limit: float, limit_text: str) -> Row:
    """The specification of `funnel`."""
    title, labels = _FUNNEL_AXES.get(unit, ("difference", "format(datum.value, '+,.4~r')"))
    is_share, axis = unit == "share", alt.Axis(labelExpr=labels, tickCount=6)
    x = alt.X("time:T", title=None, axis=time_axis(7))
    low, high, middle = (alt.Y(f"{name}:Q", title=title, axis=axis) for name in ("lower", "upper", "estimate"))
    dashed: dict[str, Any] = {"color": colors.p95, "strokeDash": [5, 3], "strokeWidth": 1.4}
    shown = tips("time:T|look|%d %b %H:%M", "stage", f"text|{'share' if is_share else 'difference'}", "verdict")
    # An area and a line need two looks: the bounds of one that is alone at its stage are an upright line.
    alone = ROWS.transform_joinaggregate(looks="count()", groupby=["stage"]).transform_filter("datum.looks === 1")
    zero = [] if is_share else named_rule(colors, 0.0, "no difference", (1, 0))
    layers = [
        ROWS.mark_area(color=colors.p50, opacity=0.3, interpolate="linear").encode(
            x=x, y=low, y2="upper:Q", detail="stage:N"
        ),
        *(ROWS.mark_line(**dashed).encode(x=x, y=edge, detail="stage:N") for edge in (low, high)),
        alone.mark_rule(**dashed).encode(x=x, y=low, y2="upper:Q"),
        ROWS.mark_line(color=colors.p95, point=alt.OverlayMarkDef(size=20)).encode(
            x=x, y=middle, detail="stage:N", tooltip=shown
        ),
        *zero,
        *named_rule(colors, limit, limit_text),
    ]
    return finished(layers, colors, _FUNNEL_HEIGHT)
