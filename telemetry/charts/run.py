"""Pictures of one run: stages against their budgets, where a turn's time goes, how latency is spread, single turns."""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from telemetry.charts.drawing import ONCE, ROWS, STAGE_NAMES, Palette, Row, finished, having, scale_of

_PERCENTILES: Final = ("p50", "p95", "p99")
# A line of text, and a bar below it.
_ROW_HEIGHT: Final = 42
_BAR_HEIGHT: Final = 15
_TEXT_SIZE: Final = 12
_STACK_HEIGHT: Final = 88
_HISTOGRAM_HEIGHT: Final = 170
_WIDEST_DIGIT: Final = 7.5  # px of a character, so that a figure is only written into a bar that it fits into
_LETTERS: Final[dict[str, Any]] = {"baseline": "middle", "fontSize": _TEXT_SIZE, "limit": 0}


def stage_colors(colors: Palette, names: Sequence[str]) -> list[str]:
    """The colors of stages, of the caller's speech and of the reply that plays."""
    known = {**dict(zip(STAGE_NAMES, colors.stages, strict=True)), "speech": colors.speech, "playing": colors.playing}
    return [known.get(name, colors.soft) for name in names]


def _milliseconds(ticks: int, title: str = "ms") -> alt.Axis:
    return alt.Axis(title=title, tickCount=ticks, format=",d", labelOverlap=True, titleAnchor="end", titleAlign="right")


def _heads(colors: Palette, y: alt.Y) -> list[alt.Chart]:
    """The name of a row (`name`) at its left and its figures (`figures`) at its right, above its bar."""
    named = having("figures")
    text: dict[str, Any] = {**_LETTERS, "dy": -_BAR_HEIGHT, "color": colors.ink}
    name: dict[str, Any] = {"align": "left", "fontWeight": "bold", **text}
    return [
        # A ground of its own keeps a line behind it from running through the name.
        named.mark_text(stroke=colors.paper, strokeWidth=4, **name).encode(x=alt.value(0), y=y, text="name:N"),
        named.mark_text(**name).encode(x=alt.value(0), y=y, text="name:N"),
        named.mark_text(align="right", **text).encode(x=alt.value("width"), y=y, text="figures:N"),
    ]


def stage_bars(names: Sequence[str], colors: Palette) -> Row:
    """Draw a bar for each name: as far as p50, p95 and p99 reach, with a tick at each budget.

    Rows have `name`, and `statistic`, `low`, `high` (ms) and `text` of a percentile, or `budget`, or `figures`.
    """
    y = alt.Y("name:N", sort=list(names), axis=None, title=None)
    x = alt.X("low:Q", scale=alt.Scale(zero=True, nice=False), axis=_milliseconds(6))
    legend = alt.Legend(title=None, orient="bottom", symbolType="square", symbolSize=90, offset=2)
    shades = alt.Color("statistic:N", scale=scale_of(_PERCENTILES, (colors.p50, colors.p95, colors.p99)), legend=legend)
    down: dict[str, Any] = {"yOffset": 6}
    layers = [
        having("statistic")
        .mark_bar(size=_BAR_HEIGHT, **down)
        .encode(x=x, x2="high:Q", y=y, color=shades, description="text:N"),
        having("budget")
        .mark_tick(color=colors.missed, thickness=3, size=_BAR_HEIGHT + 10, opacity=1, **down)
        .encode(x="budget:Q", y=y, description="text:N"),
        *_heads(colors, y),
    ]
    return finished(layers, colors, _ROW_HEIGHT * max(1, len(names)))


