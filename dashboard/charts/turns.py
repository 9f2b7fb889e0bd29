"""Pictures of turns: a heat map of latency over time, the distribution, and one turn on one clock.

Every turn is in a cell of the heat map, and the slowest ones are drawn as points: an outlier is never averaged away.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import altair as alt

from dashboard.charts.drawing import (
    MOMENT,
    ROWS,
    STAGE_NAMES,
    TITLE_PADDING,
    ChartTable,
    Palette,
    Picture,
    Row,
    finished,
    having,
    spacing_room,
    table_of,
    time_axis,
    tips,
)
from dashboard.descriptions import Clock, time_of_day
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_S, in_milliseconds, milliseconds, signed_milliseconds
from telemetry.model.waterfall import BAR_LABELS, SIDE_LABELS, Bar, Mark, Waterfall
from telemetry.store.questions.turns import EDGES_MS, HeatCell, TurnsAnswer, band_limits_ms

CELL: Final = "cell"
OUTLIER: Final = "outlier"
_HEIGHT: Final = 330
# Where bands are lower, their names overlap.
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


def _heat_height(bands: Sequence[int]) -> int:
    return max(_HEIGHT, _BAND_HEIGHT * len(bands))


def heat_map(
    answer: TurnsAnswer, colors: Palette, clock: Clock = time_of_day, link: Callable[[HeatCell], str] = lambda _: ""
) -> Picture:
    """Draw the turns by time and latency; a click on a cell or a point is reported, and `link` leads to a cell's."""
    nothing = dict.fromkeys(("from", "to", "n", "since", "trace", "turn", "at", "value"))
    cells: list[Row] = [
        {
            **nothing,
            "band": band_label(cell.band),
            "number": cell.band,
            "from": in_milliseconds(cell.start_unix_ns),
            "from_text": clock(cell.start_unix_ns),
            "to": in_milliseconds(cell.start_unix_ns + answer.width_ns),
            "since": cell.start_unix_ns // NS_PER_S,
            "n": cell.n,
            "n_text": f"{cell.n:,}",
        }
        for cell in answer.cells
    ]
    points: list[Row] = [
        {
            **nothing,
            "band": band_label(band := sum(in_milliseconds(turn.value_ns) >= edge for edge in EDGES_MS)),
            "number": band,
            "at": in_milliseconds(turn.started_unix_ns),
            "trace": turn.trace_id,
            "turn": turn.turn_index,
            "value": milliseconds(turn.value_ns),
        }
        for turn in answer.outliers
        if turn.value_ns is not None
    ]
    columns = {"from": "from_text", "voice to voice": "band", "turns": "n_text"}
    return Picture(
        [*cells, *points],
        heat_spec(colors, shown_bands(answer)),
        "Turns by the time when they began and by voice to voice; the slowest ones as points",
        table_of("turns by time and latency", cells, columns, [link(cell) for cell in answer.cells]),
    )


def heat_spec(colors: Palette, bands: Sequence[int]) -> Row:
    """The specification of `heat_map`."""
    order, time = [band_label(band) for band in bands], time_axis(7)
    names = alt.Axis(labelLimit=150, titlePadding=TITLE_PADDING + spacing_room(order))
    y = alt.Y("band:N", sort=None, scale=alt.Scale(domain=order), title="voice to voice", axis=names)
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


def distribution(answer: TurnsAnswer, colors: Palette, link: Callable[[int], str] = lambda _: "") -> Picture:
    """Draw how many turns each band has."""
    bands, total = shown_bands(answer), max(1, sum(answer.distribution))
    rows: list[Row] = [
        {
            "band": band_label(band),
            "n": answer.distribution[band],
            "n_text": f"{answer.distribution[band]:,}",
            "share": formatting.share(answer.distribution[band], total),
        }
        for band in bands
    ]
    columns = {"voice to voice": "band", "turns": "n_text", "share": "share"}
    return Picture(
        rows,
        distribution_spec(colors, bands),
        "How many turns each band of voice to voice has",
        table_of("turns by latency", rows, columns, [*map(link, bands)]),
    )


def distribution_spec(colors: Palette, bands: Sequence[int]) -> Row:
    """The specification of `distribution`."""
    order = [band_label(band) for band in bands]
    bars = ROWS.mark_bar(color=colors.p95).encode(
        x=alt.X("n:Q", title="turns", axis=alt.Axis(tickCount=4, format="~s", tickMinStep=1)),
        y=alt.Y("band:N", sort=None, scale=alt.Scale(domain=order), title=None, axis=alt.Axis(labelLimit=150)),
        tooltip=tips("band|voice to voice", "n:Q|turns|,", "share|of those shown"),
    )
    return finished([bars], colors, _heat_height(bands), left=spacing_room(order))


