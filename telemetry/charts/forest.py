"""A forest plot: estimates with their intervals below each other, with a line at no difference and one at a margin."""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from telemetry.charts.drawing import (
    SHAPES,
    Palette,
    Row,
    finished,
    having,
    scale_of,
    spacing_room,
    tips,
    upright_rule,
)

_ROW_HEIGHT: Final = 26
# For the axis, its title, the legend and the names of the lines.
_ROOM: Final = 84
_LEGEND_HEIGHT: Final = 17
_LONGEST_LABEL: Final = 150
_LETTER_WIDTH: Final = 5  # px, of narrow letters: no more of them are left of a longer label
# Verdicts in words, each with its color and its shape: shape alone also distinguishes them.
_VERDICTS: Final = {
    "worse": ("missed", "cross"),
    "better": ("met", "triangle-up"),
    "within the margin": ("met", "square"),
    "not shown to be worse": ("soft", "circle"),
    "undecided": ("unknown", "circle"),
    "shown, not judged": ("p95", "diamond"),
}
# By the unit of the estimates: the title of their axis, and how many of its units are one of theirs.
_AXES: Final = {
    "s": ("difference, ms", 1000),
    "share": ("difference, points", 100),
    "%": ("difference, %", 100),
}


def forest(
    rows: Sequence[Row], colors: Palette, unit: str, *, margin: float | None = None, margin_text: str = ""
) -> Row:
    """Make the specification of a forest plot, one line for each name in the order of the rows.

    Each row has `name`, `estimate`, `lower`, `upper` (of a side that nothing bounds, the farthest value that is to be
    drawn), `verdict` (a key of `_VERDICTS`, or words of your own) and `text`, the figures in words. Rows of one name
    that differ by `group` are drawn below each other, and the group has the shape. `unit` is `s` (differences in
    seconds, drawn in ms), `share` (differences of shares, in points), `%` (relative differences), or else the title of
    the axis.
    """
    names, groups, verdicts = (
        list(dict.fromkeys(str(row.get(of, "")) for row in rows)) for of in ("name", "group", "verdict")
    )
    states = [verdict for verdict in _VERDICTS if verdict in verdicts] + [
        verdict for verdict in verdicts if verdict not in _VERDICTS
    ]
    drawn = [_VERDICTS.get(state, ("soft", "circle")) for state in states]
    legend = alt.Legend(title=None, orient="bottom", columns=1, offset=2, symbolSize=70, symbolStrokeWidth=0)
    color = alt.Color("verdict:N", scale=scale_of(states, [getattr(colors, of) for of, _ in drawn]), legend=legend)
    shape = alt.Shape("verdict:N", scale=scale_of(states, [of for _, of in drawn]), legend=legend)
    many = len(groups) > 1
    labels = alt.Axis(labelLimit=_LONGEST_LABEL, grid=False, labelPadding=6, labelColor=colors.ink)
    at: dict[str, Any] = {"y": alt.Y("name:N", sort=names, title=None, axis=labels), "description": "text:N"}
    if many:
        at["yOffset"] = alt.YOffset("group:N", sort=groups)
        shape = alt.Shape("group:N", scale=scale_of(groups, SHAPES), legend=legend)
    title, scale = _AXES.get(unit, (unit, 1))
    label = f"datum.value === 0 ? '0' : format(datum.value * {scale}, '+,.4~r')"
    axis = alt.Axis(labelExpr=label, tickCount=5, labelOverlap=True)
    # Room for the names of the lines, where those are the farthest.
    low = alt.X("lower:Q", title=title, axis=axis, scale=alt.Scale(padding=80))
    high, middle = (alt.X(f"{name}:Q", title=title, axis=axis) for name in ("upper", "estimate"))
    shown = tips("name", *(["group"] if many else []), "text|difference", "verdict")
    bounded = having("lower", "upper")
    layers = [
        *_named(colors, 0.0, "no difference", "right", []),
        *([] if margin is None else _named(colors, margin, f"margin {margin_text}", "left", [2, 3])),
        bounded.mark_rule(strokeWidth=2.5).encode(x=low, x2="upper:Q", color=color, tooltip=shown, **at),
        *(bounded.mark_tick(thickness=2, size=9).encode(x=end, color=color, **at) for end in (low, high)),
        having("estimate")
        .mark_point(filled=True, size=85, opacity=1)
        .encode(x=middle, color=color, shape=shape, tooltip=shown, **at),
    ]
    keys = len(states) + (len(groups) if many else 0)
    height = _ROOM + _LEGEND_HEIGHT * keys + _ROW_HEIGHT * max(1, len(names)) * max(1, len(groups))
    left = spacing_room(name[: _LONGEST_LABEL // _LETTER_WIDTH] for name in names)
    return finished(layers, colors, height, left=left)


def _named(colors: Palette, at: float, words: str, align: str, dashes: Sequence[int]) -> list[alt.Chart]:
    """A line with its name on its own side: wide intervals bring two lines close to each other."""
    place: dict[str, Any] = {"baseline": "bottom", "dy": -3, "fontSize": 11, "y": 0, "align": align}
    place["dx"] = -2 if align == "right" else 2
    return upright_rule(colors, at, words, strokeDash=[*dashes] or [1, 0], strokeWidth=1.2, place=place)
