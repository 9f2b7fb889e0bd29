"""Pictures that compare: cohorts by curves; runs by trend, by load, and by the profile of the speech."""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from telemetry.charts.drawing import (
    DASHES,
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
    upright_rule,
)
from telemetry.model.formatting import NS_PER_MS, declared_milliseconds

_CURVE_HEIGHT: Final = 260
# Shares at which the curves are read off, each with the side of its rule that its name is on.
_READ_OFF: Final = ((0.5, "p50", -4), (0.95, "p95", 11), (0.99, "p99", -4))


HEIGHT: Final = 230
# An axis of shares goes at least so far.
LEAST_SHARE: Final = 0.05
_NAMES_BELOW_EACH_OTHER: Final = 4  # more of them take too much of the picture


def curves(names: Sequence[str], colors: Palette) -> Row:
    """Draw the cumulative share of turns within a time (`cohort`, `ms`, `share`, `text`), a line for each name, with
    the shares at which percentiles are read off."""
    legend = alt.Legend(title=None, orient="top", direction="horizontal", padding=0, offset=4)
    label: dict[str, Any] = {"labelExpr": "format(datum.value, ',')", "labelOverlap": True}
    line = ROWS.mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=alt.X(
            "ms:Q",
            title="voice to voice, ms",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(grid=False, tickCount=6, format="~s", **label),
        ),
        y=alt.Y(
            "share:Q",
            title="share of turns",
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
            scale=alt.Scale(domain=[0, 1.03], nice=False),
        ),
        color=alt.Color("cohort:N", scale=scale_of(names, colors.series), legend=legend),
        strokeDash=alt.StrokeDash("cohort:N", scale=scale_of(names, DASHES), legend=legend),
        tooltip=tips("cohort", "text|turns"),
    )
    read_off: list[alt.Chart] = []
    for share, name, dy in _READ_OFF:
        read_off.append(ONCE.mark_rule(color=colors.soft, strokeDash=[1, 3]).encode(y=alt.YDatum(share)))
        text = ONCE.mark_text(align="right", dx=-3, dy=dy, fontSize=10, color=colors.soft, text=name)
        read_off.append(text.encode(y=alt.YDatum(share), x=alt.value("width")))
    return finished([*read_off, line], colors, _CURVE_HEIGHT)


def _many(field: str, names: Sequence[str], colors: Palette) -> tuple[alt.Shape, alt.StrokeDash]:
    """Several runs or groups of one figure: the figure has the color, shape and dashes tell them apart."""
    legend = None
    if len(names) > 1:
        # Names of runs are long: side by side they meet where a reader spaces letters, or the window is narrow.
        columns = 1 if len(names) <= _NAMES_BELOW_EACH_OTHER else 2
        symbol: dict[str, Any] = {"symbolStrokeColor": colors.p95, "symbolSize": 70}
        legend = alt.Legend(title=None, orient="top", columns=columns, labelLimit=260, rowPadding=0, **symbol)
    return (
        alt.Shape(f"{field}:N", scale=scale_of(names, SHAPES), legend=legend),
        alt.StrokeDash(f"{field}:N", scale=scale_of(names, DASHES), legend=legend),
    )


def trend(labels: Sequence[str], colors: Palette) -> Row:
    """Draw p95 of voice-to-voice from run to run (`began`, `p95`, `run`, `text`, `state`), a line for each label."""
    shape, dash = _many("label", labels, colors)
    x, y = alt.X("began:T", title=None, axis=time_axis(6)), amount("p95", "p95, ms")
    shown = tips("run", "began:T|began|%d %b %H:%M", "text|p95", "state")
    layers = [
        ROWS.mark_line(color=colors.p95).encode(x=x, y=y, strokeDash=dash),
        ROWS.mark_point(color=colors.p95, filled=True, size=46).encode(x=x, y=y, shape=shape, tooltip=shown),
    ]
    return finished(layers, colors, HEIGHT)


def load(
    runs: Sequence[str], colors: Palette, objective_ms: float | None, capacity: int | None, missed: int | None = None
) -> Row:
    """Draw p50, p95 and p99 against the calls in flight (`calls`, `p50`, `p95`, `p99`, `lower`, `upper`), with the
    objective across and the capacity that a search found as a rule; it lies below the number that was `missed`."""
    zero = alt.Scale(zero=True, nice=True)
    x = alt.X("calls:Q", title="calls in flight", scale=zero, axis=alt.Axis(grid=False, tickMinStep=1))
    shape, dash = _many("run", runs, colors)
    shown = tips("run", "level|calls in flight", "turns:Q|turns", "p50_text|p50", "p95_text|p95")
    low = alt.Y("lower:Q", title="ms", scale=zero)
    painted = {"p50": colors.p50, "p95": colors.p95, "p99": colors.p99}
    layers: list[Any] = [
        having("lower").mark_rule(color=colors.p95, opacity=0.55).encode(x=x, y=low, y2="upper:Q"),
        *(
            having(name).mark_line(color=color).encode(x=x, y=f"{name}:Q", strokeDash=dash)
            for name, color in painted.items()
        ),
        *(
            having(name).mark_point(color=color, filled=True).encode(x=x, y=f"{name}:Q", shape=shape, tooltip=shown)
            for name, color in painted.items()
        ),
    ]
    if objective_ms is not None:
        words = f"objective {declared_milliseconds(objective_ms * NS_PER_MS)}"
        layers += named_rule(colors, objective_ms, words)
    if capacity is not None and missed is not None:
        between = ONCE.mark_rect(color=colors.playing, opacity=0.15)
        layers.append(between.encode(x=alt.XDatum(capacity), x2=alt.X2Datum(missed)))
    if capacity is not None:
        place = {"dx": 5, "y": 2}
        layers += upright_rule(colors, capacity, "capacity", color=colors.playing, strokeWidth=2, place=place)
    return finished(layers, colors, HEIGHT)


