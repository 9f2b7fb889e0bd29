"""Parts of the pages about caches and the instrument: a heading, a chart over time with its table, a plain table."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo

import streamlit as st

from dashboard import descriptions
from dashboard.accessible_chart import ChartTable, chart
from dashboard.markup import escape
from dashboard.palette import palette
from dashboard.series_charts import Limit, bars_spec, lines_spec, series_rows
from telemetry.model import formatting
from telemetry.store.questions.timelines import CountsOverTime

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
        _table(title, names, counts.starts_unix_ns, columns, zone),
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
        lines_spec(palette(st.context.theme.type), names, unit, limit),
        f"{title} over time in {unit}, a line for each of {', '.join(names)}{limited}",
        _table(caption, names, starts_unix_ns, texts, zone),
    )


def _table(
    caption: str,
    names: Sequence[str],
    starts_unix_ns: Sequence[int],
    columns: Sequence[Sequence[str]],
    zone: tzinfo,
) -> ChartTable:
    begins = [descriptions.day_and_second(s, zone) for s in starts_unix_ns]
    rows = [tuple(cells) for cells in zip(begins, *columns, strict=True)]
    return ChartTable(f"{caption} over time", ("from", *names), rows)


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
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
