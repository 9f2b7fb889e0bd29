"""Writes Markdown: tables and code whose text cannot break the page."""

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Text as it may stand in a table's cell: on one line, with nothing that ends the cell or begins a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def code(text: str) -> str:
    """Text as inline code in a table's cell."""
    return f"`{' '.join(text.split()).replace('|', '&#124;')}`"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Cells are Markdown already: pass text through `cell` or `code`. Raises ValueError for a ragged row."""
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for row in rows:
        if len(row) != len(heads):
            raise ValueError(f"a row of {len(row)} cells under {len(heads)} heads: {row}")
        lines.append(" | ".join(row))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def page(title: str, *parts: str) -> str:
    """A page: its title, then its parts with an empty line between them."""
    return "\n\n".join([f"# {title}", *(part.strip() for part in parts if part.strip())]) + "\n"
