"""Reads the comments that document fields and constants in a source file."""

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive fields, and the comment above them."""

    comment: str
    names: tuple[str, ...]


def trailing(path: Path, class_name: str | None = None) -> dict[str, str]:
    """Return the trailing comment of each field of a class, or of each constant of a module; empty if it has none."""
    source = path.read_text(encoding="utf-8")
    comments = _comments(source)
    return {
        name: next((text for line in range(first, last + 1) if (text := comments.get(line))), "")
        for name, first, last in _definitions(source, class_name)
    }


def groups(path: Path, class_name: str) -> list[Group]:
    """Return the fields of a class, grouped by its empty lines and comment lines."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    grouped: list[Group] = []
    previous = None
    for name, first, last in _definitions(source, class_name):
        above: list[str] = []
        line = first - 1
        while line > 0 and lines[line - 1].strip().startswith("#"):
            above.insert(0, lines[line - 1].strip().removeprefix("#").strip())
            line -= 1
        if grouped and not above and previous == first - 1:
            grouped[-1] = Group(grouped[-1].comment, (*grouped[-1].names, name))
        else:
            grouped.append(Group(" ".join(above), (name,)))
        previous = last
    return grouped


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    # A suppression comment for a linter is not documentation.
    return {line: "" if "noqa" in text else text.lstrip("# ") for line, text in texts.items()}


def _definitions(source: str, class_name: str | None) -> list[tuple[str, int, int]]:
    """Return annotated names, each with its first and last line. Raises StopIteration for an unknown class."""
    body = ast.parse(source).body
    if class_name is not None:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == class_name).body
    return [
        (node.target.id, node.lineno, node.end_lineno or node.lineno)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
