"""Milliseconds and percentages are written in telemetry.model.formatting alone, so that a figure reads the same
everywhere."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.contracts.test_contracts_tree import python_files

# Where numbers are formatted: for people, and for CSS.
HOMES = {"telemetry/model/formatting.py", "dashboard/components/markup.py"}
# The corpora import nothing of telemetry: what their pages show are clips, not figures of a run.
SEARCHED = ("loadtest", "telemetry", "dashboard", "docs_build")
_UNIT = re.compile(r"\s?(?:ms|%)(?!\w)")
_CSS = re.compile(r"(?:left|right|width|height|size):\s*$")


def second_formatters(source: str) -> Iterator[int]:
    """The lines on which an f-string formats a number itself and writes ms or % behind it, or formats with `%`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for index, part in enumerate(node.values):
            if not isinstance(part, ast.FormattedValue):
                continue
            in_css = _CSS.search(_text(node, index - 1)) is not None
            has_unit = _UNIT.match(_text(node, index + 1)) is not None
            if _is_percent(part) or (has_unit and not in_css and _computes(part)):
                yield part.lineno


def _text(node: ast.JoinedStr, index: int) -> str:
    part = node.values[index] if 0 <= index < len(node.values) else None
    return str(part.value) if isinstance(part, ast.Constant) else ""


def _spec(part: ast.FormattedValue) -> list[ast.expr]:
    return part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []


def _is_percent(part: ast.FormattedValue) -> bool:
    return any(isinstance(spec, ast.Constant) and str(spec.value).endswith("%") for spec in _spec(part))


def _computes(part: ast.FormattedValue) -> bool:
    """Whether the value is rounded or scaled here; a whole number of a wire or of a setting stands as it is."""
    scaled = any(isinstance(each, ast.BinOp) for each in ast.walk(part.value))
    rounded = any(isinstance(each, ast.Call) and ast.unparse(each.func) == "round" for each in ast.walk(part.value))
    return bool(_spec(part)) or scaled or rounded


@pytest.mark.slow
def test_milliseconds_and_percentages_are_written_in_one_module() -> None:
    found = [
        f"{path}:{line}"
        for path, text in python_files()
        if path.startswith(SEARCHED) and path not in HOMES
        for line in second_formatters(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("f'{ns / 1e6:.1f} ms'", 1),
        ("f'{ns / 1e6} ms late'", 1),
        ("f'{round(x)} ms'", 1),
        ("f'{ratio * 100:g}%'", 1),
        ("f'{ratio:.0%}'", 1),
        ("f'{ratio:.1f} %'", 1),
        ("f'width:{share:.1f}%'", 0),
        ("f'{frame_ms} ms'", 0),
        ("f'{milliseconds(ns)} late'", 0),
        ("f'{count:.1f} msgs'", 0),
    ],
)
def test_a_second_formatter_is_found(source: str, count: int) -> None:
    assert len(list(second_formatters(source))) == count
