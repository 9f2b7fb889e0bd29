"""What real runs leave in their folders, however they end, and that it claims nothing that was not measured."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from loadtest.exit_codes import ExitCode
from loadtest.reports.junit import RUN_CASE
from loadtest.reports.summary import schema
from loadtest.run import processes
from loadtest.run.artifacts import NAMES
from tests.integration.calling import CORPUS, assistant
from tests.integration.waiting import stored_turns, wait_until

COMMAND = (sys.executable, "-m", "loadtest.cli.main")
QUICK = ("--corpus", CORPUS, "--length", "short", "--clips", "3", "--turns", "2", "--think", "0.1")
OWN_REPORT = ("--json", "again.json", "--html", "again.html", "--junit", "again.xml", "--markdown", "again.md")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with assistant(tmp_path_factory.mktemp("logs"), "--llm-ttft", "constant:80ms") as url:
        yield url


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=processes.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def left(run: Path, code: int) -> dict[str, Any]:
    """The summary of a run that left all of its files, which agree on how it ended."""
    assert all((run / name).stat().st_size for name in NAMES)
    assert not [each for each in run.iterdir() if each.name.startswith(".")], "nothing half-written"
    summary = json.loads((run / "summary.json").read_text())
    jsonschema.validate(summary, schema())
    assert summary["exit_code"] == code
    assert f"(exit code {code})" in (run / "summary.md").read_text().splitlines()[0]
    return summary


def run_case(run: Path) -> str:
    """How the case of the run itself ended in its JUnit file."""
    cases = ET.parse(run / "junit.xml").getroot().iter("testcase")  # noqa: S314 - made right here
    own = next(case for case in cases if case.get("name") == RUN_CASE)
    return next((each.tag for each in own if each.tag != "system-out"), "passed")


@pytest.mark.nightly
def test_a_run_leaves_its_reports_and_a_report_of_it_gives_the_same(url: str, tmp_path: Path) -> None:
    code, out, err = finished(started(tmp_path, "run", url, "--users", "3", "--run-time", "6s", *QUICK))
    assert err == ""
    (run,) = (tmp_path / "runs").iterdir()
    summary = left(run, code)
    assert summary["run"]["id"] == run.name
    assert out.rstrip().endswith(f"report: runs/{run.name}/report.html")
    assert re.search(r"^ +\d+ s: . of 3 on a call; turns ", out, re.MULTILINE) or summary["run"]["elapsed_s"] < 10
    again, text, err = finished(started(tmp_path, "report", *OWN_REPORT))
    assert (again, err) == (code, "")
    assert text.startswith(f"run {summary['run']['id']} in runs/{run.name}\n"), "the newest run of the folder runs"
    for name, own in zip(NAMES, ("again.json", "again.html", "again.xml", "again.md"), strict=True):
        assert (tmp_path / own).read_bytes() == (run / name).read_bytes(), name
    by_id, _, _ = finished(started(tmp_path, "report", summary["run"]["id"]))
    assert by_id == code


def test_a_target_that_is_dead_before_the_first_call_is_in_every_report(tmp_path: Path) -> None:
    code, out, err = finished(started(tmp_path, "run", "ws://127.0.0.1:9", *QUICK, "--json", "own.json"))
    why = "cannot connect to 127.0.0.1:9: Connection refused"
    assert (code, err) == (ExitCode.UNREACHABLE, f"voiceprobe: {why}\n")
    (run,) = (tmp_path / "runs").iterdir()
    assert out.endswith(f"report: runs/{run.name}/report.html\n")
    summary = left(run, code)
    assert summary["run"]["id"] == run.name
    assert json.loads((tmp_path / "own.json").read_text()) == summary
    assert summary["verdict"] == {"state": "not_judged", "sentence": f"Not judged: {why}"}
    assert all(why in (run / name).read_text() for name in NAMES)
    assert run_case(run) == "failure"
    code, out, err = finished(started(tmp_path, "runs", "--json", "runs.json"))
    assert (code, err) == (0, "")
    (listed,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert (listed["state"], listed["fault"]) == ("unreachable", None)
    assert listed["sentence"] == summary["verdict"]["sentence"]


@pytest.mark.nightly
def test_a_run_that_is_interrupted_twice_leaves_its_reports(url: str, tmp_path: Path) -> None:
    run = tmp_path / "out"
    process = started(tmp_path, "run", url, "--users", "3", "--run-time", "10m", *QUICK, "--out", str(run))
    wait_until(lambda: stored_turns(run / "store") >= 2)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("stopping"):
            break
    process.send_signal(signal.SIGTERM)
    code, _, err = finished(process)
    assert (code, err) == (ExitCode.INTERRUPTED, "")
    left(run, code)
    assert run_case(run) == "error"


@pytest.mark.nightly
def test_a_service_that_vanishes_is_in_every_report(tmp_path: Path) -> None:
    run = tmp_path / "out"
    with assistant(tmp_path / "logs") as url:
        process = started(tmp_path, "run", url, "--users", "3", "--run-time", "10m", *QUICK, "--out", str(run))
        wait_until(lambda: stored_turns(run / "store") >= 2)
        heard = stored_turns(run / "store")
    # Calls under way are cut off, and each further one fails to connect.
    wait_until(lambda: stored_turns(run / "store") >= heard + 4)
    process.send_signal(signal.SIGINT)
    code, _, err = finished(process)
    assert (code, err) == (ExitCode.INTERRUPTED, "")
    summary = left(run, code)
    assert summary["failures"]
    assert "Why turns failed" in (run / "report.html").read_text()
    assert "### Why turns failed" in (run / "summary.md").read_text()


@pytest.mark.nightly
def test_a_run_without_a_turn_leaves_reports_that_claim_nothing(url: str, tmp_path: Path) -> None:
    run = tmp_path / "out"
    process = started(
        tmp_path, "run", url, "--users", "1", "--run-time", "1s", "--think", "60", *QUICK[:-2], "--out", str(run)
    )
    code, _, _ = finished(process)
    summary = left(run, code)
    assert summary["run"]["id"] != run.name, "a folder that is given may hold another run"
    assert summary["turns"]["ok"] == 0
    assert code in (ExitCode.GENERATOR_LIMITED, ExitCode.UNDECIDED)
    assert run_case(run) in ("error", "skipped")
    page, text = (run / "report.html").read_text(), (run / "summary.md").read_text()
    assert 'class="chip met"' not in page
    assert 'class="verdict met"' not in page
    assert "| ✅" not in text
