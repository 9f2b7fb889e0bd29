"""The charts as Vega-Lite specifications and the rows that fill them; pure.

A specification holds no data and depends only on what rarely changes (theme, objective), so that the browser keeps the
picture and exchanges its rows: a refresh does not flicker.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import altair as alt

from dashboard.palette import Palette
from telemetry.model.formatting import NS_PER_MS, declared_milliseconds, estimate_if, in_milliseconds, milliseconds
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.turns import Turn
from telemetry.store.answers import TimelinePoint

Row = dict[str, Any]
PERCENTILES: Final = ("p50", "p95", "p99")
TIMELINE_HEIGHT: Final = 308
_CLOCK: Final = {
    "milliseconds": "%H:%M:%S",
    "seconds": "%H:%M:%S",
    "minutes": "%H:%M",
    "hours": "%H:%M",
    "date": "%d %b",
}
_DASHES: Final = {"p50": [1, 0], "p95": [1, 0], "p99": [5, 3]}


def finished(chart: alt.LayerChart | alt.FacetChart, colors: Palette) -> Row:
    """The specification in the theme's colors, without data."""
    themed = (
        chart.configure(background="transparent", font="inherit")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=colors.soft,
            titleColor=colors.soft,
            gridColor=colors.line,
            domain=False,
            ticks=False,
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
        )
        .configure_legend(
            labelColor=colors.soft, labelFontSize=11, symbolType="stroke", symbolSize=260, symbolStrokeWidth=2.5
        )
    )
    # Checking against the schema takes a second on a busy machine: the tests do it.
    spec = themed.to_dict(validate=False)
    spec.pop("data", None)  # the rows are given beside the specification
    spec.pop("datasets", None)
    return spec


def timeline_spec(colors: Palette, objective_ms: float | None, *, with_calls: bool = True) -> Row:
    """The picture of `_timeline_json`, a copy for the caller to do with as it likes."""
    return json.loads(_timeline_json(colors, objective_ms, with_calls))


@cache
def _timeline_json(colors: Palette, objective_ms: float | None, with_calls: bool) -> str:
    """Voice-to-voice over time: one dot per turn while there are few, p50, p95 and p99, the objective as a rule,
    and the calls in flight behind, where they are known, on an axis of their own."""
    base = alt.Chart(alt.NamedData("rows"))
    time = alt.X("time:T", title=None, axis=alt.Axis(grid=False, labelOverlap=True, tickCount=7, format=dict(_CLOCK)))
    strengths = [colors.p50, colors.p95, colors.p99]
    dashes = [_DASHES[name] for name in PERCENTILES]
    legend = alt.Legend(title=None, orient="top-left", direction="horizontal", offset=-4, padding=0)
    latency = alt.Scale(zero=True, nice=True)
    behind = (
        base.transform_filter("datum.n !== null")
        .mark_area(interpolate="step-after", color=colors.behind, opacity=0.45, tooltip=False)
        .encode(
            x=time,
            y=alt.Y(
                "calls:Q",
                title="calls in flight",
                axis=alt.Axis(orient="right", grid=False, tickMinStep=1, tickCount=4),
            ),
        )
    )
    dots = base.mark_circle(size=13, color=colors.p95, opacity=0.32).encode(
        x=time,
        y=alt.Y("turn:Q", title="ms", scale=latency, axis=alt.Axis(tickCount=5)),
        tooltip=[alt.Tooltip("time:T", format="%H:%M:%S"), alt.Tooltip("turn_text:N", title="one turn")],
    )
    domain = list(PERCENTILES)
    lines = (
        base.transform_filter("datum.n !== null")
        .transform_fold([*PERCENTILES], as_=["percentile", "value"])
        .mark_line(interpolate="monotone", point=alt.OverlayMarkDef(size=18, filled=True), tooltip=False)
        .encode(
            x=time,
            y=alt.Y("value:Q", title="ms", scale=latency, axis=alt.Axis(tickCount=5)),
            color=alt.Color("percentile:N", scale=alt.Scale(domain=domain, range=strengths), legend=legend),
            strokeDash=alt.StrokeDash("percentile:N", scale=alt.Scale(domain=domain, range=dashes), legend=legend),
        )
    )
    hover = (
        base.transform_filter("datum.n !== null")
        .mark_rule(opacity=0, strokeWidth=14)
        .encode(
            x=time,
            tooltip=[
                alt.Tooltip("time:T", format="%H:%M:%S", title="from"),
                *(alt.Tooltip(f"{name}_text:N", title=name) for name in PERCENTILES),
                alt.Tooltip("n:Q", title="turns"),
                alt.Tooltip("calls:Q", title="calls in flight"),
            ],
        )
    )
    layers: list[Any] = [dots, lines, hover]
    if objective_ms is not None:
        layers += _objective(base, colors, objective_ms)
    parts = (behind, alt.layer(*layers)) if with_calls else (alt.layer(*layers),)
    chart = alt.layer(*parts).resolve_scale(y="independent").properties(height=TIMELINE_HEIGHT)
    return json.dumps(finished(chart, colors))


def _objective(base: alt.Chart, colors: Palette, objective_ms: float) -> list[alt.Chart]:
    once = base.transform_aggregate(rows="count()")  # drawn for one row, not for each
    rule = once.mark_rule(color=colors.ink, strokeDash=[2, 3], strokeWidth=1.3).encode(y=alt.YDatum(objective_ms))
    text = once.mark_text(
        align="right", baseline="bottom", dy=-3, color=colors.ink, fontSize=11, text=_objective_text(objective_ms)
    ).encode(y=alt.YDatum(objective_ms), x=alt.value("width"))
    # The words stand on a ground of their own, so that lines behind them leave them readable.
    ground = once.mark_text(
        align="right", baseline="bottom", dy=-3, fontSize=11, text=_objective_text(objective_ms),
        stroke=colors.paper, strokeWidth=4,
    ).encode(y=alt.YDatum(objective_ms), x=alt.value("width"))  # fmt: skip
    return [rule, ground, text]


def _objective_text(objective_ms: float) -> str:
    return f"objective {declared_milliseconds(objective_ms * NS_PER_MS)}"


def _text(point: TimelinePoint, ns: float | None) -> str:
    return estimate_if(point.approximate and ns is not None, milliseconds(ns))


def timeline_rows(points: Sequence[TimelinePoint], dots: Sequence[Turn]) -> list[Row]:
    """Rows of the timeline: buckets (ms, None where there are too few turns) and, while there are few, the turns.

    Beside each number stands its text, for the tooltip.
    """
    rows: list[Row] = [
        {
            "time": in_milliseconds(point.start_unix_ns),
            "n": point.n,
            "calls": point.calls_in_flight,
            **{name: None if (ns := getattr(point, name)) is None else in_milliseconds(ns) for name in PERCENTILES},
            **{f"{name}_text": _text(point, getattr(point, name)) for name in PERCENTILES},
            "turn": None,
            "turn_text": None,
        }
        for point in points
    ]
    for turn in dots:
        value = METRICS[HEADLINE].value(turn)
        if value is not None and turn.outcome != "invalid":
            nothing = dict.fromkeys(("n", "calls", *PERCENTILES, *(f"{name}_text" for name in PERCENTILES)))
            shown = {"turn": in_milliseconds(value), "turn_text": milliseconds(value)}
            rows.append({"time": in_milliseconds(turn.started_unix_ns), **nothing, **shown})
    return rows
