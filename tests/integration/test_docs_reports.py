"""The commands of the pages on reports and CI, carried out in the order of the page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.run import processes
from loadtest.run.artifacts import NAMES, keep_objectives
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.contracts.documents import code_lines, words
from tests.fixtures_turns import fill_store, synthetic_run

PAGES = processes.ROOT / "docs" / "how-to"


def called(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command `voiceprobe` of a page, in a folder."""
    _, *arguments = words(line)
    return subprocess.run(
        [sys.executable, "-m", "loadtest.cli.main", *arguments],
        cwd=folder,
        env=processes.environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the page has at hand: a run in `runs`, whose reports were not written, a store, and the examples."""
    run = tmp_path / "runs" / "20260101-120000-abcdef"
    fill_store(run / "store", synthetic_run(turns=40))
    (run / "settings-run-1.json").write_text("{}")
    keep_objectives(run, None)
    (tmp_path / "store").symlink_to(run / "store")
    (tmp_path / "examples").symlink_to(processes.ROOT / "examples")
    return tmp_path


@pytest.mark.slow
def test_the_commands_of_the_page_on_reports_do_what_it_says(folder: Path) -> None:
    run = folder / "runs" / "20260101-120000-abcdef"
    lines = code_lines((PAGES / "reports.md").read_text(encoding="utf-8"))
    assert len(lines) == 6
    codes: list[int] = []
    for line in lines:
        done = called(line, folder)
        assert done.stderr == "", line
        codes.append(done.returncode)
        if "--junit" in line:
            left = [(run / name).read_bytes() for name in ("report.html", "junit.xml", "summary.md")]
            assert [(folder / name).read_bytes() for name in ("report.html", "junit.xml", "summary.md")] == left
    assert all((run / name).is_file() for name in NAMES), "the first report wrote what was lacking"
    by_its_own, by_others = (json.loads((place / "summary.json").read_text()) for place in (run, folder))
    assert len(by_its_own["objectives"]) != len(by_others["objectives"]) == 2
    assert codes[0] == codes[1] == codes[2] == by_its_own["exit_code"]
    assert codes[4] == 0, "a list has no verdict"


@pytest.mark.slow
def test_the_figure_of_the_page_on_ci_is_the_p95(folder: Path) -> None:
    called("voiceprobe report", folder)
    (folder / "voice-run").symlink_to(folder / "runs" / "20260101-120000-abcdef")
    (line,) = (each for each in code_lines((PAGES / "ci.md").read_text(encoding="utf-8")) if each.startswith("jq"))
    _, path, file = words(line)
    found = json.loads((folder / file).read_text())
    for name in path.removeprefix(".").split("."):
        found = found[name]
    with StoreReader(folder / "store") as reader:
        asked = reader.summary(Filter(run_id="run-1")).metrics["voice_to_voice"].p95
    assert asked is not None
    assert found == asked / 1e9