EVENTS: Final = "events"
_LINE_HEIGHT: Final = 38
_LABEL_SIZE: Final = 12
_LONGEST_LENGTH: Final = "10,000 ms"  # as it is in the bar of a reply, which begins near the right edge
# Speech and reply last seconds, the stages between them a tenth of that: the view is about the wait.
_BEFORE: Final = 0.22
_AFTER: Final = 0.30
_LONG: Final = ("speech", "playing")


def view_ms(picture: Waterfall) -> tuple[float, float]:
    """From and to where the chart reaches, in ms: the whole wait, with some of the speech and the reply around it."""
    replies = [in_milliseconds(bar.start_ns) for bar in picture.bars if bar.name == "playing"]
    ends = [in_milliseconds(bar.end_ns) for bar in picture.bars if bar.name not in _LONG]
    wait = max(*ends, *replies, 200.0)
    return min(0.0, *replies) - wait * _BEFORE, wait * (1 + _AFTER)


def turn_waterfall(picture: Waterfall, colors: Palette) -> Picture:
    """Draw a turn on one clock: a line per stage with the caller's bar above the service's, the moments on a line of
    their own, and the end of the speech as zero."""
    return Picture(
        waterfall_rows(picture),
        waterfall_spec(colors, view_ms(picture), picture.origin_label),
        "Waterfall of the turn: what the caller heard above what the service reported, on one clock",
        waterfall_table(picture),
    )


def waterfall_rows(picture: Waterfall) -> list[Row]:
    """A row per bar (`from` and `to` in ms, cut to the view, with its whole length in words) and one per moment."""
    low, high = view_ms(picture)
    bars = [_bar(bar, low, high) for bar in picture.bars if bar.length_ns > 0]
    moments = [_moment(mark) for mark in picture.marks]
    return [
        *(bar for bar in bars if bar["to"] >= low and bar["from"] <= high),
        *(moment for moment in moments if low <= moment["from"] <= high),
    ]


def _bar(bar: Bar, low: float, high: float) -> Row:
    length, inside = milliseconds(bar.length_ns), bar.name in _LONG
    return {
        "line": BAR_LABELS[bar.name],
        "stage": bar.name,
        "side": SIDE_LABELS[bar.source],
        "from": max(in_milliseconds(bar.start_ns), low),
        "to": min(in_milliseconds(bar.end_ns), high),
        "begins": signed_milliseconds(bar.start_ns),
        "ends": signed_milliseconds(bar.end_ns),
        "inside": length if inside else None,
        "beside": None if inside else length,
        "event": None,
    }


def _moment(mark: Mark) -> Row:
    shown, nothing = signed_milliseconds(mark.at_ns), dict.fromkeys(("stage", "to", "inside", "beside"))
    event = {"line": EVENTS, "side": SIDE_LABELS[mark.source], "event": mark.name.replace("_", " ")}
    return {**nothing, **event, "from": in_milliseconds(mark.at_ns), "begins": shown, "ends": shown}


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
    """The specification of `turn_waterfall`."""
    order, sides = [*BAR_LABELS.values(), EVENTS], list(SIDE_LABELS.values())
    names = alt.Axis(labelFontSize=_LABEL_SIZE)
    y = alt.Y("line:N", scale=alt.Scale(domain=order, paddingInner=0.22), title=None, axis=names)
    on: dict[str, Any] = {"y": y, "yOffset": alt.YOffset("side:N", scale=alt.Scale(domain=sides, paddingInner=0.08))}
    scale = alt.Scale(domain=list(view), nice=False, zero=False)
    x = alt.X("from:Q", title=f"ms from {origin}", scale=scale, axis=alt.Axis(tickCount=10, format=",.0f"))
    shade = alt.Opacity("side:N", scale=alt.Scale(domain=sides, range=[1.0, 0.5]), legend=None)
    painted = {"speech": colors.speech, **dict(zip(STAGE_NAMES, colors.stages, strict=True)), "playing": colors.playing}
    color = alt.Color("stage:N", scale=alt.Scale(domain=list(painted), range=list(painted.values())), legend=None)
    of_bar = tips("line", "side", "begins|from", "ends|to")
    text: dict[str, Any] = {"align": "left", "fontSize": 11}
    layers = [
        having("to").mark_bar(cornerRadius=2).encode(x=x, x2="to:Q", color=color, opacity=shade, tooltip=of_bar, **on),
        having("beside").mark_text(dx=5, color=colors.ink, **text).encode(x="to:Q", text="beside:N", **on),
        having("inside").mark_text(dx=6, color=colors.paper, **text).encode(x="from:Q", text="inside:N", **on),
        having("event")
        .mark_tick(thickness=2, color=colors.ink)
        .encode(x=x, opacity=shade, tooltip=tips("event", "side", "begins|from"), **on),
        ROWS.mark_rule(color=colors.ink, strokeDash=[2, 3]).encode(x=alt.XDatum(0)),
    ]
    left, right = spacing_room(order, _LABEL_SIZE), spacing_room([_LONGEST_LENGTH])
    return finished(layers, colors, _LINE_HEIGHT * len(order), left=left, right=right)
