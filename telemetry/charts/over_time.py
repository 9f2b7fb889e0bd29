"""Pictures over time: latency by cohort, load, counts, gauges, error budgets, and the bounds of a rollout's looks."""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from telemetry.charts.drawing import (
    DASHES,
    MOMENT,
    ONCE,
    ROWS,
    SHAPES,
    Palette,
    Row,
    amount,
    finished,
    having,
    named_rule,
    scale_of,
    time_axis,
    tips,
)
from telemetry.model.formatting import NS_PER_MS, declared_milliseconds

LINES_HEIGHT: Final = 236
LOAD_HEIGHT: Final = 44
SERIES_HEIGHT: Final = 170
# Left of both pictures over one time, so that their times are below each other.
_LEFT: Final[dict[str, Any]] = {"minExtent": 40, "maxExtent": 40}
# What a picture reaches up to at the least, by its unit: what is less than that is nothing, and is drawn as nothing.
_LEAST_SHOWN: Final = {"ms": 0.1, "bytes": 1.0, "cores": 0.01}
# Above the line of a limit there is room for its words.
_ROOM_ABOVE: Final = 1.12
_DAYS_HEIGHT: Final = 220
# What is overspent more is drawn at this share, and the axis says so: otherwise it flattens all days within the budget.
LOWEST_DRAWN: Final = -2.0
_BUDGET_LABEL: Final = f"datum.value <= {LOWEST_DRAWN} ? '\u2264 ' + datum.label : datum.label"
_FUNNEL_HEIGHT: Final = 260
# A funnel shows what happens around its limit: wider bounds run along its edge.
_LIMITS_SHOWN: Final = 3.0
_VERDICTS: Final = ("promote", "hold", "roll back")
# A cross of two lines, as a path of SVG.
_SALTIRE: Final = "M-1,-1L1,1M-1,1L1,-1"


def latency_lines(
    colors: Palette,
    cohorts: Sequence[str],
    objective_ms: float | None,
    *,
    painted: Sequence[str] = (),
    axis: alt.Axis | None = None,
) -> Row:
    """Draw latency over time: a straight line with a color, a dash and a shape of its own for each cohort or percentile
    with gaps where turns are too few; single turns as dots, those without an answer as crosses at the top; and as rules
    the objective and the moment when it is first missed.

    Rows have `time`, and `cohort`, `value`, `n`, `value_text`, `from_text`, `to_text`, or `onset_text`, or `dot`, or
    `unanswered`; what a row does not have is None. `painted` are the colors of the lines.
    """
    legend = alt.Legend(title=None, orient="top", symbolSize=70, symbolStrokeWidth=2, offset=2, padding=0)
    x, y = alt.X("time:T", title=None, axis=axis or time_axis(7)), amount("value", "ms", **_LEFT)
    color = alt.Color("cohort:N", scale=scale_of(cohorts, painted or colors.cohorts), legend=legend)
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
        having("dot").mark_circle(color=colors.soft, opacity=0.6, size=18, tooltip=False).encode(x=x, y="dot:Q"),
        having("unanswered")
        .mark_point(color=colors.missed, shape=_SALTIRE, size=40, tooltip=False)
        .encode(x=x, y=alt.value(3), description="unanswered:N"),
        lines.encode(x=x, y=y, color=color, strokeDash=dash),
        having("cohort", "value")
        .mark_point(size=22, filled=True)
        .encode(x=x, y=y, color=color, shape=shape, tooltip=shown),
        onset.mark_rule(color=colors.ink, strokeWidth=1.5).encode(x=x),
        onset.mark_text(color=colors.ink, fontWeight="bold", **mark).encode(x=x, y=alt.value(14), text="onset_text:N"),
        # The time of every row, also of those without a value: as long as that of the strip below.
        ROWS.transform_aggregate(first="min(time)", last="max(time)")
        .mark_rule(opacity=0, tooltip=False)
        .encode(x=alt.X("first:T", title=None, axis=axis or time_axis(7)), x2="last:T"),
        most.mark_point(opacity=0, tooltip=False).encode(y=y),
    ]
    if objective_ms is not None:
        words = f"objective {declared_milliseconds(objective_ms * NS_PER_MS)}"
        layers += named_rule(colors, objective_ms, words)
    return finished(layers, colors, LINES_HEIGHT)


