"""Charts of two cohorts: cumulative curves, and differences with their bounds against the margin; pure."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final, Literal

import altair as alt

from dashboard import descriptions
from dashboard.charts.over_time import cohort_label
from dashboard.charts.style import ChartTable, Palette, Row, finished, named_rule, spacing_room, time_axis
from telemetry.model import formatting
from telemetry.model.formatting import in_milliseconds
from telemetry.rollout.cohort_comparison import CurvePoint
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import CheckRow, Funnel

_CURVE_HEIGHT: Final = 260
_ROW_HEIGHT: Final = 26
# For the axis, its title, the legend and the names of the lines.
_ROOM: Final = 134
_LONGEST_LABEL: Final = 150
_LETTER_WIDTH: Final = 5  # px, of narrow letters: no more of them are left of a longer label
WORSE: Final = "worse"
NOT_WORSE: Final = "not shown to be worse"
WITHIN: Final = "within the margin"
NOT_JUDGED: Final = "shown, not judged"
_NAMES: Final = {"worse": WORSE, "within": WITHIN, "shown": NOT_JUDGED}
_STATES: Final = (WORSE, NOT_WORSE, WITHIN, NOT_JUDGED)
_MILLISECONDS: Final = "format(datum.value * 1000, '+,.0f')"
_POINTS: Final = "format(datum.value * 100, '+.3~f')"
# Shares at which the curves are read off, each with the side of its rule that its name stands on.
_READ_OFF: Final = ((0.5, "p50", -4), (0.95, "p95", 11), (0.99, "p99", -4))


_FUNNEL_HEIGHT: Final = 260
# By the unit of a funnel; JavaScript of Vega's.
_FUNNEL_LABELS: Final = {
    "s": "format(datum.value * 1000, '+,.4~r')",
    "share": "format(datum.value * 100, ',.4~r') + ' %'",
}
DECISIONS: Final[dict[Decision, str]] = {"promote": "promote", "hold": "hold", "roll_back": "roll back"}


def curve_rows(curves: Sequence[CurvePoint]) -> list[Row]:
    """A row for each point."""
    return [
        {
            "cohort": cohort_label(each.cohort),
            "ms": formatting.in_milliseconds(each.value_ns),
            "share": each.share,
            "text": f"{formatting.percent(each.share)} within {formatting.milliseconds(each.value_ns)}",
        }
        for each in curves
    ]


def curve_table(curves: Sequence[CurvePoint]) -> ChartTable:
    """The same figures as a table."""
    rows = [(each.cohort, formatting.milliseconds(each.value_ns), formatting.percent(each.share)) for each in curves]
    return ChartTable("share of turns answered within a time", ("cohort", "within", "share of turns"), rows)


def curve_spec(colors: Palette, cohorts: tuple[str, str]) -> Row:
    """Cumulative curves of the control and the candidate, with the shares at which percentiles are read off."""
    base = alt.Chart(alt.NamedData("rows"))
    legend = alt.Legend(title=None, orient="top", direction="horizontal", padding=0, offset=4)
    names = [cohort_label(each) for each in cohorts]
    scale = alt.Scale(domain=names, range=list(colors.series[:2]))
    dashes = alt.Scale(domain=names, range=[[1, 0], [6, 3]])
    y = alt.Y(
        "share:Q",
        title="share of turns",
        axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
        scale=alt.Scale(domain=[0, 1.03], nice=False),
    )
    line = base.mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=alt.X(
            "ms:Q",
            title="voice to voice, ms",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(
                grid=False, tickCount=6, format="~s", labelExpr="format(datum.value, ',')", labelOverlap=True
            ),
        ),
        y=y,
        color=alt.Color("cohort:N", scale=scale, legend=legend),
        strokeDash=alt.StrokeDash("cohort:N", scale=dashes, legend=legend),
        tooltip=["cohort:N", alt.Tooltip("text:N", title="turns")],
    )
    once = base.transform_aggregate(rows="count()")
    read_off: list[alt.Chart] = []
    for share, name, dy in _READ_OFF:
        read_off.append(once.mark_rule(color=colors.soft, strokeDash=[1, 3]).encode(y=alt.YDatum(share)))
        text = once.mark_text(align="right", dx=-3, dy=dy, fontSize=10, color=colors.soft, text=name)
        read_off.append(text.encode(y=alt.YDatum(share), x=alt.value("width")))
    return finished(alt.layer(*read_off, line).properties(height=_CURVE_HEIGHT), colors)


def difference_rows(rows: Sequence[CheckRow]) -> list[Row]:
    """A row for each difference that is known, in the order in which they stand."""
    return [
        {
            "name": row.name,
            "difference": row.difference_value,
            "lower": row.lower,
            "upper": row.upper,
            "state": _NAMES.get(row.status, NOT_WORSE),
            "text": f"{row.difference} ({row.bounds})",
            "turns": row.turns,
        }
        for row in rows
        if row.lower is not None and row.upper is not None
    ]


def difference_table(rows: Sequence[CheckRow], caption: str, first: str) -> ChartTable:
    """The same figures as a table, with those that could not be compared."""
    figures = ("beyond the margin", "candidate", "control", "difference", "bounds", "margin")
    columns = (first, *figures, "turns of the candidate", "state")
    cells = [
        (
            *(row.name, row.beyond, row.candidate, row.control, row.difference, row.bounds, row.margin),
            *(formatting.number(row.turns), row.reason or _NAMES.get(row.status, NOT_WORSE)),
        )
        for row in rows
    ]
    return ChartTable(caption, columns, cells)


def difference_spec(colors: Palette, names: Sequence[str], unit: str, margin: float, margin_text: str) -> Row:
    """A forest plot: each difference as a point with its bounds, beside no difference and the margin."""
    base = alt.Chart(alt.NamedData("rows"))
    legend = alt.Legend(title=None, orient="bottom", columns=1, offset=2, symbolSize=70, symbolStrokeWidth=0)
    color = alt.Color(
        "state:N",
        scale=alt.Scale(
            domain=list(_STATES), range=[colors.series[3], colors.soft, colors.series[2], colors.series[0]]
        ),
        legend=legend,
    )
    shape = alt.Shape(
        "state:N", scale=alt.Scale(domain=list(_STATES), range=["cross", "circle", "square", "diamond"]), legend=legend
    )
    y = alt.Y(
        "name:N",
        sort=list(names),
        title=None,
        axis=alt.Axis(labelLimit=_LONGEST_LABEL, grid=False, labelPadding=6, labelColor=colors.ink),
    )
    is_duration = unit == "s"
    title = "difference, ms" if is_duration else "difference, points"
    axis = alt.Axis(labelExpr=_MILLISECONDS if is_duration else _POINTS, tickCount=5, labelOverlap=True)
    # Room for the names of the lines, where those are the farthest.
    scale = alt.Scale(padding=80)
    x = alt.X("lower:Q", title=title, axis=axis, scale=scale)
    tips = [alt.Tooltip("name:N"), alt.Tooltip("text:N", title="difference"), alt.Tooltip("state:N"),
            alt.Tooltip("turns:Q", title="turns of the candidate", format=",")]  # fmt: skip
    reach = base.mark_rule(strokeWidth=2.5).encode(y=y, x=x, x2="upper:Q", color=color, tooltip=tips)
    ends = [
        base.mark_tick(thickness=2, size=9).encode(y=y, x=alt.X(f"{side}:Q", title=title, axis=axis), color=color)
        for side in ("lower", "upper")
    ]
    point = base.mark_point(filled=True, size=85, opacity=1).encode(
        y=y, x=alt.X("difference:Q", title=title, axis=axis), color=color, shape=shape, tooltip=tips
    )
    once = base.transform_aggregate(rows="count()")
    lines: list[alt.Chart] = []
    # Each name stands on its own side: wide bounds bring the two lines close to each other.
    named: tuple[tuple[float, str, list[int], Literal["left", "right"], int], ...]
    named = ((0.0, "no difference", [1, 0], "right", -2), (margin, f"margin {margin_text}", [2, 3], "left", 2))
    for at, text, dashes, side, off in named:
        lines.append(once.mark_rule(color=colors.ink, strokeDash=dashes, strokeWidth=1.2).encode(x=alt.XDatum(at)))
        label = once.mark_text(baseline="bottom", align=side, dx=off, dy=-3, color=colors.ink, fontSize=10.5, text=text)
        lines.append(label.encode(x=alt.XDatum(at), y=alt.value(0)))
    height = _ROOM + _ROW_HEIGHT * max(1, len(names))
    left = spacing_room(name[: _LONGEST_LABEL // _LETTER_WIDTH] for name in names)
    return finished(alt.layer(*lines, reach, *ends, point).properties(height=height), colors, left=left)


def funnel_rows(funnel: Funnel) -> list[Row]:
    """The figure at each look with its bounds."""
    return [
        {
            "time": in_milliseconds(point.at_unix_ns),
            "stage": point.stage,
            "estimate": point.estimate,
            "lower": point.lower,
            "upper": point.upper,
            "text": f"{funnel.text(point.estimate)}, {funnel.bounds_text(point)}",
            "verdict": DECISIONS[point.decision],
        }
        for point in funnel.points
        if point.lower is not None and point.upper is not None
    ]


def funnel_table(funnel: Funnel, zone: tzinfo) -> ChartTable:
    """The same as text."""
    figure = "share" if funnel.unit == "share" else "difference"
    rows = [
        (
            descriptions.day_and_time(point.at_unix_ns, zone),
            point.stage,
            funnel.text(point.estimate),
            funnel.bounds_text(point),
            DECISIONS[point.decision],
        )
        for point in funnel.points
        if point.estimate is not None
    ]
    return ChartTable("bounds at each look", ("when", "stage", figure, "bounds", "verdict"), rows)


def funnel_spec(colors: Palette, unit: str, limit: float, limit_text: str) -> Row:
    """Bounds that close over time, beside the limit and, of a difference, zero."""
    base = alt.Chart(alt.NamedData("rows"))
    x = alt.X("time:T", title=None, axis=time_axis(7))
    is_share = unit == "share"
    title = "share of turns" if is_share else "difference, ms" if unit == "s" else "difference"
    axis = alt.Axis(labelExpr=_FUNNEL_LABELS.get(unit, "format(datum.value, '+,.4~r')"), tickCount=6)
    tips = [
        alt.Tooltip("time:T", format="%d %b %H:%M", title="look"),
        alt.Tooltip("stage:N"),
        alt.Tooltip("text:N", title="share" if is_share else "difference"),
        alt.Tooltip("verdict:N"),
    ]
    y = alt.Y("lower:Q", title=title, axis=axis)
    band = base.mark_area(color=colors.p50, opacity=0.3, interpolate="linear").encode(
        x=x, y=y, y2="upper:Q", detail="stage:N"
    )
    edges = [
        base.mark_line(color=colors.p95, strokeDash=[5, 3], strokeWidth=1.4).encode(
            x=x, y=alt.Y(f"{name}:Q", title=title, axis=axis), detail="stage:N"
        )
        for name in ("lower", "upper")
    ]
    # An area and a line need two looks: the bounds of one that is alone at its stage are an upright line.
    alone = base.transform_joinaggregate(looks="count()", groupby=["stage"]).transform_filter("datum.looks === 1")
    edges.append(alone.mark_rule(color=colors.p95, strokeDash=[5, 3], strokeWidth=1.4).encode(x=x, y=y, y2="upper:Q"))
    middle = base.mark_line(color=colors.p95, point=alt.OverlayMarkDef(size=20)).encode(
        x=x, y=alt.Y("estimate:Q", title=title, axis=axis), detail="stage:N", tooltip=tips
    )
    zero = () if is_share else ((0.0, "no difference", (1, 0)),)
    rules = [
        mark
        for at, text, dashes in (*zero, (limit, limit_text, (2, 3)))
        for mark in named_rule(base, colors, at, text, dashes)
    ]
    return finished(alt.layer(band, *edges, middle, *rules).properties(height=_FUNNEL_HEIGHT), colors)
