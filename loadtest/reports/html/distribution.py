"""How voice-to-voice is distributed over the turns of a run, as a picture. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.reports.html.svg import LinearScale, Size, line, picture, rect, text, ticks
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_MS, in_milliseconds
from telemetry.store.answers import MetricStats

_MOST_BINS: Final = 48
_FEWEST_BINS: Final = 8
# Widths that people can read off an axis, in ms.
_WIDTHS_MS: Final = tuple(base * 10**power for power in range(7) for base in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class LatencyBins:
    """Turns by their voice-to-voice: `counts` of bins of one width from `low_ns` on."""

    low_ns: float
    width_ns: float
    counts: tuple[int, ...]

    def bounds_ns(self, index: int) -> tuple[float, float]:
        """From where to where a bin reaches."""
        begin = self.low_ns + index * self.width_ns
        return begin, begin + self.width_ns


def histogram(values_ns: Sequence[float]) -> LatencyBins | None:
    """Bins of a round width, more of them for more values; None without a value."""
    if not values_ns:
        return None
    low, high = min(values_ns), max(values_ns)
    wanted = max(_FEWEST_BINS, min(_MOST_BINS, round(2 * math.sqrt(len(values_ns)))))
    span_ms = max(in_milliseconds(high - low), 1.0)
    width = next((each for each in _WIDTHS_MS if span_ms / each <= wanted), _WIDTHS_MS[-1]) * NS_PER_MS
    begin = math.floor(low / width) * width
    counts = [0] * (int((high - begin) // width) + 1)
    for value in values_ns:
        counts[int((value - begin) // width)] += 1
    return LatencyBins(begin, width, tuple(counts))


def draw(shown: LatencyBins, stats: MetricStats, threshold_ns: float | None, size: Size) -> str:
    """The picture: turns upwards, milliseconds to the right, the percentiles and the objective marked."""
    left, right, top, height = 40.0, size.width - 10.0, 40.0, 170.0
    end = shown.bounds_ns(len(shown.counts) - 1)[1]
    reach = end if threshold_ns is None else max(end, threshold_ns * 1.02)
    x = LinearScale(min(0.0, shown.low_ns), reach, left, right)
    y = LinearScale(0.0, float(max(shown.counts)), top + height, top)
    parts: list[str] = []
    for value in ticks(0.0, y.high, 4):
        if value == int(value):
            parts.append(line((left, y(value)), (right, y(value)), "grid"))
            parts.append(text((left - 5, y(value) + 4), formatting.number(value), "label soft", "end"))
    parts += [
        text((x(value * NS_PER_MS), top + height + 16), formatting.number(value), "label soft", "middle")
        for value in ticks(in_milliseconds(x.low), in_milliseconds(x.high), 4 if size.is_narrow else 9)
    ]
    for index, count in enumerate(shown.counts):
        if count:
            low, high = shown.bounds_ns(index)
            bounds = f"{formatting.milliseconds(low, unit=False)} to {formatting.milliseconds(high)}"
            title = f"{bounds}: {formatting.turns(count)}"
            css = "bin" if threshold_ns is None or low < threshold_ns else "bin beyond"
            parts.append(rect((x(low), y(count)), x(high) - x(low) - 1, y(0.0) - y(count), css, title))
    parts.append(line((left, y(0.0)), (right, y(0.0)), "axis"))
    parts += _marks(x, top, top + height, stats, threshold_ns)
    parts.append(text((left - 5, top - 8), "turns", "label soft", "end"))
    parts.append(text((right, top + height + 32), "ms", "label soft", "end"))
    return picture(size, top + height + 38, parts, "Distribution of voice to voice; the table has its figures")


def _marks(x: LinearScale, top: float, bottom: float, stats: MetricStats, threshold_ns: float | None) -> list[str]:
    parts: list[str] = []
    taken: list[tuple[float, float]] = []
    marks = [(name, getattr(stats, name), f"mark name-{name}") for name in ("p50", "p95", "p99")]
    marks += [("objective", threshold_ns, "threshold-label")]
    for name, value, css in marks:
        if value is None:
            continue
        at = x(value)
        line_css = "threshold" if name == "objective" else f"curve {name}"
        row = 0
        while any(abs(at - other) < 52 and row == height for other, height in taken):
            row += 1
        taken.append((at, row))
        anchor = "end" if at > x.end - 40 else "start" if at < x.begin + 20 else "middle"
        parts.append(line((at, top - 4), (at, bottom), line_css))
        parts.append(text((at, top - 8 - 13 * row), name, f"label halo {css}", anchor))
    return parts