def load_strip(colors: Palette) -> Row:
    """Draw the calls in flight (`time`, `calls`) as a strip of its own, as far as the lines above it reach."""
    # The title is about as long as the strip is high: from the top on, it has the room below the strip as well.
    axis = alt.Axis(grid=False, tickMinStep=1, tickCount=2, titleAnchor="end", **_LEFT)
    area = ROWS.mark_area(interpolate="step-after", color=colors.soft, opacity=0.45).encode(
        x=alt.X("time:T", title=None, axis=alt.Axis(grid=False, labels=False)),
        y=alt.Y("calls:Q", title="calls", axis=axis),
        tooltip=tips("calls:Q|calls in flight"),
    )
    return finished([area], colors, LOAD_HEIGHT)


def count_bars(names: Sequence[str], width_ms: float, colors: Palette) -> Row:
    """Draw the counts of each name in buckets, stacked: rows of `time`, `name`, `value` and `order`."""
    bars = (
        ROWS.transform_calculate(until=f"datum.time + {width_ms}")
        .transform_stack(stack="value", as_=["low", "high"], groupby=["time"], sort=[alt.SortField("order")])
        # A bar that spans a part of x is drawn as one of y: a rectangle says both ends of both.
        .mark_rect(stroke=colors.paper, strokeWidth=0.5)
        .encode(
            x=alt.X("time:T", title=None, axis=time_axis(5)),
            x2="until:T",
            y=alt.Y("low:Q", title="turns", axis=alt.Axis(tickMinStep=1, tickCount=4)),
            y2="high:Q",
            color=_color(colors, names, symbolType="square", symbolSize=90),
            tooltip=_series_tips("turns"),
        )
    )
    return finished([bars], colors, SERIES_HEIGHT)


def gauge_lines(names: Sequence[str], unit: str, colors: Palette, limit: tuple[float, str] | None) -> Row:
    """Draw a line for each name, straight from bucket to bucket, broken where there is no value; a limit, a value of
    the unit with its words, as a rule."""
    least = _LEAST_SHOWN.get(unit, 0.0)
    lines = ROWS.mark_line(interpolate="linear", point=alt.OverlayMarkDef(size=14, filled=True)).encode(
        x=alt.X("time:T", title=None, axis=time_axis(5)),
        y=amount("value", unit, tickCount=4, tickMinStep=least),
        color=_color(colors, names),
        strokeDash=alt.StrokeDash("name:N", scale=scale_of(names, DASHES), legend=_legend()),
        tooltip=_series_tips(unit),
    )
    rule: list[alt.Chart] = []
    if limit is not None:
        rule, least = named_rule(colors, *limit), max(least, _ROOM_ABOVE * limit[0])
    room = ONCE.mark_point(opacity=0, tooltip=False).encode(y=alt.YDatum(least))
    return finished([lines, room, *rule], colors, SERIES_HEIGHT)


def _legend(**symbol: Any) -> alt.Legend:
    given: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 260, **symbol}
    return alt.Legend(title=None, orient="top", direction="horizontal", columns=4, labelLimit=150, padding=0, **given)


def _color(colors: Palette, names: Sequence[str], **symbol: Any) -> alt.Color:
    return alt.Color("name:N", scale=scale_of(names, colors.series), legend=_legend(**symbol))


def _series_tips(unit: str) -> list[alt.Tooltip]:
    return tips(f"time:T|from|{MOMENT}", "name|name", f"value:Q|{unit}|,.3~f")


