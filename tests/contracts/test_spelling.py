"""Spelling is American, as that of the APIs around us: codespell reads what people read, and the code."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.test_contracts_tree import files, name

ROOT = Path(__file__).parents[2]
READ = {".md", ".toml", ".yml", ".yaml", ".py", ".css", ".html", ".js", ""}
# Pages and everything else that is written for people, where no British word is left.
AMERICAN = ("docs/", "docs_build/", "examples/", ".github/", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def misspelled(paths: list[str], *flags: str) -> list[str]:
    """What codespell objects to, a line each. Its dictionaries and the words that are right are in pyproject.toml."""
    command = [sys.executable, "-m", "codespell_lib", *flags, *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 65), done.stdout + done.stderr
    return done.stdout.splitlines()


def written() -> list[str]:
    """Every file that somebody has written."""
    return [name(path) for path in files() if path.suffix in READ and not name(path).startswith("corpora/data/")]


def test_the_documentation_is_spelled_as_americans_do() -> None:
    pages = [path for path in written() if path.startswith(AMERICAN)]
    assert len(pages) > 30
    assert misspelled(pages) == []


@pytest.mark.slow
def test_the_code_is_spelled_as_americans_do() -> None:
    assert misspelled(written()) == []


@pytest.mark.parametrize(("text", "is_wrong"), [("the col" + "our of a line", True), ("the color of a line", False)])
def test_a_misspelled_word_is_found(text: str, is_wrong: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert bool(misspelled([str(page)])) is is_wrong
