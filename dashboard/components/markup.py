"""HTML in which external text is escaped: the building blocks of the pages, and the one kind of table."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from telemetry.model.foreign_text import one_line, visible

State = Literal["met", "missed", "unknown"]
SYMBOLS: Final[dict[State, str]] = {"met": "✓", "missed": "✕", "unknown": "○"}
NOT_OBSERVABLE: Final = "not observable on this wire"
_LONGEST_NAME: Final = 32


class Html(str):
    """Markup in which all external text is escaped."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Escape text from the store for HTML: run, cohort and model names are external. Control characters that would
    reorder the text after them are written out."""
    return text if isinstance(text, Html) else Html(html.escape(visible(str(text)), quote=True))


def short(name: str) -> Html:
    """An external name, cut so that it leaves room for figures; its tooltip has all of it."""
    shown = one_line(name, _LONGEST_NAME)
    return escape(shown) if shown == name else Html(f'<span title="{escape(name)}">{escape(shown)}</span>')


def css_percent(share: float, *, decimals: int = 2) -> str:
    """A share of a bar's length as CSS writes it: `33.33%`."""
    return f"{share * 100:.{decimals}f}%"


@cache
def stylesheet() -> str:
    """The style of all pages as one `<style>` element."""
    return f"<style>{Path(__file__).with_name('style.css').read_text(encoding='utf-8')}</style>"


def link_to(address: str, text: str, label: str = "") -> Html:
    """A link that opens in the same window; `label` is its name for a screen reader if the text alone is not clear."""
    named = f' aria-label="{escape(label)}"' if label else ""
    return Html(f'<a href="{escape(address)}" target="_self"{named}>{escape(text)}</a>')


def hint(text: str, css: str = "") -> Html:
    """A remark on its own line."""
    return Html(f'<div class="{f"vp hint {css}".strip()}">{escape(text)}</div>')


def section(title: str, remark: str = "", end: str = "") -> Html:
    """A heading with a remark, and an element at the end of the line."""
    remarked = f' <span class="hint">{escape(remark)}</span>' if remark else ""
    return Html(f'<div class="vp vp-head"><h2>{escape(title)}{remarked}</h2>{escape(end)}</div>')


def nothing(text: str) -> Html:
    """A text in place of a figure that is not known."""
    return Html(f'<div class="vp vp-nothing">{escape(text)}</div>')


def chip(state: State, text: str, title: str = "") -> Html:
    """A label whose shape, word and color mean the same."""
    return Html(f'<span class="vp-chip {state}" title="{escape(title)}">{SYMBOLS[state]} {escape(text)}</span>')


def fact(key: str, value: str, state: State | None = None) -> Html:
    """A name and its value for an overview or for details, with a state in details."""
    mark = "" if state is None else f'<span class="vp-chip vp-plain {state}">{SYMBOLS[state]}</span>&nbsp;'
    return Html(f'<span><span class="key">{escape(key)}</span>{mark}{escape(value)}</span>')


def fact_line(parts: Iterable[str], css: str = "") -> Html:
    """Facts on one line, or one per line in details; each is HTML."""
    return Html(f'<div class="{f"vp vp-lines {css}".strip()}">{"".join(parts)}</div>')


def pairs(title: str, of: Sequence[tuple[str, str]], end: str = "", css: str = "") -> Html:
    """Names and values below a heading."""
    cells = "".join(f'<span class="key">{escape(key)}</span><span>{escape(value)}</span>' for key, value in of)
    return Html(
        f'<div class="vp"><div class="vp-head"><h2>{escape(title)} {escape(end)}</h2></div>'
        f'<div class="{f"vp-pairs {css}".strip()}">{cells}</div></div>'
    )


def listed(items: Iterable[str], css: str = "") -> str:
    """The items of a list as HTML; empty without items."""
    return "".join(f"<li{f' class={css}' if css else ''}>{escape(item)}</li>" for item in items)


def note(title: str, sentences: Sequence[str], state: State = "missed") -> Html:
    """A box with sentences about the data, above figures that are correct nevertheless; empty without sentences."""
    if not sentences:
        return Html()
    return Html(f'<div class="vp vp-note {state}"><b>{chip(state, title)}</b><ul>{listed(sentences)}</ul></div>')


def empty(title: str, *lines: str) -> Html:
    """The content of a page without data: why there is none, and what to do. `lines` are HTML."""
    shown = "".join(f"<div>{line}</div>" for line in lines)
    return Html(f'<div class="vp vp-empty"><h2>{escape(title)}</h2>{shown}</div>')


@dataclass(frozen=True, slots=True)
class TableCell:
    """A table cell that is more than its text; `span` is the number of columns that it covers."""

    text: str
    title: str = ""
    css: str = ""
    span: int = 1

    def html(self, *, is_name: bool, is_figure: bool) -> str:
        """The cell as HTML."""
        css = " ".join(filter(None, ("num" if is_figure and self.span == 1 else "", self.css)))
        attributes = "".join(
            f' {name}="{escape(value)}"'
            for name, value in (("class", css), ("title", self.title), ("colspan", self.span if self.span > 1 else ""))
            if value
        )
        return f'<th scope="row"{attributes}>{self.text}</th>' if is_name else f"<td{attributes}>{self.text}</td>"


def table(
    label: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | TableCell]],
    *,
    css: str = "",
    captioned: bool = False,
) -> Html:
    """A table in its own region, which scrolls by touch and keyboard in a narrow window.

    `#` begins the name of a column of figures; the first cell of a row is its header. A row of one cell is a heading.
    `label` is for screen readers, and above the table if it is `captioned`.
    """
    heads = "".join(
        f'<th scope="col"{" class=num" if column.startswith("#") else ""}>{escape(column.removeprefix("#"))}</th>'
        for column in columns
    )
    body = "".join(_row(columns, row) for row in rows)
    caption = f"<caption>{escape(label)}</caption>" if captioned else ""
    return Html(
        f'<div class="{f"vp vp-table {css}".strip()}" role="region" aria-label="{escape(label)}" tabindex="0"><table>'
        f"{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(columns: Sequence[str], cells: Sequence[str | TableCell]) -> str:
    if len(cells) == 1:
        return f'<tr><th colspan="{len(columns)}" scope="colgroup" class="group">{escape(cells[0])}</th></tr>'
    parts: list[str] = []
    place = 0
    for cell in cells:
        made = cell if isinstance(cell, TableCell) else TableCell(cell)
        made = TableCell(escape(made.text), made.title, made.css, made.span)
        parts.append(made.html(is_name=place == 0, is_figure=columns[place].startswith("#")))
        place += made.span
    return f"<tr>{''.join(parts)}</tr>"
