"""Every function of the questions' SQL has a known equivalent in ClickHouse, and the table names no other."""

import ast
import re
from collections.abc import Iterator

import duckdb

import telemetry.store.questions
from telemetry.store.dialect import CLICKHOUSE, SHARED
from tests.fixtures_sidecar import ROOT

QUESTIONS = ROOT / telemetry.store.questions.__name__.replace(".", "/")
FUNCTION = re.compile(r"\b([a-z]\w*)\(")


def texts(source: str) -> Iterator[str]:
    """The texts of a module that are no docstrings."""
    tree = ast.parse(source)
    stated = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in stated:
            yield node.value


def used() -> set[str]:
    return {
        name
        for file in QUESTIONS.glob("*.py")
        for text in texts(file.read_text(encoding="utf-8"))
        for name in FUNCTION.findall(text)
    }


def test_every_query_function_has_an_equivalent_and_no_other() -> None:
    assert used() == SHARED | CLICKHOUSE.keys()
    assert not SHARED & CLICKHOUSE.keys()


def test_all_of_them_are_functions_of_duckdb() -> None:
    known = {name for (name,) in duckdb.execute("SELECT function_name FROM duckdb_functions()").fetchall()}
    # What DuckDB takes for syntax is not among its functions.
    assert (SHARED | CLICKHOUSE.keys()) - known <= {"coalesce", "grouping"}
