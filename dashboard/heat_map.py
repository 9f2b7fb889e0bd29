"""The heat map of latency over time and the distribution beside it, as Vega-Lite specifications and rows; pure.

Every turn is in a cell, and the slowest ones are drawn as points: an outlier is never averaged away.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import altair as alt

from dashboard.accessible_chart import ChartTable
from dashboard.charts import MOMENT, TITLE_PADDING, Row, finished, spacing_room, time_axis
from dashboard.descriptions import Clock, time_of_day
from dashboard.palette import Palette
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_S, in_milliseconds, milliseconds
from telemetry.store.questions.turns import EDGES_MS, HeatCell, ListedTurn, TurnsAnswer, band_limits_ms

CELL: Final = "cell"
OUTLIER: Final = "outlier"
_HEIGHT: Final = 330
# Where bands are lower, their names stand on each other.
_BAND_HEIGHT: Final = 14


def band_label(band: int) -> str:
    """A band in words: `500 ms to 600 ms`."""
    low, high = band_limits_ms(band)
    if low is None:
        return "before the end of speech"
    return f"from {_length(low)}" if high is None else f"{_length(low)} to {_length(high)}"


def _length(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:g} s"


def shown_bands(answer: TurnsAnswer) -> list[int]:
    """The bands from the least to the greatest that hold a turn, the greatest first."""
    known = [band for band, n in enumerate(answer.distribution) if n]
    return [] if not known else list(range(known[-1], known[0] - 1, -1))


def heat_rows(answer: TurnsAnswer) -> list[Row]:
    """A row for each cell and one for each of the slowest turns."""
    nothing = dict.fromkeys(("from", "to", "n", "since", "trace", "turn", "at", "value"))
    cells = [
        {
            **nothing,
            "band": band_label(cell.band),
            "number": cell.band,
            "from": in_milliseconds(cell.start_unix_ns),
            "to": in_milliseconds(cell.start_unix_ns + answer.width_ns),
            "since": cell.start_unix_ns // NS_PER_S,
            "n": cell.n,
        }
        for cell in answer.cells
    ]
    return [*cells, *({**nothing, **_outlier(turn)} for turn in answer.outliers if turn.value_ns is not None)]


def _outlier(turn: ListedTurn) -> Row:
    value_ms = in_milliseconds(turn.value_ns or 0)
    band = sum(value_ms >= edge for edge in EDGES_MS)
    return {
        "band": band_label(band),
        "number": band,
        "at": in_milliseconds(turn.started_unix_ns),
        "trace": turn.trace_id,
        "turn": turn.turn_index,
        "value": milliseconds(turn.value_ns),
    }


def _height(bands: Sequence[int]) -> int:
    return max(_HEIGHT, _BAND_HEIGHT * len(bands))


def heat_spec(colors: Palette, bands: Sequence[int]) -> Row:
    """The picture of cells and points; a click on either is reported."""
    base = alt.Chart(alt.NamedData("rows"))
    order = [band_label(band) for band in bands]
    names = alt.Axis(labelLimit=150, titlePadding=TITLE_PADDING + spacing_room(order))
    y = alt.Y("band:N", sort=None, scale=alt.Scale(domain=order), title="voice to voice", axis=names)
    time = time_axis(7)
    cells = (
        base.transform_filter("datum.n !== null")
        .mark_rect(stroke=colors.paper, strokeWidth=0.5, cursor="pointer")
        .encode(
            x=alt.X("from:T", title=None, axis=time),
            x2="to:T",
            y=y,
            color=alt.Color(
                "n:Q",
                title="turns",
                scale=alt.Scale(type="sqrt", range=[colors.behind, colors.p95, colors.p99], zero=True),
                legend=alt.Legend(
                    orient="top",
                    direction="horizontal",
                    gradientLength=140,
                    gradientThickness=8,
                    format=",d",
                    tickMinStep=1,
                ),
            ),
            tooltip=[
                alt.Tooltip("from:T", format=MOMENT, title="from"),
                alt.Tooltip("band:N", title="voice to voice"),
                alt.Tooltip("n:Q", title="turns", format=","),
            ],
        )
        .add_params(alt.selection_point(name=CELL, fields=["since", "number"], on="click", clear=False))
    )
    points = (
        base.transform_filter("datum.at !== null")
        .mark_point(
            shape="diamond",
            size=60,
            filled=True,
            color=colors.ink,
            stroke=colors.paper,
            strokeWidth=1,
            opacity=1,
            cursor="pointer",
        )
        .encode(
            x=alt.X("at:T", title=None, axis=time),
            y=y,
            tooltip=[
                alt.Tooltip("at:T", format=MOMENT, title="began"),
                alt.Tooltip("value:N", title="one of the slowest turns"),
            ],
        )
        .add_params(alt.selection_point(name=OUTLIER, fields=["trace", "turn"], on="click", clear=False))
    )
    return finished(alt.layer(cells, points).properties(height=_height(bands)), colors)


def heat_table(
    answer: TurnsAnswer, clock: Clock = time_of_day, link: Callable[[HeatCell], str] = lambda _cell: ""
) -> ChartTable:
    """The cells as text, each with the link to its turns."""
    rows = [(clock(cell.start_unix_ns), band_label(cell.band), f"{cell.n:,}") for cell in answer.cells]
    links = [link(cell) for cell in answer.cells]
    return ChartTable("turns by time and latency", ("from", "voice to voice", "turns"), rows, links)


def distribution_rows(answer: TurnsAnswer) -> list[Row]:
    """A row for each band, and its share in words."""
    total = max(1, sum(answer.distribution))
    return [
        {
            "band": band_label(band),
            "n": answer.distribution[band],
            "share": formatting.share(answer.distribution[band], total),
        }
        for band in shown_bands(answer)
    ]


def distribution_spec(colors: Palette, bands: Sequence[int]) -> Row:
    """How many turns each band has."""
    base = alt.Chart(alt.NamedData("rows"))
    order = [band_label(band) for band in bands]
    chart = base.mark_bar(color=colors.p95).encode(
        x=alt.X("n:Q", title="turns", axis=alt.Axis(tickCount=4, format="~s", tickMinStep=1)),
        y=alt.Y("band:N", sort=None, scale=alt.Scale(domain=order), title=None, axis=alt.Axis(labelLimit=150)),
        tooltip=[
            alt.Tooltip("band:N", title="voice to voice"),
            alt.Tooltip("n:Q", title="turns", format=","),
            alt.Tooltip("share:N", title="of those shown"),
        ],
    )
    return finished(alt.layer(chart).properties(height=_height(bands)), colors, left=spacing_room(order))


def distribution_table(answer: TurnsAnswer, link: Callable[[int], str] = lambda _band: "") -> ChartTable:
    """The bands as text, each with the link to its turns."""
    rows: list[tuple[Any, ...]] = [(row["band"], f"{row['n']:,}", row["share"]) for row in distribution_rows(answer)]
    return ChartTable("turns by latency", ("voice to voice", "turns", "share"), rows, [*map(link, shown_bands(answer))])
