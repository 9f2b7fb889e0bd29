"""The charts as Vega-Lite specifications and the rows that fill them; pure.

A specification holds no data and depends only on what rarely changes (theme, objective), so that the browser keeps the
picture and exchanges its rows: a refresh does not flicker.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import altair as alt

from dashboard.charts.style import MOMENT, ChartTable, Palette, Row, finished, named_rule, time_axis
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import (
    NS_PER_MS,
    declared_milliseconds,
    in_milliseconds,
    milliseconds,
    number,
)
from telemetry.store.questions.timelines import CohortLines

LINES_HEIGHT: Final = 236
LOAD_HEIGHT: Final = 44
_LONGEST_COHORT: Final = 24
# Left of both pictures over one time, so that their times stand below each other.
_LEFT: Final = 40
# The first two as in `style.css`; beyond, shape and dash tell them apart.
_COHORT_COLORS: Final = {
    False: ("#1d6fd1", "#b0359b", "#596273", "#1d6fd1", "#b0359b", "#596273"),
    True: ("#7ab8ff", "#f0a0e0", "#9aa4b5", "#7ab8ff", "#f0a0e0", "#9aa4b5"),
}
_COHORT_DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [1, 3], [10, 4])
_COHORT_SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")


def lines_spec(colors: Palette, cohorts: tuple[str, ...], objective_ms: float | None, *, is_dark: bool) -> Row:
    """A percentile over time, a straight line with a color, a dash and a shape of its own for each cohort, gaps where
    turns are too few; the objective, and where it was first missed, as rules."""
    base = alt.Chart(alt.NamedData("rows"))
    time = alt.X("time:T", title=None, axis=time_axis(7))
    legend = alt.Legend(title=None, orient="top", symbolSize=70, symbolStrokeWidth=2, offset=2, padding=0)
    domain, places = list(cohorts), range(len(cohorts))
    scales = {
        "color": alt.Scale(domain=domain, range=[_COHORT_COLORS[is_dark][place % 6] for place in places]),
        "strokeDash": alt.Scale(domain=domain, range=[_COHORT_DASHES[place % 6] for place in places]),
        "shape": alt.Scale(domain=domain, range=[_COHORT_SHAPES[place % 6] for place in places]),
    }
    value = alt.Y(
        "value:Q",
        title="ms",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=5, minExtent=_LEFT, maxExtent=_LEFT),
    )
    color = alt.Color("cohort:N", scale=scales["color"], legend=legend)
    dash = alt.StrokeDash("cohort:N", scale=scales["strokeDash"], legend=legend)
    points = base.transform_filter("datum.cohort !== null")
    lines = points.mark_line(interpolate="linear", strokeWidth=2, tooltip=False, invalid="break-paths-show-domains")
    marks = points.transform_filter("datum.value !== null").mark_point(size=22, filled=True)
    tips = ["cohort:N", alt.Tooltip("from_text:N", title="from"), alt.Tooltip("to_text:N", title="until")]
    tips += [alt.Tooltip("value_text:N", title="p95"), alt.Tooltip("n:Q", title="turns")]
    layers: list[Any] = [
        lines.encode(x=time, y=value, color=color, strokeDash=dash),
        marks.encode(
            x=time,
            y=value,
            color=color,
            shape=alt.Shape("cohort:N", scale=scales["shape"], legend=legend),
            tooltip=tips,
        ),
        *_onset(base, colors, time),
        # The time of every row, also of those without a value: as long as that of the strip below.
        base.mark_point(opacity=0, tooltip=False).encode(x=time),
        _headroom(points, value, objective_ms),
    ]
    if objective_ms is not None:
        layers += named_rule(base, colors, objective_ms, _objective_text(objective_ms))
    return finished(alt.layer(*layers).properties(height=LINES_HEIGHT), colors)


def _headroom(points: alt.Chart, value: alt.Y, objective_ms: float | None) -> alt.Chart:
    """Room above the largest value, so that no mark is cut off by the edge and the objective's words stay readable."""
    most = points.transform_aggregate(most="max(value)").transform_calculate(
        value=f"1.08 * max(datum.most, {objective_ms or 0})"
    )
    return most.mark_point(opacity=0, tooltip=False).encode(y=value)


