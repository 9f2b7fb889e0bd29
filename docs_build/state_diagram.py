"""Draws a table of states: a column for each state, and an arrow for the inputs that lead from one to another.

The picture is SVG that stands in the page itself: it loads nothing, and takes its colors from the page.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

COLUMN: Final = 150  # between the middles of two columns, in the units of the picture
BOX_WIDTH: Final = 132
BOX_HEIGHT: Final = 30
LINE: Final = 17  # the height of a line of text
GAP: Final = 14  # above the text of an arrow
LOOP_WIDTH: Final = 26
# Letters get a rim in the color of the page, so that the line of a column does not run through them.
STYLE: Final = (
    ".states{max-width:100%;height:auto}"
    ".states text{font:12px var(--md-code-font-family,monospace);fill:currentColor;paint-order:stroke;"
    "stroke:var(--md-default-bg-color,white);stroke-width:4px}.states .state text{font-weight:bold}"
)

Table = Mapping[Any, Mapping[Any, Any]]


def arrows(table: Table) -> list[tuple[Enum, Enum, tuple[Enum, ...]]]:
    """Each pair of states that an input leads between, with all its inputs: from, to, inputs. In the table's order."""
    found: dict[tuple[Enum, Enum], list[Enum]] = {}
    for state, row in table.items():
        for happened, following in row.items():
            found.setdefault((state, following), []).append(happened)
    return [(start, end, tuple(inputs)) for (start, end), inputs in found.items()]


def diagram(table: Table, title: str) -> str:
    """The picture of a table, as a block of HTML. States stand in the order of the table's rows."""
    middle = {state: COLUMN // 2 + COLUMN * index for index, state in enumerate(table)}
    top = BOX_HEIGHT + GAP
    drawn: list[str] = []
    for start, end, inputs in arrows(table):
        height = GAP + LINE * len(inputs)
        drawn.append(_arrow(start, end, inputs, middle, top + height))
        top += height
    bottom = top + GAP
    last = list(table)[-1]
    # The names beside a loop of the last column stand outside it.
    width = COLUMN * len(table) + (COLUMN // 2 if last in table[last].values() else 0)
    lines = [
        "<figure>",
        f'<svg class="states" width="{width}" viewBox="0 0 {width} {bottom + BOX_HEIGHT}" role="img" '
        f'aria-label={quoteattr(title)} xmlns="http://www.w3.org/2000/svg" stroke="currentColor" fill="none">',
        f"<style>{STYLE}</style>",
        *(_column(state, x, bottom) for state, x in middle.items()),
        *drawn,
        "</svg>",
        f"<figcaption>{escape(title)}</figcaption>",
        "</figure>",
    ]
    return "\n".join(lines)


def _column(state: Enum, x: int, bottom: int) -> str:
    """A state's name above and below the line that stands for it."""
    boxes = "".join(
        f'<rect x="{x - BOX_WIDTH // 2}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        + _text(state.name, x, y + BOX_HEIGHT // 2 + 4)
        for y in (1, bottom - 1)
    )
    line = f'<path d="M{x} {BOX_HEIGHT + 1}V{bottom - 1}" stroke-dasharray="2 5" opacity="0.6"/>'
    return f'<g class="state" data-state="{state.name}">{line}{boxes}</g>'


def _arrow(start: Enum, end: Enum, inputs: Sequence[Enum], middle: Mapping[Enum, int], y: int) -> str:
    """An arrow at a height, below the names of its inputs; a loop where it leads back to the same state."""
    x, to = middle[start], middle[end]
    begin = y - LINE // 2 if x == to else y
    path = f"M{x} {begin}h{LOOP_WIDTH}V{y}H{to}" if x == to else f"M{x} {y}H{to}"
    tip = f"M{to} {y}l{8 if to <= x else -8} -4v8z"
    at, anchor = (x + LOOP_WIDTH + 6, "start") if x == to else ((x + to) // 2, "middle")
    names = [
        _text(happened.name, at, y - 7 - LINE * line, anchor) for line, happened in enumerate(reversed(list(inputs)))
    ]
    return (
        f'<g class="transition" data-from="{start.name}" data-to="{end.name}"><path d="{path}"/>'
        f'<path d="{tip}" fill="currentColor"/><circle cx="{x}" cy="{begin}" r="3" fill="currentColor"/>'
        f"{''.join(reversed(names))}</g>"
    )


def _text(text: str, x: int, y: int, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