def stage_stack(stages: Sequence[tuple[str, str]], colors: Palette) -> Row:
    """Draw where a turn's time goes: the stages one after the other, at their p50 and at their p95, on one scale.

    Rows have `statistic`, `stage` (its label), `low`, `high` (ms), and the figure as `text` and with its stage as
    `words`. `stages` are the names and labels in their order; a statistic without a value has a row with `missing`.
    """
    labels = [label for _, label in stages]
    painted = scale_of(labels, stage_colors(colors, [name for name, _ in stages]))
    legend = alt.Legend(
        title=None, orient="bottom", columns=3, columnPadding=24, labelLimit=0, symbolType="square", symbolSize=90
    )
    y = alt.Y("statistic:N", sort=["p50", "p95"], title=None, axis=alt.Axis(labelFontSize=_TEXT_SIZE))
    x = alt.X("low:Q", scale=alt.Scale(zero=True, nice=False), axis=_milliseconds(6))
    known = having("high")
    # As wide as its figure, on the scale that all bars share.
    fits = "(datum.high - datum.low) / datum.reach * width > " + f"{_WIDEST_DIGIT} * length(datum.text)"
    middle = known.transform_joinaggregate(reach="max(high)").transform_filter(fits)
    layers = [
        known.mark_bar(stroke=colors.paper, strokeWidth=1).encode(
            x=x, x2="high:Q", y=y, color=alt.Color("stage:N", scale=painted, legend=legend), description="words:N"
        ),
        middle.transform_calculate(center="(datum.low + datum.high) / 2")
        .mark_text(color=colors.paper, fontWeight="bold", **_LETTERS)
        .encode(x="center:Q", y=y, text="text:N"),
        having("missing")
        .mark_text(align="left", dx=4, color=colors.soft, **_LETTERS)
        .encode(x=alt.value(0), y=y, text="missing:N"),
    ]
    return finished(layers, colors, _STACK_HEIGHT)


def histogram(marks: Sequence[tuple[str, float]], colors: Palette) -> Row:
    """Draw how many turns each bin has (`low`, `high` in ms, `n`, `beyond` the objective, `text`), with marks: the
    percentiles, and the objective."""
    x = alt.X("low:Q", scale=alt.Scale(zero=True, nice=False), axis=_milliseconds(9))
    y = alt.Y("n:Q", title="turns", axis=alt.Axis(tickCount=4, tickMinStep=1, format=",d"))
    painted = alt.condition("datum.beyond", alt.value(colors.missed), alt.value(colors.behind))
    layers: list[Any] = [
        ROWS.mark_rect(stroke=colors.paper, strokeWidth=1).encode(
            x=x, x2="high:Q", y=y, y2=alt.Y2Datum(0), color=painted, description="text:N"
        ),
    ]
    dashes = {"p50": [1, 0], "p95": [8, 3], "p99": [3, 3], "objective": [6, 4]}
    for place, (name, at) in enumerate(marks):
        color = colors.missed if name == "objective" else getattr(colors, name)
        layers += [
            ONCE.mark_rule(color=color, strokeWidth=2, strokeDash=dashes[name]).encode(x=alt.XDatum(at)),
            # Each name has a line of its own: marks may be as close as they like.
            ONCE.mark_text(color=color, text=name, fontWeight="bold", **_LETTERS).encode(
                x=alt.XDatum(at), y=alt.value(-8 - 14 * place)
            ),
        ]
    return finished(layers, colors, _HISTOGRAM_HEIGHT)


def waterfall(names: Sequence[tuple[str, str]], view_ms: tuple[float, float], origin: str, colors: Palette) -> Row:
    """Draw one turn on one clock: a line for each stage, the caller's bar above the service's, zero at `origin`.

    Rows have `name` (the label of a stage), `place` (0 and 1), `reported`, `low`, `high` (ms) and `text`, or `figures`.
    `names` are the stages with their labels from top to bottom; what is outside `view_ms` is cut.
    """
    labels = [label for _, label in names]
    y = alt.Y("name:N", sort=labels, axis=None, title=None)
    scale = alt.Scale(domain=list(view_ms), clamp=True, nice=False)
    x = alt.X("low:Q", scale=scale, axis=_milliseconds(8, f"ms from {origin}"))
    painted = scale_of(labels, stage_colors(colors, [name for name, _ in names]))
    given: dict[str, Any] = {"color": alt.Color("name:N", scale=painted, legend=None), "description": "text:N"}
    given["stroke"] = alt.Stroke("name:N", scale=painted, legend=None)
    layers: list[Any] = [ONCE.mark_rule(color=colors.ink, strokeDash=[2, 3], strokeWidth=1.2).encode(x=alt.XDatum(0))]
    for place, opacity in ((0, 1.0), (1, 0.3)):
        side = having("place").transform_filter(f"datum.place === {place}")
        bar: dict[str, Any] = {"size": 8, "yOffset": 2 + 9 * place, "fillOpacity": opacity, "strokeWidth": place}
        layers.append(side.mark_bar(**bar).encode(x=x, x2="high:Q", y=y, **given))
    return finished([*layers, *_heads(colors, y)], colors, _ROW_HEIGHT * max(1, len(names)))
