"""A chart that everyone can read: the picture, a sentence that says what it shows, and its figures as a table.

Every page draws its charts with `chart`. The table stands below the picture, closed until it is opened by pointer,
keyboard or screen reader; it keeps its state over a refresh. Its rows come when it is opened: otherwise half of what a
browser builds for a page are rows that nobody sees.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.markup import escape

# A browser lays out so many rows without a person noticing; a page's charts have fewer points than that.
MOST_ROWS: Final = 1_000
NO_ROWS: Final = "no figures"


@dataclass(frozen=True, slots=True)
class ChartTable:
    """A chart's figures as text, with their units: `caption`, of our own words, says what they are,
    the first column names its row. `links` are where a click on each row's mark in the picture leads."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    links: Sequence[str] = ()


def chart(
    rows: Sequence[Mapping[str, Any]],
    spec: Mapping[str, Any],
    alt: str,
    table: ChartTable,
    *,
    key: str | None = None,
    table_at_once: bool = False,
) -> Any:
    """Draw a Vega-Lite chart of these rows, and its table below it.

    `spec` is without data: while it stays the same, a refresh exchanges the rows in the picture that stands. `alt` says
    in a sentence what the picture shows. With a `key` the chart reports what is selected in it, as
    `st.vega_lite_chart` does; otherwise the chart's element is returned. `table_at_once` is for a page that would have
    to be asked for as a whole, once more, when the table is opened.
    """
    selecting: dict[str, Any] = {} if key is None else {"key": key, "on_select": "rerun"}
    drawn = st.vega_lite_chart(pd.DataFrame(rows), dict(spec), theme=None, width="stretch", alt=alt, **selecting)
    table_below(table, at_once=table_at_once)
    return drawn


def table_below(table: ChartTable, *, at_once: bool = True) -> None:
    """The figures of a picture as a table, closed until it is opened; its rows are there at once, or come then."""
    below = st.expander(f"Table: {table.caption}", on_change="ignore" if at_once else "rerun")
    if at_once or below.open:
        below.html(table_html(table))


def table_html(table: ChartTable) -> str:
    """The table as HTML, a region of its own that can be scrolled by keyboard. All texts are escaped."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    shown = table.rows[:MOST_ROWS]
    links = [*table.links[: len(shown)], *[""] * (len(shown) - len(table.links))]
    body = "".join(map(_row, shown, links)) or f'<tr><td colspan="{len(table.columns)}">{NO_ROWS}</td></tr>'
    left_out = len(table.rows) - len(shown)
    cut = f'<div class="hint">the first {len(shown)} of {len(table.rows)} rows</div>' if left_out else ""
    caption = escape(table.caption)
    return (
        f'<div class="vp vp-chart-table" role="region" aria-label="{caption}" tabindex="0"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{cut}</div>"
    )


def _row(cells: Sequence[str], link: str) -> str:
    first, *others = cells
    name = f'<a href="{escape(link)}" target="_self">{escape(first)}</a>' if link else escape(first)
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in others)}</tr>'