def budget_days(colors: Palette) -> Row:
    """Draw what was left of an error budget at the end of each day (`day`, `left`), from all of it to none (dotted) and
    beyond."""
    axis = alt.Axis(format="%", tickCount=5, labelExpr=_BUDGET_LABEL)
    line = ROWS.mark_line(interpolate="linear", color=colors.p95, point=alt.OverlayMarkDef(size=22)).encode(
        x=alt.X("day:Q", title="days from now", axis=alt.Axis(grid=False, tickMinStep=1)),
        y=alt.Y("left:Q", title="budget left", scale=alt.Scale(domainMax=1), axis=axis),
        tooltip=tips("text|budget", "bad|bad turns", "turns"),
    )
    empty = ONCE.mark_rule(color=colors.ink, strokeDash=[2, 3]).encode(y=alt.YDatum(0))
    return finished([line, empty], colors, _DAYS_HEIGHT)


# By the unit of a funnel: the title of its axis, and its labels in Vega's JavaScript.
_FUNNEL_AXES: Final = {
    "s": ("difference, ms", "format(datum.value * 1000, '+,.4~r')"),
    "share": ("share of turns", "format(datum.value * 100, ',.4~r') + ' %'"),
    "ratio": ("difference, points", "format(datum.value * 100, '+,.4~r')"),
}


def funnel(colors: Palette, unit: str, limit: float, limit_text: str) -> Row:
    """Draw a figure at each look with bounds that close over time, next to the limit and, of a difference, zero; below,
    what was decided at each look.

    Rows have `time`, `stage`, `estimate`, `lower`, `upper`, `verdict` and `text`.
    """
    title, labels = _FUNNEL_AXES.get(unit, ("difference", "format(datum.value, '+,.4~r')"))
    is_share, axis = unit == "share", alt.Axis(labelExpr=labels, tickCount=6)
    x = alt.X("time:T", title=None, axis=time_axis(7))
    highest = min(1.0, _LIMITS_SHOWN * limit) if is_share else _LIMITS_SHOWN * limit
    scale = alt.Scale(domain=[0.0 if is_share else -highest, highest], clamp=True, nice=False)
    low, high, middle = (
        alt.Y(f"{name}:Q", title=title, axis=axis, scale=scale) for name in ("lower", "upper", "estimate")
    )
    known = having("lower", "upper")
    legend = alt.Legend(title=None, orient="bottom", symbolType="square", symbolSize=70, offset=2)
    decided = alt.Color(
        "verdict:N", scale=scale_of(_VERDICTS, (colors.met, colors.unknown, colors.missed)), legend=legend
    )
    dashed: dict[str, Any] = {"color": colors.p95, "strokeDash": [5, 3], "strokeWidth": 1.4}
    shown = tips("time:T|look|%d %b %H:%M", "stage", f"text|{'share' if is_share else 'difference'}", "verdict")
    # An area and a line need two looks: the bounds of one that is alone at its stage are an upright line.
    alone = known.transform_joinaggregate(looks="count()", groupby=["stage"]).transform_filter("datum.looks === 1")
    zero = [] if is_share else named_rule(colors, 0.0, "no difference", (1, 0))
    layers = [
        known.mark_area(color=colors.p50, opacity=0.3, interpolate="linear").encode(
            x=x, y=low, y2="upper:Q", detail="stage:N"
        ),
        *(known.mark_line(**dashed).encode(x=x, y=edge, detail="stage:N") for edge in (low, high)),
        alone.mark_rule(**dashed).encode(x=x, y=low, y2="upper:Q"),
        known.mark_line(color=colors.p95, point=alt.OverlayMarkDef(size=20)).encode(
            x=x, y=middle, detail="stage:N", tooltip=shown
        ),
        *zero,
        *named_rule(colors, limit, limit_text),
        ROWS.mark_tick(orient="vertical", thickness=4, size=9, opacity=1).encode(
            x=x,
            y=alt.value(_FUNNEL_HEIGHT - 5),
            color=decided,
            tooltip=shown,
            description="verdict:N",
        ),
    ]
    return finished(layers, colors, _FUNNEL_HEIGHT)