def by_profile(profiles: Sequence[str], runs: Sequence[str], colors: Palette, *, is_share: bool) -> Row:
    """Draw latencies or shares by the profile of the speech: `condition`, `value`, `p50`, `lower`, `upper`."""
    x = alt.X("condition:N", title=None, scale=alt.Scale(domain=list(profiles)), axis=alt.Axis(labelAngle=0))
    at: dict[str, Any] = {"x": x, "xOffset": alt.XOffset("run:N")}
    shape, _ = _many("run", runs, colors)
    low = amount("lower", "error rate", format="~%") if is_share else amount("lower", "ms")
    figures = {"value": colors.p95} if is_share else {"value": colors.p95, "p50": colors.p50}
    layers: list[Any] = [
        having("lower").mark_rule(color=colors.p95, strokeWidth=2, opacity=0.6).encode(y=low, y2="upper:Q", **at),
        *(
            having(name)
            .mark_point(color=color, filled=True, size=60)
            .encode(y=f"{name}:Q", shape=shape, tooltip=tips("run", "condition", "turns:Q", "text"), **at)
            for name, color in figures.items()
        ),
    ]
    if is_share:
        # Where no word was recognized wrongly, an axis of nothing but 0 would have it in the middle.
        layers.append(ONCE.mark_rule(opacity=0).encode(y=alt.YDatum(LEAST_SHARE)))
    return finished(layers, colors, HEIGHT)


def with_intervals(
    names: Sequence[str],
    places: Sequence[str],
    unit: str,
    colors: Palette,
    *,
    is_log: bool = True,
    limit: tuple[float, str] | None = None,
    marked: str | None = None,
) -> Row:
    """Draw a figure of several `names` over named places, with the interval of each value, a limit across,
    and an upright line at a marked place.

    Rows have `name`, `place`, `value`, `lower`, `upper`, `text`, and `line`: values of one line are connected. A
    logarithmic axis (`is_log`) requires values above 0.
    """
    legend = alt.Legend(title=None, orient="bottom", columns=1, offset=2, symbolSize=90, labelLimit=0)
    x = alt.X("place:O", sort=list(places), title=None, axis=alt.Axis(labelAngle=0, grid=True))
    kind = alt.Scale(type="log", nice=False, padding=12) if is_log else alt.Scale(zero=True)
    y = alt.Y("value:Q", title=unit, scale=kind, axis=alt.Axis(format=",.4~r", tickCount=6, labelOverlap=True))
    color = alt.Color("name:N", scale=scale_of(names, colors.series), legend=legend)
    dash = alt.StrokeDash("name:N", scale=scale_of(names, DASHES), legend=legend)
    shape = alt.Shape("name:N", scale=scale_of(names, SHAPES), legend=legend)
    layers = [
        having("lower").mark_rule(strokeWidth=5, opacity=0.35).encode(x=x, y="lower:Q", y2="upper:Q", color=color),
        ROWS.mark_line(strokeWidth=2).encode(x=x, y=y, color=color, strokeDash=dash, detail="line:N"),
        ROWS.mark_point(filled=True, size=40, opacity=1).encode(
            x=x, y=y, color=color, shape=shape, description="text:N"
        ),
        *([] if limit is None else named_rule(colors, *limit)),
    ]
    if marked is not None:
        layers.append(ONCE.mark_rule(color=colors.met, strokeDash=[6, 4]).encode(x=alt.XDatum(marked)))
    return finished(layers, colors, HEIGHT)


def against(names: Sequence[str], x_title: str, y_title: str, colors: Palette) -> Row:
    """Draw single values of `y` against those of `x` that they should equal, by `name`, with the line where they do."""
    legend = alt.Legend(title=None, orient="bottom", columns=2, offset=2, symbolType="circle", symbolSize=60)
    color = alt.Color("name:N", scale=scale_of(names, colors.series), legend=legend)
    axis = alt.Axis(format=",.4~r", tickCount=6)
    x, y = alt.X("x:Q", title=x_title, axis=axis), alt.Y("y:Q", title=y_title, axis=axis)
    equal = ROWS.transform_aggregate(low="min(x)", high="max(x)").mark_rule(color=colors.soft)
    layers = [
        equal.encode(x="low:Q", y="low:Q", x2="high:Q", y2="high:Q"),
        ROWS.mark_circle(size=14, opacity=0.6).encode(x=x, y=y, color=color),
    ]
    return finished(layers, colors, HEIGHT)
