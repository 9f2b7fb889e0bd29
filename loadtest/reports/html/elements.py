"""Parts of the report's page: sections, tables, folded parts, pairs of a name and a sentence. Pure; text is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from loadtest.reports.html.svg import text_of
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import DASH

LONGEST_CHARS: Final = 2000


def prose(words: str) -> str:
    """A sentence, escaped, on one line."""
    return escape(one_line(words, LONGEST_CHARS))


def section(title: str, body: Iterable[str], hint: str = "") -> str:
    """A part of the page under a heading."""
    shown = f'<p class="hint">{prose(hint)}</p>' if hint else ""
    return f"<section><h2>{text_of(title)}</h2>{shown}{''.join(body)}</section>"


def table(caption: str, heading: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """A table of texts; all columns but the first `texts` are numbers. A wide one scrolls inside of its own frame."""
    head = "".join(f'<th scope="col"{_number(index, texts)}>{text_of(cell)}</th>' for index, cell in enumerate(heading))
    body = "".join(f"<tr>{_cells(row, texts)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text_of(caption)}">'
        f"<table><caption>{text_of(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def folded(title: str, body: str) -> str:
    """A part that is shown when somebody asks for it."""
    return f"<details><summary>{text_of(title)}</summary>{body}</details>"


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Names with a sentence each."""
    return f"<dl>{''.join(f'<div><dt>{text_of(name)}</dt><dd>{prose(words)}</dd></div>' for name, words in rows)}</dl>"


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Keys of a picture: the class of a color and what it stands for."""
    shown = "".join(f'<li><span class="key {css}"></span>{text_of(words)}</li>' for css, words in entries)
    return f'<ul class="legend">{shown}</ul>'


def _cells(row: Sequence[str], texts: int) -> str:
    first, *others = row
    return f'<th scope="row">{prose(first)}</th>' + "".join(
        f"<td{_number(index, texts)}>{prose(cell) or DASH}</td>" for index, cell in enumerate(others, start=1)
    )


def _number(index: int, texts: int) -> str:
    return "" if index < texts else ' class="n"'
