"""Pictures of turns: a heat map of latency over time, and the distribution."""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from telemetry.charts.drawing import (
    MOMENT,
    ROWS,
    TITLE_PADDING,
    Palette,
    Row,
    finished,
    having,
    spacing_room,
    time_axis,
    tips,
)

CELL: Final = "cell"
OUTLIER: Final = "outlier"
_HEIGHT: Final = 330
# Where bands are lower, their names overlap.
_BAND_HEIGHT: Final = 14


def heat_map(bands: Sequence[str], colors: Palette) -> Row:
    """Draw turns by time and band of latency: cells (`from`, `to`, `band`, `n`), and single turns as points (`at`,
    `band`, `value`). A click on a cell or a point is reported."""
    time = time_axis(7)
    names = alt.Axis(labelLimit=150, titlePadding=TITLE_PADDING + spacing_room(bands))
    y = alt.Y("band:N", sort=None, scale=alt.Scale(domain=list(bands)), title="voice to voice", axis=names)
    scale = alt.Scale(type="sqrt", range=[colors.behind, colors.p95, colors.p99], zero=True)
    gradient: dict[str, Any] = {"gradientLength": 140, "gradientThickness": 8}
    legend = alt.Legend(orient="top", direction="horizontal", format=",d", tickMinStep=1, **gradient)
    diamond: dict[str, Any] = {
        "shape": "diamond",
        "size": 60,
        "filled": True,
        "strokeWidth": 1,
        "opacity": 1,
        "cursor": "pointer",
    }
    cells = (
        having("n")
        .mark_rect(stroke=colors.paper, strokeWidth=0.5, cursor="pointer")
        .encode(
            x=alt.X("from:T", title=None, axis=time),
            x2="to:T",
            y=y,
            color=alt.Color("n:Q", title="turns", scale=scale, legend=legend),
            tooltip=tips(f"from:T|from|{MOMENT}", "band|voice to voice", "n:Q|turns|,"),
        )
        .add_params(alt.selection_point(name=CELL, fields=["since", "number"], on="click", clear=False))
    )
    points = (
        having("at")
        .mark_point(color=colors.ink, stroke=colors.paper, **diamond)
        .encode(
            x=alt.X("at:T", title=None, axis=time),
            y=y,
            tooltip=tips(f"at:T|began|{MOMENT}", "value|one of the slowest turns"),
        )
        .add_params(alt.selection_point(name=OUTLIER, fields=["trace", "turn"], on="click", clear=False))
    )
    return finished([cells, points], colors, _heat_height(bands))


def distribution(bands: Sequence[str], colors: Palette) -> Row:
    """Draw how many turns each band has (`band`, `n`, `share`)."""
    bars = ROWS.mark_bar(color=colors.p95).encode(
        x=alt.X("n:Q", title="turns", axis=alt.Axis(tickCount=4, format="~s", tickMinStep=1)),
        y=alt.Y("band:N", sort=None, scale=alt.Scale(domain=list(bands)), title=None, axis=alt.Axis(labelLimit=150)),
        tooltip=tips("band|voice to voice", "n:Q|turns|,", "share|of those shown"),
    )
    return finished([bars], colors, _heat_height(bands), left=spacing_room(bands))


def _heat_height(bands: Sequence[str]) -> int:
    return max(_HEIGHT, _BAND_HEIGHT * len(bands))
