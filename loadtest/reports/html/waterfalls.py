"""The slowest turns of a run as waterfalls: each on one clock, as heard and as the service reported it. Pure."""

from collections.abc import Sequence
from typing import Final

from loadtest.reports.html.svg import LinearScale, Size, line, picture, rect, text, ticks, width_of
from loadtest.reports.run_report import SlowTurn
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED, turn_figures, turn_measured_within
from telemetry.model.formatting import NS_PER_MS, in_milliseconds
from telemetry.model.metrics import HEADLINE, METRICS, shown_in
from telemetry.model.waterfall import BAR_LABELS, BAR_NAMES, SIDE_LABELS, Bar, Waterfall

# Speech and reply last seconds, the stages between them a tenth of that: the picture is about the wait.
_LONG: Final = ("speech", "playing")
_BEFORE: Final = 0.16
_AFTER: Final = 0.24
_SHORTEST_NS: Final = 200.0 * NS_PER_MS


def view_ns(shown: Waterfall) -> tuple[float, float]:
    """From and to where the picture reaches: the whole wait, with some of the speech before and of the reply after."""
    ends = [bar.end_ns for bar in shown.bars if bar.name not in _LONG]
    begins = [bar.start_ns for bar in shown.bars if bar.name == "playing"]
    wait = max(float(max([*ends, *begins], default=0)), _SHORTEST_NS)
    return min(0.0, *begins, 0.0) - wait * _BEFORE, wait * (1 + _AFTER)


def heading(slow: SlowTurn) -> str:
    """How long the caller waited in this turn, and which stage took most of it."""
    heard, reported = slow.waterfall.client_voice_to_voice_ns, slow.waterfall.service_voice_to_voice_ns
    waited = formatting.milliseconds(reported if heard is None else heard)
    if heard is not None and (within := turn_measured_within(slow.turn, METRICS[HEADLINE])) is not None:
        waited += f" ({within})"
    longest = longest_stage(slow.waterfall)
    if longest is None:
        return waited
    return f"{waited}: {BAR_LABELS[longest.name]} took {formatting.milliseconds(longest.length_ns)}"


def longest_stage(shown: Waterfall) -> Bar | None:
    """The longest part of the wait, as the service reports it where it does; None where no stage is known."""
    stages = [bar for bar in shown.bars if bar.name not in _LONG and bar.length_ns > 0]
    reported = [bar for bar in stages if bar.source == "service" or bar.name in ("unexplained", "leading_silence")]
    has_service = any(bar.source == "service" for bar in stages)
    return max(reported if has_service else stages, key=lambda bar: bar.length_ns, default=None)


def about(slow: SlowTurn) -> list[tuple[str, str]]:
    """What a turn was: a name and a value for each thing that is known of it."""
    turn = slow.turn
    known = [
        ("utterance", turn.utterance_id),
        ("cohort", turn.cohort),
        ("route", turn.route),
        ("model", turn.model),
        ("cache", None if turn.cache_hit is None else "hit" if turn.cache_hit else "miss"),
        ("fallback", turn.fallback),
        ("noise", turn.noise_profile),
        ("call", f"{turn.call_id}, turn {turn.turn_index}"),
        ("trace", turn.trace_id or None),
    ]
    figures = turn_figures(turn, (METRICS[name] for name in shown_in("page") if METRICS[name] in BOUNDED))
    return [*((name, value) for name, value in known if value), *figures]


def rows(shown: Waterfall) -> list[tuple[str, str, str, str, str]]:
    """The bars as cells of a table: stage, side, begin, end, length."""
    return [
        (
            BAR_LABELS[bar.name],
            SIDE_LABELS[bar.source],
            formatting.signed_milliseconds(bar.start_ns),
            formatting.signed_milliseconds(bar.end_ns),
            formatting.milliseconds(bar.length_ns),
        )
        for bar in shown.bars
    ]


def draw(shown: Waterfall, size: Size) -> str:
    """The picture: a line per stage, the caller's bar above the service's; zero is the end of the caller's speech."""
    low, high = view_ns(shown)
    names = [name for name in BAR_NAMES if any(bar.name == name and _seen(bar, low, high) for bar in shown.bars)]
    label_width = 0.0 if size.is_narrow else 118.0
    row_height = 40.0 if size.is_narrow else 26.0
    x = LinearScale(low, high, label_width + 4, size.width - 6.0)
    bottom = len(names) * row_height + 6
    parts: list[str] = []
    for value in ticks(in_milliseconds(low), in_milliseconds(high), 4 if size.is_narrow else 8):
        at = x(value * NS_PER_MS)
        parts.append(line((at, 2), (at, bottom), "grid"))
        parts.append(text((at, bottom + 15), formatting.number(value), "label soft", "middle"))
    parts.append(line((x(0.0), 0.0), (x(0.0), bottom), "zero"))
    for index, name in enumerate(names):
        top = index * row_height + 4
        bars = [bar for bar in shown.bars if bar.name == name and _seen(bar, low, high)]
        if size.is_narrow:
            lengths = " / ".join(formatting.milliseconds(bar.length_ns) for bar in bars)
            parts.append(text((x.begin, top + 12), f"{BAR_LABELS[name]} {lengths}", "label halo"))
        else:
            parts.append(text((label_width - 6, top + 14), BAR_LABELS[name], "label", "end"))
        parts += _bars(bars, x, top + (16 if size.is_narrow else 0), size)
    origin = "ms from the end of the speech" if shown.origin == "speech_end" else "ms from the begin of the turn"
    parts.append(text((x.end, bottom + 29), origin, "label soft", "end"))
    return picture(size, bottom + 34, parts, "One turn on one clock; the table has its figures")


def _bars(bars: Sequence[Bar], x: LinearScale, top: float, size: Size) -> list[str]:
    """The bars of one stage, one below the other where both sides have one."""
    height = 18.0 / max(1, len(bars))
    parts: list[str] = []
    for index, bar in enumerate(bars):
        begin, end = x(max(bar.start_ns, x.low)), x(min(bar.end_ns, x.high))
        css = f"s-{bar.name}{' reported' if bar.source == 'service' else ''}"
        shown = formatting.milliseconds(bar.length_ns)
        at = top + index * height
        title = f"{BAR_LABELS[bar.name]}, {SIDE_LABELS[bar.source]}: {shown}"
        parts.append(rect((begin, at), max(1.5, end - begin), height - 1, css, title))
        # One length beside both bars of a stage would be too crowded: that of the last one.
        if not size.is_narrow and index == len(bars) - 1:
            words = " / ".join(formatting.milliseconds(each.length_ns) for each in bars)
            parts.append(_length(words, begin, end, x, top))
    return parts


def _length(words: str, begin: float, end: float, x: LinearScale, top: float) -> str:
    """A length beside its bar: to the right, or where there is no room inside of the picture, to the left."""
    if end + width_of(words) + 8 <= x.end:
        return text((end + 5, top + 14), words, "label halo")
    if begin - width_of(words) - 8 >= x.begin:
        return text((begin - 5, top + 14), words, "label halo", "end")
    return text((end - 5, top + 14), words, "label halo", "end")


def _seen(bar: Bar, low: float, high: float) -> bool:
    return bar.length_ns > 0 and bar.end_ns >= low and bar.start_ns <= high
