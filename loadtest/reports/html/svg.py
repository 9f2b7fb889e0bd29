"""SVG elements as text, scales and ticks: what the pictures of a report are put together from. Pure.

Colors are classes of the report's style sheet, so that a picture follows light, dark and paper. All text is escaped.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from telemetry.model.foreign_text import one_line

Point = tuple[float, float]
LONGEST_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Maps values from `low` to `high` linearly to the places from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        span = (self.high - self.low) or 1.0
        return self.begin + (value - self.low) / span * (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a picture in its own units, which are CSS pixels where it is shown in full. The narrow one is for
    phones: a wide picture shrunk to their width could not be read."""

    width: int
    is_narrow: bool


WIDE: Final = Size(820, is_narrow=False)
NARROW: Final = Size(350, is_narrow=True)


def text_of(text: str) -> str:
    """Foreign or own text for HTML and SVG: on one line, bounded and escaped."""
    return escape(one_line(text, LONGEST_CHARS))


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round values (1, 2 or 5 times a power of ten apart) between two values, both included."""
    span = high - low
    if span <= 0 or most < 1:
        return []
    power = 10.0 ** math.floor(math.log10(span / most))
    # One value more than steps fit: both ends can be round.
    step = next(power * factor for factor in (1, 2, 5, 10, 20, 50) if math.floor(span / (power * factor)) < most)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def line(begin: Point, end: Point, css: str) -> str:
    """A straight line."""
    return f'<line class="{css}" x1="{_n(begin[0])}" y1="{_n(begin[1])}" x2="{_n(end[0])}" y2="{_n(end[1])}"/>'


def polyline(points: Sequence[Point], css: str) -> str:
    """Straight segments from point to point; a dot for a single one."""
    if len(points) == 1:
        return circle(points[0], 2.5, f"{css} alone")
    return f'<polyline class="{css}" points="{" ".join(f"{_n(x)},{_n(y)}" for x, y in points)}"/>'


def circle(center: Point, radius: float, css: str) -> str:
    """A dot."""
    return f'<circle class="{css}" cx="{_n(center[0])}" cy="{_n(center[1])}" r="{_n(radius)}"/>'


def rect(corner: Point, width: float, height: float, css: str, title: str = "") -> str:
    """A rectangle; `title` is shown by browsers that have a pointer."""
    inside = f"<title>{text_of(title)}</title>" if title else ""
    shape = f'x="{_n(corner[0])}" y="{_n(corner[1])}" width="{_n(max(0.0, width))}" height="{_n(height)}"'
    return f'<rect class="{css}" {shape}>{inside}</rect>' if inside else f'<rect class="{css}" {shape}/>'


def text(at: Point, words: str, css: str = "label", anchor: str = "start") -> str:
    """Words; `anchor` is start, middle or end."""
    place = f'x="{_n(at[0])}" y="{_n(at[1])}"'
    return f'<text class="{css}" {place} text-anchor="{anchor}">{text_of(words)}</text>'


def picture(size: Size, height: float, parts: Iterable[str], label: str) -> str:
    """An SVG element. `label` says to those who cannot see it what it shows."""
    css = "narrow" if size.is_narrow else "wide"
    return (
        f'<svg class="{css}" role="img" aria-label="{text_of(label)}" viewBox="0 0 {size.width} {_n(height)}" '
        f'width="{size.width}" height="{_n(height)}">{"".join(parts)}</svg>'
    )


def width_of(words: str, character: float = 6.6) -> float:
    """About how wide words are in the pictures' type."""
    return len(words) * character


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
