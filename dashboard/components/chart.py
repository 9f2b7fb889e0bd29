"""A chart that everyone can read: the picture, a sentence that says what it shows, and its figures as a table.

Every page draws its charts with `chart`. The table stands below the picture, closed until it is opened by pointer,
keyboard or screen reader; it keeps its state over a refresh. Its rows come when it is opened: otherwise half of what a
browser builds for a page are rows that nobody sees.
"""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard import descriptions
from dashboard.charts.over_time import Limit, bars_spec, series_rows, series_spec
from dashboard.charts.style import ChartTable, palette
from dashboard.components.markup import escape
from telemetry.model import formatting
from telemetry.store.questions.timelines import CountsOverTime

# A browser lays out so many rows without a person noticing; a page's charts have fewer points than that.
MOST_ROWS: Final = 1_000
NO_ROWS: Final = "no figures"


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
    body = "".join(map(_table_row, shown, links)) or f'<tr><td colspan="{len(table.columns)}">{NO_ROWS}</td></tr>'
    left_out = len(table.rows) - len(shown)
    cut = f'<div class="hint">the first {len(shown)} of {len(table.rows)} rows</div>' if left_out else ""
    caption = escape(table.caption)
    return (
        f'<div class="vp vp-chart-table" role="region" aria-label="{caption}" tabindex="0"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{cut}</div>"
    )


def _table_row(cells: Sequence[str], link: str) -> str:
    first, *others = cells
    name = f'<a href="{escape(link)}" target="_self">{escape(first)}</a>' if link else escape(first)
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in others)}</tr>'


NOT_OBSERVABLE = "not observable on this wire"


def section(title: str, hint: str = "") -> str:
    """A heading with a remark, as HTML."""
    remark = f' <span class="hint">{escape(hint)}</span>' if hint else ""
    return f'<div class="vp vp-head"><h2>{escape(title)}{remark}</h2></div>'


def nothing(text: str) -> str:
    """What stands where there is no figure, as HTML."""
    return f'<div class="vp vp-nothing">{escape(text)}</div>'


def counts_chart(title: str, hint: str, counts: CountsOverTime, zone: tzinfo, missing: str) -> None:
    """Counts over time as stacked bars; `missing` says why there are none."""
    st.html(section(title, hint))
    if not counts.starts_unix_ns:
        st.html(nothing(missing))
        return
    names = list(counts.counts)
    columns = [[formatting.number(n) for n in found] for found in counts.counts.values()]
    chart(
        series_rows(counts.starts_unix_ns, counts.counts),
        bars_spec(palette(st.context.theme.type), names, "turns", counts.width_ns),
        f"{title}: bars of {formatting.seconds(counts.width_ns)}, stacked by {', '.join(names)}",
        _series_table(title, names, counts.starts_unix_ns, columns, zone),
    )


def lines_chart(
    title: str,
    unit: str,
    starts_unix_ns: Sequence[int],
    drawn: Mapping[str, Sequence[float | None]],
    *,
    texts: Sequence[Sequence[str]],
    zone: tzinfo,
    limit: Limit | None = None,
) -> None:
    """Lines over time below their heading; `texts` has the values of each line with their unit, for the table."""
    names = list(drawn)
    limited, caption = "", title
    if limit is not None:
        limited = f", {'against' if limit.is_drawn else 'all far below'} the limit of {limit.text}"
        caption = f"{title} (limit {limit.text})"
    chart(
        series_rows(starts_unix_ns, drawn),
        series_spec(palette(st.context.theme.type), names, unit, limit),
        f"{title} over time in {unit}, a line for each of {', '.join(names)}{limited}",
        _series_table(caption, names, starts_unix_ns, texts, zone),
    )


def _series_table(
    caption: str, names: Sequence[str], starts_unix_ns: Sequence[int], columns: Sequence[Sequence[str]], zone: tzinfo
) -> ChartTable:
    begins = [descriptions.day_and_second(s, zone) for s in starts_unix_ns]
    rows = [tuple(cells) for cells in zip(begins, *columns, strict=True)]
    return ChartTable(f"{caption} over time", ("from", *names), rows)


def plain_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts as HTML; the first column names its row, the others are figures."""
    head = "".join(
        f'<th scope="col"{"" if place == 0 else " class=num"}>{escape(column)}</th>'
        for place, column in enumerate(columns)
    )
    body = "".join(
        f'<tr><th scope="row" class="name">{escape(first)}</th>'
        f"{''.join(f'<td class=num>{escape(cell)}</td>' for cell in others)}</tr>"
        for first, *others in rows
    )
    return (
        f'<div class="vp vp-scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
