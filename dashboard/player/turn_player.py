"""A turn on one clock: its waterfall below both channels of its audio, with one playhead; a component without network.

The script inserts all text as text nodes, so that an external name cannot become markup.
"""

import base64
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import streamlit as st
from streamlit.components.v2 import component
from streamlit.components.v2.types import ComponentRenderer

from dashboard.charts import colors
from telemetry.charts.drawing import STAGE_NAMES, ChartTable, Row
from telemetry.model.formatting import DASH, in_milliseconds, milliseconds, signed_milliseconds
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.model.turns import Turn
from telemetry.model.waterfall import BAR_LABELS, SIDE_LABELS, Waterfall
from telemetry.store.questions.turns import TurnOfCall
from telemetry.store.recordings.excerpt import MEDIA_TYPE, CallExcerpt

NAME: Final = "voiceprobe_turn_player"
CHANNELS: Final = ("caller sent", "caller heard")
EVENTS: Final = "events"
_ROOM_MS: Final = 50.0  # on either side of the picture
# Speech and reply last seconds, the stages between them a tenth of that: this much of them is around the wait.
_BEFORE: Final = 0.22
_AFTER: Final = 0.30
_LONG: Final = ("speech", "playing")


@st.cache_resource
def _renderer() -> ComponentRenderer:
    folder = files("dashboard") / "player"
    html, css, script = ((folder / f"player.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    return component(NAME, html=html, css=css, js=script)


def turn_player(picture: Waterfall, excerpt: CallExcerpt | None, zero_perf_ns: int, *, key: str) -> None:
    """Draw the turn, with its audio where that was kept. `zero_perf_ns` is the moment of the waterfall's 0."""
    _renderer()(key=f"player-{key}", data=turn_data(picture, excerpt, zero_perf_ns, key=key))


def call_player(call: Sequence[TurnOfCall], excerpt: CallExcerpt, turn: Turn, *, key: str) -> None:
    """Draw the whole call of a turn with its audio; its 0 is the beginning of the audio."""
    _renderer()(key=f"player-{key}", data=call_data(call, excerpt, turn, key=key))


def turn_data(picture: Waterfall, excerpt: CallExcerpt | None, zero_perf_ns: int, *, key: str) -> Row:
    """The data of a turn for the script: times in ms from the waterfall's 0."""
    periods = [(in_milliseconds(bar.start_ns), in_milliseconds(bar.end_ns)) for bar in picture.bars]
    return {
        **_shared(excerpt, zero_perf_ns, key, periods),
        "alt": "Waterfall of the turn: what the caller heard above what the service reported, on one clock",
        "origin": picture.origin_label,
        "zooms": ["Whole turn", "The wait"],
        "lines": _lines(picture),
        "view": list(view_ms(picture)),
    }


def call_data(call: Sequence[TurnOfCall], excerpt: CallExcerpt, turn: Turn, *, key: str) -> Row:
    """The data of a call for the script: times in ms from the beginning of its audio."""
    this = next((other for other in call if other.turn_index == turn.turn_index), None)
    # The call's clock and the audio's are one; a turn of both says how far apart their zeros are.
    begun = turn.speech_start_perf_ns or turn.started_perf_ns
    zero = begun - (this.start_ns if this is not None else 0)
    kinds = (("caller speaks", "speech_ns", colors().speech), ("reply plays", "reply_ns", colors().playing))
    lines: list[Row] = []
    for name, field, color in kinds:
        periods = ((f"turn {other.turn_index + 1}, {name}: ", getattr(other, field)) for other in call)
        bars = [
            _bar(period, color, title=f"{title}{milliseconds(period[1] - period[0])}")
            for title, period in periods
            if period
        ]
        lines.append({"name": name, "bars": bars, "marks": []})
    periods = [(in_milliseconds(period.start_ns), in_milliseconds(period.end_ns)) for period in call]
    around = (in_milliseconds(this.start_ns), in_milliseconds(this.end_ns)) if this is not None else periods[0]
    return {
        **_shared(excerpt, zero, key, periods),
        "alt": "Waveforms of both channels of the whole call, with its turns below, on one clock",
        "origin": "the beginning of the call",
        "zooms": ["Whole call", "This turn"],
        "lines": lines,
        "view": [around[0] - _ROOM_MS, around[1] + _ROOM_MS],
    }


def _bar(period: tuple[int, int], color: str, *, title: str, text: str = "", side: int = 0) -> Row:
    low, high = map(in_milliseconds, period)
    return {"from": low, "to": high, "side": side, "color": color, "text": text, "title": title}


def call_table(call: Sequence[TurnOfCall]) -> ChartTable:
    """The figures of the whole call: when each turn began, and how long speech, wait and reply lasted."""

    def length(period: tuple[int, int] | None) -> str:
        return DASH if period is None else milliseconds(period[1] - period[0])

    rows = [
        (
            f"turn {turn.turn_index + 1}",
            signed_milliseconds(turn.start_ns),
            length(turn.speech_ns),
            OUTCOME_LABELS[turn.outcome] if turn.voice_to_voice_ns is None else milliseconds(turn.voice_to_voice_ns),
            length(turn.reply_ns),
        )
        for turn in call
    ]
    columns = ("turn", "from", "caller speaks", "voice to voice", "reply plays")
    return ChartTable("the turns of the call", columns, rows)


def view_ms(picture: Waterfall) -> tuple[float, float]:
    """The start and the end of the first view in ms: the wait, with some of the speech and the reply around it."""
    replies = [in_milliseconds(bar.start_ns) for bar in picture.bars if bar.name == "playing"]
    ends = [in_milliseconds(bar.end_ns) for bar in picture.bars if bar.name not in _LONG]
    wait = max((*ends, *replies, 200.0))
    return min((0.0, *replies)) - wait * _BEFORE, wait * (1 + _AFTER)


def _shared(excerpt: CallExcerpt | None, zero_perf_ns: int, key: str, periods: Sequence[tuple[float, float]]) -> Row:
    audio = None if excerpt is None else excerpt.audio

    def ms(perf_ns: int) -> float:
        return in_milliseconds(perf_ns - zero_perf_ns)

    # A call without speech has no period to show.
    lows, highs = [low for low, _ in periods] or [0.0], [high for _, high in periods] or [0.0]
    peaks: list[list[float]] = []
    missing: list[list[float | str]] = []
    if excerpt is not None and audio is not None:
        lows, highs = [ms(excerpt.first_perf_ns), *lows], [ms(excerpt.end_perf_ns), *highs]
        peaks = [list(channel) for channel in excerpt.peaks]
        missing = [[ms(since), ms(until), reason] for since, until, reason in excerpt.missing]
    theme, named = colors(), ("ink", "paper", "soft", "line", "speech", "playing")
    return {
        "key": f"{key}-{len(audio or b'')}",
        "audio": None if audio is None else base64.b64encode(audio).decode("ascii"),
        "media_type": MEDIA_TYPE,
        "first_ms": lows[0],
        "end_ms": highs[0],
        "peaks": peaks,
        "channels": list(CHANNELS),
        "missing": missing,
        "whole": [min(lows) - _ROOM_MS, max(highs) + _ROOM_MS],
        "colors": {**{name: getattr(theme, name) for name in named}, "accent": theme.p95},
    }


def _lines(picture: Waterfall) -> list[Row]:
    """A line for each stage with the caller's bar above the service's, and one for the moments."""
    stage_colors = zip(STAGE_NAMES, colors().stages, strict=True)
    painted = {"speech": colors().speech, "playing": colors().playing, **dict(stage_colors)}
    lines: list[Row] = []
    for name, label in BAR_LABELS.items():
        bars: list[Row] = []
        for bar in picture.bars:
            if bar.name == name and bar.length_ns > 0:
                period, side = (bar.start_ns, bar.end_ns), int(bar.source == "service")
                title = f"{label}, {SIDE_LABELS[bar.source]}: {' to '.join(map(signed_milliseconds, period))}"
                bars.append(_bar(period, painted[name], title=title, text=milliseconds(bar.length_ns), side=side))
        lines.append({"name": label, "bars": bars, "marks": []})
    marks = [
        {
            "at": in_milliseconds(mark.at_ns),
            "side": int(mark.source == "service"),
            "title": f"{mark.name.replace('_', ' ')}, {SIDE_LABELS[mark.source]}: {signed_milliseconds(mark.at_ns)}",
        }
        for mark in picture.marks
    ]
    return [*lines, {"name": EVENTS, "bars": [], "marks": marks}]


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
