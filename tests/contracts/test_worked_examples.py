"""The pages on extending show complete changes: each is applied to a copy of the source, and its test passes there."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.contracts.documents import DOCS
from tests.contracts.worked_examples import Change, apply, changes, copy_of_the_source, run_tests

PAGES = sorted(page for page in (DOCS / "extending").glob("*.md") if page.name != "index.md")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Copies of the source, one for each page, with the changes that it shows."""

    @cache
    def changed_by(page: Path) -> Path:
        folder = copy_of_the_source(tmp_path_factory.mktemp(page.stem))
        for change in changes(page.read_text(encoding="utf-8")):
            apply(change, folder)
        return folder

    return changed_by


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_example_of_page_works_as_written(page: Path, changed: Callable[[Path], Path]) -> None:
    shown = changes(page.read_text(encoding="utf-8"))
    tests = [change.path for change in shown if Path(change.path).name.startswith("test_")]
    assert tests, f"{page.name} shows no test"
    done = run_tests(tests, changed(page))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_new_page_touches_three_files_and_every_process_knows_it(changed: Callable[[Path], Path]) -> None:
    page = DOCS / "extending" / "page.md"
    shown = changes(page.read_text(encoding="utf-8"))
    touched = {change.path for change in shown if not change.path.startswith("tests/")}
    assert touched == {
        "telemetry/store/questions/recognition.py",
        "dashboard/pages/recognition.py",
        "dashboard/app.py",
    }
    # As a sidecar does, which is asked by name and imports no page.
    script = "from telemetry.store.wire import question_named; print(question_named('recognition_page').name)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=changed(page), capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "recognition_page", done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_python_says_where_it_belongs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(changes(text)) == text.count("\n```python")


def test_changes_are_applied_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    for how, anchor, block in (("after", "one", "1.5\n"), ("before", "one", "0\n"), ("replace", "two", "2\n")):
        apply(Change(how, "a.py", anchor, block), tmp_path)
    apply(Change("append", "a.py", None, "3\n"), tmp_path)
    assert (tmp_path / "a.py").read_text() == "0\none\n1.5\n2\n3\n"


@pytest.mark.parametrize("anchor", ["three", "o"])
def test_anchor_line_that_is_not_unique_is_detected(anchor: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    with pytest.raises(LookupError, match="needs one"):
        apply(Change("after", "a.py", anchor, ""), tmp_path)
