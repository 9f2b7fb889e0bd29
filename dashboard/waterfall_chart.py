"""The waterfall of a turn as a Vega-Lite specification and the rows that fill it; pure."""

from typing import Any, Final

import altair as alt

from dashboard.accessible_chart import ChartTable
from dashboard.charts import Row, finished, spacing_room
from dashboard.palette import STAGE_NAMES, Palette
from telemetry.model.formatting import in_milliseconds, milliseconds, signed_milliseconds
from telemetry.model.waterfall import Bar, Mark, Waterfall

BAR_LABELS: Final[dict[str, str]] = {
    "speech": "caller speaks",
    "endpointing": "endpointing",
    "asr": "ASR",
    "llm": "LLM first token",
    "tts": "TTS first chunk",
    "unexplained": "unexplained",
    "leading_silence": "leading silence",
    "playing": "reply plays",
}
EVENTS: Final = "events"
SIDES: Final = {"client": "heard by the caller", "service": "reported by the service"}
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
        "side": SIDES[bar.source],
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
        "side": SIDES[mark.source],
        "from": at,
        "begins": shown,
        "ends": shown,
        "event": mark.name.replace("_", " "),
        **nothing,
    }


def waterfall_table(picture: Waterfall) -> ChartTable:
    """The figures of the waterfall: its bars, then its moments."""
    bars = [
        (BAR_LABELS[bar.name], SIDES[bar.source], signed_milliseconds(bar.start_ns), milliseconds(bar.length_ns))
        for bar in picture.bars
    ]
    marks = [
        (mark.name.replace("_", " "), SIDES[mark.source], signed_milliseconds(mark.at_ns), "") for mark in picture.marks
    ]
    return ChartTable("the stages and moments of the turn", ("what", "side", "from", "length"), [*bars, *marks])


def waterfall_spec(colors: Palette, view: tuple[float, float], origin: str) -> Row:
    """A turn on one clock: a line per stage with the caller's bar above the service's, the moments on a line of their
    own, and the end of the speech as zero."""
    base = alt.Chart(alt.NamedData("rows"))
    order = [*BAR_LABELS.values(), EVENTS]
    sides = list(SIDES.values())
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
