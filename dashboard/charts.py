"""The charts as Vega-Lite specifications and the rows that fill them; pure.

A specification holds no data and depends only on what rarely changes (theme, objective), so that the browser keeps the
picture and exchanges its rows: a refresh does not flicker.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import altair as alt

from dashboard.accessible_chart import ChartTable
from dashboard.palette import Palette
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import (
    NS_PER_MS,
    declared_milliseconds,
    in_milliseconds,
    milliseconds,
    number,
)
from telemetry.store.questions.timelines import CohortLines

Row = dict[str, Any]
LINES_HEIGHT: Final = 236
LOAD_HEIGHT: Final = 44
_LONGEST_COHORT: Final = 24
# Left of both pictures over one time, so that their times stand below each other.
_LEFT: Final = 40
# A browser draws text wider than the picture's layout takes it to be: without room, the edge cuts off the last label.
_PADDING: Final = 5
LABEL_SIZE: Final = 11
# The widest spacing that a reader may force on texts by WCAG 1.4.12, in em.
_LETTER_SPACING: Final = 0.12
_WORD_SPACING: Final = 0.16
# What Vega itself leaves between an axis and its title.
TITLE_PADDING: Final = 4
# The first two as in `style.css`; beyond, shape and dash tell them apart.
_COHORT_COLORS: Final = {
    False: ("#1d6fd1", "#b0359b", "#596273", "#1d6fd1", "#b0359b", "#596273"),
    True: ("#7ab8ff", "#f0a0e0", "#9aa4b5", "#7ab8ff", "#f0a0e0", "#9aa4b5"),
}
_COHORT_DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [1, 3], [10, 4])
_COHORT_SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_WITH_SECONDS: Final = "%H:%M:%S"
_CLOCK: Final = {
    "milliseconds": _WITH_SECONDS,
    "seconds": _WITH_SECONDS,
    "minutes": "%H:%M",
    "hours": "%H:%M",
    "date": "%d %b",
}
# Vega takes the step between ticks whose ratio to the wanted one is smaller: below this one 30 s, from there on 1 min.
_MINUTES_FROM_MS: Final = math.sqrt(30_000 * 60_000)
# A moment in a tooltip, which has no axis with its day beside it.
MOMENT: Final = "%d %b %H:%M:%S"


def time_axis(ticks: int) -> alt.Axis:
    """An axis of moments on x with about so many labels. All of them have seconds where some need them."""
    # Vega chooses the format of each label by itself: a full minute would stand without seconds among others.
    needs_seconds = f"span(domain('x')) < {ticks * _MINUTES_FROM_MS:.0f}"
    label = f"{needs_seconds} ? timeFormat(datum.value, '{_WITH_SECONDS}') : datum.label"
    return alt.Axis(grid=False, labelOverlap=True, tickCount=ticks, format=dict(_CLOCK), labelExpr=label)


def spacing_room(texts: Iterable[str], size: int = LABEL_SIZE) -> int:
    """By how many px the longest text grows where a reader spaces letters and words: a browser draws that spacing,
    while the picture's layout measures texts without it."""
    grown = (size * (_LETTER_SPACING * len(text) + _WORD_SPACING * text.count(" ")) for text in texts)
    return math.ceil(max(grown, default=0.0))


def finished(chart: alt.LayerChart | alt.FacetChart, colors: Palette, *, left: int = 0, right: int = 0) -> Row:
    """The specification in the theme's colors, without data; `left` and `right` are kept free at these edges."""
    themed = (
        # The table beside each chart says what its marks would, and marks without a name would say nothing.
        chart.configure(background="transparent", font="inherit", aria=False)
        .configure_view(stroke=None)
        .configure_mark(aria=False)
        .configure_axis(
            labelColor=colors.soft,
            titleColor=colors.soft,
            gridColor=colors.line,
            domain=False,
            ticks=False,
            labelFontSize=LABEL_SIZE,
            titleFontSize=LABEL_SIZE,
            titleFontWeight="normal",
        )
        .configure_legend(
            labelColor=colors.soft, labelFontSize=LABEL_SIZE, symbolType="stroke", symbolSize=260, symbolStrokeWidth=2.5
        )
    )
    # Checking against the schema takes a second on a busy machine: the tests do it.
    spec = themed.to_dict(validate=False)
    spec.pop("data", None)  # the rows are given beside the specification
    spec.pop("datasets", None)
    spec["padding"] = {"left": left, "right": _PADDING + right}
    return spec


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


def named_rule(base: alt.Chart, colors: Palette, at: float, words: str) -> list[alt.Chart]:
    """A dashed line across the picture at a value of the y axis, with its words at the right end."""
    once = base.transform_aggregate(rows="count()")  # drawn for one row, not for each
    rule = once.mark_rule(color=colors.ink, strokeDash=[2, 3], strokeWidth=1.3).encode(y=alt.YDatum(at))
    text = once.mark_text(
        align="right", baseline="bottom", dy=-3, color=colors.ink, fontSize=11, text=words
    ).encode(y=alt.YDatum(at), x=alt.value("width"))  # fmt: skip
    # The words stand on a ground of their own, so that lines behind them leave them readable.
    ground = once.mark_text(
        align="right", baseline="bottom", dy=-3, fontSize=11, text=words, stroke=colors.paper, strokeWidth=4
    ).encode(y=alt.YDatum(at), x=alt.value("width"))
    return [rule, ground, text]


def _objective_text(objective_ms: float) -> str:
    return f"objective {declared_milliseconds(objective_ms * NS_PER_MS)}"
