"""A report's page and its parts: sections, tables, folded parts, names with sentences. Pure; text is escaped."""

from collections.abc import Collection, Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import DASH

LONGEST_CHARS: Final = 2000
_LONGEST_NAME: Final = 300
_NO_NETWORK: Final = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, body: Iterable[str], foot: str = "") -> str:
    """The whole file: it loads nothing, has no script, and reads on a phone, on paper, in light and in dark."""
    style = files("loadtest.reports.html").joinpath("style.css").read_text(encoding="utf-8")
    below = f'\n<footer><p class="hint">{prose(foot)}</p></footer>' if foot else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_NETWORK}">\n'
        f"<title>{text_of(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<main>\n{chr(10).join(part for part in body if part)}\n</main>{below}\n</body>\n</html>\n"
    )


def text_of(text: str) -> str:
    """Foreign or own text for HTML: on one line, bounded and escaped."""
    return escape(one_line(text, _LONGEST_NAME))


def prose(words: str) -> str:
    """A sentence, escaped, on one line."""
    return escape(one_line(words, LONGEST_CHARS))


def section(title: str, body: Iterable[str], hint: str = "") -> str:
    """A part of the page under a heading."""
    shown = f'<p class="hint">{prose(hint)}</p>' if hint else ""
    return f"<section><h2>{text_of(title)}</h2>{shown}{''.join(body)}</section>"


def table(
    caption: str, heading: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int | Collection[int] = 1
) -> str:
    """A table of texts; all columns but `texts`, or the first so many, are numbers. A wide one scrolls inside of its
    own frame."""
    texts = range(texts) if isinstance(texts, int) else texts
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


def _cells(row: Sequence[str], texts: Collection[int]) -> str:
    first, *others = row
    return f'<th scope="row">{prose(first)}</th>' + "".join(
        f"<td{_number(index, texts)}>{prose(cell) or DASH}</td>" for index, cell in enumerate(others, start=1)
    )


def _number(index: int, texts: Collection[int]) -> str:
    return "" if index in texts else ' class="n"'
