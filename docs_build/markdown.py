"""Writes Markdown tables and code, with text escaped."""

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Escape text for a table cell: on one line, without anything that ends the cell or begins a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def code(text: str) -> str:
    """Format text as inline code in a table cell."""
    return f"`{' '.join(text.split()).replace('|', '&#124;')}`"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Create a table of Markdown cells (pass text through `cell` or `code`). Raises ValueError for a ragged row."""
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for row in rows:
        if len(row) != len(heads):
            raise ValueError(f"a row has {len(row)} cells, but there are {len(heads)} headings: {row}")
        lines.append(" | ".join(row))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def sections(parts: Iterable[str]) -> str:
    """Join the parts of a page with an empty line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip())
