"""The list of runs as programs and people read it, all or some of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from loadtest.cli.runs import runs
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.runs import RunsRequest, list_runs
from telemetry.model.durations import Duration
from tests.fixtures_turns import START_UNIX_NS
from tests.run_folders import HOUR_NS, write_summary

NOW = START_UNIX_NS + 100 * HOUR_NS


def test_a_level_below_0_has_the_hyphen_that_programs_read(tmp_path: Path) -> None:
    profile = {"noise": "babble", "snr_db": -5.0, "channel": "g711u"}
    write_summary(tmp_path / "loud", "r-1", run={"id": "r-1", "profile": profile})
    file = tmp_path / "runs.json"
    assert list_runs(RunsRequest((str(tmp_path),), None, json_file=file), Console(quiet=True)) is ExitCode.OK
    (run,) = json.loads(file.read_text())["runs"]
    assert run["profile"] == "babble -5 dB, g711u"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run each of two targets, the second missed and an hour old."""
    root = tmp_path_factory.mktemp("runs")
    write_summary(
        root / "old",
        "r-old",
        run={"id": "r-old", "target": "ws://a", "started_unix_ns": NOW - 50 * HOUR_NS},
        cohorts=[{"name": "A"}],
        telemetry={"emitted": 180, "missing": 0},
        generator={"calibration": {"error_s": 0.0038}},
    )
    write_summary(
        root / "new",
        "r-new",
        run={"id": "r-new", "target": "ws://b", "started_unix_ns": NOW - HOUR_NS},
        cohorts=[{"name": "A"}, {"name": "B"}],
        exit_code=3,
    )
    return root


def named(file: Path) -> list[str]:
    return [run["name"] for run in json.loads(file.read_text())["runs"]]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["new", "old"]),
        ({"since": Duration(HOUR_NS)}, ["new"]),
        ({"since": Duration(HOUR_NS - 1)}, []),
        ({"cohort": "A"}, ["new", "old"]),
        ({"cohort": "B"}, ["new"]),
        ({"target": "ws://a"}, ["old"]),
        ({"state": "missed"}, ["new"]),
        ({"state": "missed", "target": "ws://a"}, []),
    ],
)
def test_the_list_has_the_runs_that_are_asked_for(
    root: Path, tmp_path: Path, asked: dict[str, Any], expected: list[str]
) -> None:
    console, file = Console(width=200), tmp_path / "runs.json"
    with console.capture() as printed:
        list_runs(RunsRequest((str(root),), json_file=file, **asked), console, now_unix_ns=NOW)
    assert named(file) == expected
    assert ("no run matches: without a filter there are 2 runs" in printed.get()) == (not expected)


def test_a_state_that_no_run_can_have_is_named(root: Path) -> None:
    with pytest.raises(UsageError, match="--state 'good' is not a state of a run: give one of under way, met, missed"):
        list_runs(RunsRequest((str(root),), state="good"), Console(quiet=True))


def test_programs_read_how_far_a_run_can_be_trusted(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    list_runs(RunsRequest((str(root),), json_file=file), Console(quiet=True))
    new, old = json.loads(file.read_text())["runs"]
    assert (old["cohorts"], old["turns"]["missing"], old["calibrated_to_s"]) == (["A"], 0, 0.0038)
    assert (new["cohorts"], new["turns"]["missing"], new["calibrated_to_s"]) == (["A", "B"], None, None)
    assert (old["generator_limited"], new["generator_limited"]) == (False, False)


@pytest.mark.parametrize("before", [[], ["--limit", "9", "--target", "ws://a"]])
def test_list_is_the_bare_command_by_its_name(root: Path, tmp_path: Path, before: list[str]) -> None:
    flags = ["--runs", str(root), "--target", "ws://b", "--limit", "1"]
    bare = CliRunner().invoke(runs, [*flags, "--json", str(tmp_path / "bare.json")])
    # What is written after the word is what counts.
    by_name = CliRunner().invoke(runs, [*before, "list", *flags, "--json", str(tmp_path / "list.json")])
    assert (bare.exit_code, by_name.exit_code) == (0, 0)
    assert bare.stdout == by_name.stdout
    assert named(tmp_path / "bare.json") == named(tmp_path / "list.json") == ["new"]
    # And what is written before it counts where nothing is said after it.
    CliRunner().invoke(runs, [*flags, "list", "--json", str(tmp_path / "before.json")])
    assert named(tmp_path / "before.json") == ["new"]


def test_invalid_duration_is_named(root: Path) -> None:
    failed = CliRunner().invoke(runs, ["--runs", str(root), "--since", "soon"])
    assert isinstance(failed.exception, UsageError)
    assert "--since 'soon' is not a duration" in str(failed.exception)