def _onset(base: alt.Chart, colors: Palette, time: alt.X) -> list[alt.Chart]:
    marked = base.transform_filter("datum.onset_text !== null")
    rule = marked.mark_rule(color=colors.ink, strokeWidth=1.5).encode(x=time)
    text = marked.mark_text(align="left", baseline="top", dx=4, color=colors.ink, fontSize=11, fontWeight="bold")
    return [rule, text.encode(x=time, y=alt.value(14), text="onset_text:N")]


def lines_rows(found: CohortLines, onset: tuple[int, str] | None, clock: Callable[[int], str]) -> list[Row]:
    """A row for each window of each cohort (ms, None where turns are too few), and one for the moment since when the
    objective is missed, with its words."""
    nothing = dict.fromkeys(("cohort", "value", "n", "value_text", "from_text", "to_text", "onset_text"))
    rows: list[Row] = [
        {
            **nothing,
            "time": in_milliseconds(point.end_unix_ns),
            "cohort": cohort_label(line.cohort),
            "value": None if point.value is None else in_milliseconds(point.value),
            "n": point.n,
            "value_text": milliseconds(point.value),
            "from_text": clock(point.end_unix_ns - found.window_ns),
            "to_text": clock(point.end_unix_ns),
        }
        for line in found.lines
        for point in line.points
    ]
    if onset is not None:
        rows.append({**nothing, "time": in_milliseconds(onset[0]), "onset_text": onset[1]})
    if found.load:
        rows.append({**nothing, "time": in_milliseconds(found.load[0].start_unix_ns)})
    return rows


def cohort_label(cohort: str | None) -> str:
    """A cohort's name in a picture: short, on one line."""
    return "all turns" if cohort is None else one_line(cohort, _LONGEST_COHORT)


def lines_table(found: CohortLines, label: str, clock: Callable[[int], str]) -> ChartTable:
    """The same figures as a table."""
    rows = [
        (clock(point.end_unix_ns - found.window_ns), cohort_label(line.cohort), number(point.n),
         "too few" if point.value is None else milliseconds(point.value))
        for line in found.lines
        for point in line.points
    ]  # fmt: skip
    return ChartTable(f"{label} over time", ("window from", "cohort", "turns", "p95"), rows)


def load_spec(colors: Palette) -> Row:
    """Calls in flight as a strip of its own."""
    base = alt.Chart(alt.NamedData("rows"))
    time = alt.X("time:T", title=None, axis=alt.Axis(grid=False, labels=False))
    calls = alt.Y(
        "calls:Q",
        title="calls",
        # The title is about as long as the strip is high: from the top on, it has the room below the strip as well.
        axis=alt.Axis(grid=False, tickMinStep=1, tickCount=2, minExtent=_LEFT, maxExtent=_LEFT, titleAnchor="end"),
    )
    area = base.mark_area(interpolate="step-after", color=colors.soft, opacity=0.45).encode(
        x=time, y=calls, tooltip=[alt.Tooltip("calls:Q", title="calls in flight")]
    )
    return finished(alt.layer(area).properties(height=LOAD_HEIGHT), colors)


def load_rows(found: CohortLines) -> list[Row]:
    """A row for each step, and one where the lines above end: to there the last one reaches."""
    rows: list[Row] = [{"time": in_milliseconds(each.start_unix_ns), "calls": each.calls} for each in found.load]
    ends = [point.end_unix_ns for line in found.lines for point in line.points]
    if rows and ends and in_milliseconds(max(ends)) > rows[-1]["time"]:
        rows.append({"time": in_milliseconds(max(ends)), "calls": rows[-1]["calls"]})
    return rows


def load_table(found: CohortLines, clock: Callable[[int], str]) -> ChartTable:
    """The same figures as a table."""
    rows = [(clock(point.start_unix_ns), number(point.calls)) for point in found.load]
    return ChartTable("Calls in flight over time", ("from", "calls in flight"), rows)


def _objective_text(objective_ms: float) -> str:
    return f"objective {declared_milliseconds(objective_ms * NS_PER_MS)}"


