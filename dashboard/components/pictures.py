"""A picture that everyone can read: the chart, a sentence that says what it shows, and its figures as a table.

Every page draws its charts with `draw`. The table is below the chart, closed until it is opened by pointer, keyboard or
screen reader, and keeps its state over a refresh. Its rows come when it is opened: otherwise half of what a browser
builds for a page are rows that nobody reads.
"""

from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.components.markup import Html, escape, hint, link_to, table
from telemetry.charts.drawing import ChartTable, Palette, Picture, palette

# A browser lays out so many rows without a person noticing; a page's charts have fewer points than that.
MOST_ROWS: Final = 1_000


def colors() -> Palette:
    """The colors of the viewer's theme."""
    return palette(st.context.theme.type)


def draw(picture: Picture, *, key: str | None = None) -> Any:
    """Draw a picture, and its table below it.

    With a `key` the chart reports what is selected in it, as `st.vega_lite_chart` does.
    """
    selecting: dict[str, Any] = {} if key is None else {"key": key, "on_select": "rerun"}
    drawn = st.vega_lite_chart(
        pd.DataFrame(picture.rows), dict(picture.spec), theme=None, width="stretch", alt=picture.alt, **selecting
    )
    table_below(picture.table, at_once=False)
    return drawn


def table_below(of: ChartTable, *, at_once: bool = True) -> None:
    """The figures of a picture as a table, closed until it is opened; its rows are there at once, or come then."""
    below = st.expander(f"Table: {of.caption}", on_change="ignore" if at_once else "rerun")
    if at_once or below.open:
        below.html(table_html(of))


def table_html(of: ChartTable) -> Html:
    """The table as HTML; a row that has a link is named by it."""
    links = [*of.links, *[""] * (len(of.rows) - len(of.links))]
    rows = [
        (link_to(link, first) if link else first, *others)
        for (first, *others), link in zip(of.rows[:MOST_ROWS], links, strict=False)
    ]
    left_out = len(of.rows) - len(rows)
    rest = "no figures" if not rows else f"the first {len(rows)} of {len(of.rows)} rows" if left_out else ""
    columns = (of.columns[0], *(f"#{column}" for column in of.columns[1:]))
    shown = table(of.caption, columns, rows, css="vp-chart-table", captioned=True)
    return Html(shown + (hint(escape(rest)) if rest else ""))
