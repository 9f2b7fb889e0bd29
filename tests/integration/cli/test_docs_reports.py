"""The commands of the pages on reports, comparing runs and CI, carried out in the order of the page."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.run import processes
from loadtest.run.artifacts import NAMES, keep_objectives
from telemetry.objectives.slo import objectives_text
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.contracts.documents import code_lines, words
from tests.fixtures_turns import fill_store, synthetic_run
from tests.integration.commands import carried_out
from tests.run_folders import latency_run, run_folder

PAGES = processes.ROOT / "docs" / "how-to"


def called(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command `voiceprobe` of a page, in a folder."""
    # A shell begins a comment with a number sign only where a word begins.
    _, *arguments = shlex.split(line) if "#" in line and " #" not in line else words(line)
    return carried_out(*arguments, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make the files that the page uses: a run in `runs`, whose reports were not written, a store, and the examples."""
    run = tmp_path / "runs" / "20260101-120000-abcdef"
    fill_store(run / "store", synthetic_run(turns=40))
    (run / "settings-run-1.json").write_text("{}")
    keep_objectives(run, objectives_text(None))
    (tmp_path / "store").symlink_to(run / "store")
    (tmp_path / "examples").symlink_to(processes.ROOT / "examples")
    return tmp_path


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


@pytest.mark.nightly
def test_commands_of_page_on_comparing_runs_do_what_it_says(tmp_path: Path) -> None:
    named = "20260101-120000-abcdef"
    runs = tmp_path / "runs"
    run_folder(runs, named, latency_run(named, 40))
    run_folder(runs, "before", latency_run("r-before", 40, seed=2))
    run_folder(runs, "after", latency_run("r-after", 40, llm_ms=700, seed=3))
    run_folder(runs, "20260102-090000-fedcba", latency_run("20260102-090000-fedcba", 40, seed=4))
    fill_store(tmp_path / "store", latency_run(named, 40))
    lines = code_lines((PAGES / "compare.md").read_text(encoding="utf-8"))
    listing, narrowed, note, remove, regression, files, dashboard = lines
    assert called(listing, tmp_path).stdout.count(named) == 1
    newer = called(narrowed, tmp_path)  # than any of these runs
    assert (newer.returncode, newer.stderr, named in newer.stdout) == (0, "", False)
    missed = called(narrowed.replace("--since 7d ", ""), tmp_path)
    assert (missed.returncode, "\nafter " in missed.stdout, named in missed.stdout) == (0, True, False), missed.stdout
    assert called(note, tmp_path).returncode == 0
    assert "new model, warm cache" in called(listing, tmp_path).stdout
    refused = called(remove, tmp_path)
    assert (refused.returncode, (runs / named).is_dir()) == (2, True)
    assert "give --yes" in refused.stderr
    assert called(f"{remove} --yes", tmp_path).returncode == 0
    assert not (runs / named).exists()
    worse = called(regression, tmp_path)
    assert (worse.returncode, worse.stderr) == (3, "")
    assert "more than the margin of 100 ms" in worse.stdout
    same = called(files, tmp_path)
    assert (same.returncode, same.stderr) == (0, "")
    assert all((tmp_path / name).stat().st_size for name in ("compared.html", "compared.md", "compared.json"))
    assert words(dashboard)[1:] == ["dashboard"]
    command = [sys.executable, "-m", "loadtest.cli.main", "dashboard", "--port", "0", "--headless"]
    process = subprocess.Popen(command, cwd=tmp_path, env=processes.environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_figure_of_the_page_on_ci_is_the_p95(folder: Path) -> None:
    called("voiceprobe report", folder)
    (folder / "voice-run").symlink_to(folder / "runs" / "20260101-120000-abcdef")
    (line,) = (line for line in code_lines((PAGES / "ci.md").read_text(encoding="utf-8")) if line.startswith("jq"))
    _, path, file = words(line)
    value = json.loads((folder / file).read_text())
    for name in path.removeprefix(".").split("."):
        value = value[name]
    with StoreReader(folder / "store") as reader:
        asked = reader.summary(Filter(run_id="run-1")).metrics["voice_to_voice"].p95
    assert asked is not None
    assert value == asked / 1e9