SERIES_HEIGHT: Final = 170
# Lines are told apart without color, too.
_SERIES_DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [10, 3], [1, 3], [12, 4, 2, 4])
# What a picture reaches up to at the least, by its unit: what is less than that is nothing, and is drawn as nothing.
_LEAST_SHOWN: Final = {"ms": 0.1, "bytes": 1.0, "cores": 0.01}
# Of a limit that is farther above all values a line would leave them no height to be read in.
_FARTHEST_LIMIT: Final = 4
# Above the line of a limit there is room for its words.
_ROOM_ABOVE: Final = 1.12


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


def series_rows(starts_unix_ns: Sequence[int], values: Mapping[str, Sequence[float | None]]) -> list[Row]:
    """A row for each bucket and name; `order` is the name's place, by which bars are stacked."""
    return [
        {"time": in_milliseconds(start), "name": name, "value": value, "order": order}
        for order, (name, found) in enumerate(values.items())
        for start, value in zip(starts_unix_ns, found, strict=True)
    ]


def bars_spec(colors: Palette, names: Sequence[str], title: str, width_ns: int) -> Row:
    """Counts of each name in buckets of `width_ns`, stacked."""
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .transform_calculate(until=f"datum.time + {in_milliseconds(width_ns)}")
        .transform_stack(stack="value", as_=["low", "high"], groupby=["time"], sort=[alt.SortField("order")])
        # A bar that spans a stretch of x is drawn as one of y: a rectangle says both ends of both.
        .mark_rect(stroke=colors.paper, strokeWidth=0.5)
        .encode(
            x=_time(),
            x2="until:T",
            y=alt.Y("low:Q", title=title, axis=alt.Axis(tickMinStep=1, tickCount=4)),
            y2="high:Q",
            color=_color(colors, names, "square"),
            tooltip=_tooltip(title),
        )
    )
    return _drawn(chart, colors=colors)


def series_spec(colors: Palette, names: Sequence[str], title: str, limit: Limit | None = None) -> Row:
    """A line for each name, straight from bucket to bucket, broken where there is no value; a limit that is drawn as a
    rule."""
    dashes = alt.Scale(
        domain=list(names), range=[_SERIES_DASHES[place % len(_SERIES_DASHES)] for place in range(len(names))]
    )
    base, least = alt.Chart(alt.NamedData("rows")), _LEAST_SHOWN.get(title, 0.0)
    axis = alt.Axis(tickCount=4, tickMinStep=least)
    lines = base.mark_line(interpolate="linear", point=alt.OverlayMarkDef(size=14, filled=True)).encode(
        x=_time(),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=True, nice=True), axis=axis),
        color=_color(colors, names),
        strokeDash=alt.StrokeDash("name:N", scale=dashes, legend=_legend()),
        tooltip=_tooltip(title),
    )
    rule: list[alt.Chart] = []
    if limit is not None and limit.is_drawn:
        rule, least = named_rule(base, colors, limit.at, f"limit {limit.text}"), max(least, _ROOM_ABOVE * limit.at)
    room = base.transform_aggregate(rows="count()").mark_point(opacity=0, tooltip=False).encode(y=alt.YDatum(least))
    return _drawn(lines, room, *rule, colors=colors)


def _drawn(*layers: alt.Chart, colors: Palette) -> Row:
    return finished(alt.layer(*layers).properties(height=SERIES_HEIGHT), colors)


def _time() -> alt.X:
    return alt.X("time:T", title=None, axis=time_axis(5))


def _legend(symbol: Literal["stroke", "square"] = "stroke") -> alt.Legend:
    return alt.Legend(
        title=None,
        symbolType=symbol,
        symbolSize=90 if symbol == "square" else 260,
        orient="top",
        direction="horizontal",
        columns=4,
        labelLimit=150,
        padding=0,
    )


def _color(colors: Palette, names: Sequence[str], symbol: Literal["stroke", "square"] = "stroke") -> alt.Color:
    shades = [colors.series[place % len(colors.series)] for place in range(len(names))]
    return alt.Color("name:N", scale=alt.Scale(domain=list(names), range=shades), legend=_legend(symbol))


def _tooltip(title: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("time:T", format=MOMENT, title="from"),
        alt.Tooltip("name:N", title="name"),
        alt.Tooltip("value:Q", title=title, format=",.3~f"),
    ]
