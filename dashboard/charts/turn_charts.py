"""The heat map of latency over time and the distribution beside it, as Vega-Lite specifications and rows; pure.

Every turn is in a cell, and the slowest ones are drawn as points: an outlier is never averaged away.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import altair as alt

from dashboard.charts.style import (
    MOMENT,
    STAGE_NAMES,
    TITLE_PADDING,
    ChartTable,
    Palette,
    Row,
    finished,
    spacing_room,
    time_axis,
)
from dashboard.descriptions import Clock, time_of_day
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_S, in_milliseconds, milliseconds, signed_milliseconds
from telemetry.model.waterfall import BAR_LABELS, SIDE_LABELS, Bar, Mark, Waterfall
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
    return f"from {_band_edge(low)}" if high is None else f"{_band_edge(low)} to {_band_edge(high)}"


def _band_edge(ms: int) -> str:
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


def _heat_height(bands: Sequence[int]) -> int:
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
    return finished(alt.layer(cells, points).properties(height=_heat_height(bands)), colors)


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
    return finished(alt.layer(chart).properties(height=_heat_height(bands)), colors, left=spacing_room(order))


def distribution_table(answer: TurnsAnswer, link: Callable[[int], str] = lambda _band: "") -> ChartTable:
    """The bands as text, each with the link to its turns."""
    rows: list[tuple[Any, ...]] = [(row["band"], f"{row['n']:,}", row["share"]) for row in distribution_rows(answer)]
    return ChartTable("turns by latency", ("voice to voice", "turns", "share"), rows, [*map(link, shown_bands(answer))])


EVENTS: Final = "events"
_LINE_HEIGHT: Final = 38
_LABEL_SIZE: Final = 12
_LONGEST_LENGTH: Final = "10,000 ms"  # as it stands in the bar of a reply, which begins near the right edge
# Speech and reply last seconds, the stages between them a tenth of that: the view is about the wait.
_BEFORE: Final = 0.22
_AFTER: Final = 0.30
_LONG: Final = ("speech", "playing")


def view_ms(picture: Waterfall) -> tuple[float, float]:
    """From and to where the chart reaches, in ms: the whole wait, with some of the speech and the reply around it."""
    ends = [bar.end_ns for bar in picture.bars if bar.name not in _LONG]
    ends += [bar.start_ns for bar in picture.bars if bar.name == "playing"]
    wait = max(in_milliseconds(max(ends, default=0)), 200.0)
    talk_over = min((in_milliseconds(bar.start_ns) for bar in picture.bars if bar.name == "playing"), default=0.0)
    return min(0.0, talk_over) - wait * _BEFORE, wait * (1 + _AFTER)


def waterfall_rows(picture: Waterfall) -> list[Row]:
    """A row per bar (`from` and `to` in ms, cut to the view, with its whole length in words) and one per moment."""
    low, high = view_ms(picture)
    bars = [_bar(bar, low, high) for bar in picture.bars if bar.length_ns > 0]
    return [
        *(bar for bar in bars if bar is not None),
        *(_moment(mark) for mark in picture.marks if _seen(mark, low, high)),
    ]


def _bar(bar: Bar, low: float, high: float) -> Row | None:
    start, end = max(in_milliseconds(bar.start_ns), low), min(in_milliseconds(bar.end_ns), high)
    if end < low or start > high:
        return None
    inside = bar.name in _LONG
    return {
        "line": BAR_LABELS[bar.name],
        "stage": bar.name,
        "side": SIDE_LABELS[bar.source],
        "from": start,
        "to": end,
        "begins": signed_milliseconds(bar.start_ns),
        "ends": signed_milliseconds(bar.end_ns),
        "inside": milliseconds(bar.length_ns) if inside else None,
        "beside": None if inside else milliseconds(bar.length_ns),
        "event": None,
    }


def _seen(mark: Mark, low: float, high: float) -> bool:
    return low <= in_milliseconds(mark.at_ns) <= high


def _moment(mark: Mark) -> Row:
    at, shown = in_milliseconds(mark.at_ns), signed_milliseconds(mark.at_ns)
    nothing = dict.fromkeys(("stage", "to", "inside", "beside"))
    return {
        "line": EVENTS,
        "side": SIDE_LABELS[mark.source],
        "from": at,
        "begins": shown,
        "ends": shown,
        "event": mark.name.replace("_", " "),
        **nothing,
    }


def waterfall_table(picture: Waterfall) -> ChartTable:
    """The figures of the waterfall: its bars, then its moments."""
    bars = [
        (BAR_LABELS[bar.name], SIDE_LABELS[bar.source], signed_milliseconds(bar.start_ns), milliseconds(bar.length_ns))
        for bar in picture.bars
    ]
    marks = [
        (mark.name.replace("_", " "), SIDE_LABELS[mark.source], signed_milliseconds(mark.at_ns), "")
        for mark in picture.marks
    ]
    return ChartTable("the stages and moments of the turn", ("what", "side", "from", "length"), [*bars, *marks])


def waterfall_spec(colors: Palette, view: tuple[float, float], origin: str) -> Row:
    """A turn on one clock: a line per stage with the caller's bar above the service's, the moments on a line of their
    own, and the end of the speech as zero."""
    base = alt.Chart(alt.NamedData("rows"))
    order = [*BAR_LABELS.values(), EVENTS]
    sides = list(SIDE_LABELS.values())
    lines, names = alt.Scale(domain=order, paddingInner=0.22), alt.Axis(labelFontSize=_LABEL_SIZE)
    y = alt.Y("line:N", scale=lines, title=None, axis=names)
    offset = alt.YOffset("side:N", scale=alt.Scale(domain=sides, paddingInner=0.08))
    scale = alt.Scale(domain=list(view), nice=False, zero=False)
    x = alt.X("from:Q", title=f"ms from {origin}", scale=scale, axis=alt.Axis(tickCount=10, format=",.0f"))
    shade = alt.Opacity("side:N", scale=alt.Scale(domain=sides, range=[1.0, 0.5]), legend=None)
    stages = ["speech", *STAGE_NAMES, "playing"]
    painted = alt.Scale(domain=stages, range=[colors.speech, *colors.stages, colors.playing])
    shared: list[Any] = [alt.Tooltip("side:N"), alt.Tooltip("begins:N", title="from")]
    bars = base.transform_filter("datum.to !== null").mark_bar(cornerRadius=2)
    moments = base.transform_filter("datum.event !== null").mark_tick(thickness=2, color=colors.ink)
    layers: list[Any] = [
        bars.encode(
            x=x,
            x2="to:Q",
            y=y,
            yOffset=offset,
            color=alt.Color("stage:N", scale=painted, legend=None),
            opacity=shade,
            tooltip=[alt.Tooltip("line:N"), *shared, alt.Tooltip("ends:N", title="to")],
        ),
        _texts(base, "beside", "to", colors.ink, 5).encode(y=y, yOffset=offset),
        _texts(base, "inside", "from", colors.paper, 6).encode(y=y, yOffset=offset),
        moments.encode(x=x, y=y, yOffset=offset, opacity=shade, tooltip=[alt.Tooltip("event:N"), *shared]),
        base.mark_rule(color=colors.ink, strokeDash=[2, 3]).encode(x=alt.XDatum(0)),
    ]
    left, right = spacing_room(order, _LABEL_SIZE), spacing_room([_LONGEST_LENGTH])
    return finished(alt.layer(*layers).properties(height=_LINE_HEIGHT * len(order)), colors, left=left, right=right)


def _texts(base: alt.Chart, field: str, at: str, color: str, away: int) -> alt.Chart:
    texts = base.transform_filter(f"datum.{field} !== null")
    return texts.mark_text(align="left", dx=away, fontSize=11, color=color).encode(x=f"{at}:Q", text=f"{field}:N")
