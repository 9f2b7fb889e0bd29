"""Charts of named series over time: counts as stacked bars, gauges as lines; pure. Rows as for every chart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import altair as alt

from dashboard.charts import MOMENT, finished, named_rule, time_axis
from dashboard.palette import Palette
from telemetry.model.formatting import in_milliseconds

Row = dict[str, Any]
HEIGHT: Final = 170
# Lines are told apart without color, too.
_DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [10, 3], [1, 3], [12, 4, 2, 4])
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


def lines_spec(colors: Palette, names: Sequence[str], title: str, limit: Limit | None = None) -> Row:
    """A line for each name, straight from bucket to bucket, broken where there is no value; a limit that is drawn as a
    rule."""
    dashes = alt.Scale(domain=list(names), range=[_DASHES[place % len(_DASHES)] for place in range(len(names))])
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
    return finished(alt.layer(*layers).properties(height=HEIGHT), colors)


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
