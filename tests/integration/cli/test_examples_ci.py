"""The jobs of the CI examples, carried out as their runners do: the same commands, against an assistant of our own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from loadtest.run import processes
from loadtest.run.artifacts import NAMES

EXAMPLES = processes.ROOT / "examples"
# What only the tests' time and place ask to be otherwise.
TARGET, RUN_TIME = "wss://voice.example.com/v1/realtime", "--run-time 2m"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout as the jobs find it: the wrapper, which here has its environment already, and the examples."""
    wrapper = tmp_path / "voiceprobe"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m loadtest.cli.main "$@"\n')
    wrapper.chmod(0o755)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    return tmp_path


def carried_out(script: str, checkout: Path, shell: tuple[str, ...], **variables: str) -> int:
    """The exit code of a script of a job, in the shell that its runner gives it."""
    return subprocess.run(
        [*shell, "-c", script],
        cwd=checkout,
        env=processes.environment() | variables,
        timeout=600,
        check=False,
    ).returncode


def against(command: str, url: str) -> str:
    """The command of an example with the address of an endpoint that is there, for a short time."""
    assert TARGET in command
    assert RUN_TIME in command
    return command.replace(TARGET, url).replace(
        RUN_TIME, "--run-time 8s --corpus voiceprobe-en --length short --think 0.2"
    )


def check_left(run: Path, code: int) -> dict[str, Any]:
    """Check the files of the run; return its summary."""
    assert all((run / name).stat().st_size for name in NAMES)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["exit_code"] == code
    assert summary["turns"]["total"] > 0
    return summary


def cases(file: Path) -> dict[str, str]:
    """Return the result of each case of a JUnit file."""
    ended: dict[str, str] = {}
    for case in ET.parse(file).getroot().iter("testcase"):  # noqa: S314 - made right here
        ended[str(case.get("name"))] = next((child.tag for child in case if child.tag != "system-out"), "passed")
    return ended


@pytest.mark.nightly
def test_the_job_of_github_actions_shows_and_keeps_its_verdict(url: str, checkout: Path) -> None:
    job = yaml.safe_load((EXAMPLES / "ci/github-actions.yml").read_text())["jobs"]["voice"]
    send, show = (step["run"] for step in job["steps"] if "run" in step)
    page = checkout / "step-summary"
    bash = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
    assert carried_out(show, checkout, bash, GITHUB_STEP_SUMMARY=str(page)) == 0, "a job that failed before has no run"
    assert not page.exists()
    code = carried_out(against(send, url), checkout, bash)
    summary = check_left(checkout / "voice-run", code)
    assert carried_out(show, checkout, bash, GITHUB_STEP_SUMMARY=str(page)) == 0
    assert page.read_text() == (checkout / "voice-run" / "summary.md").read_text()
    assert f"(exit code {code})" in page.read_text().splitlines()[0]
    with_inputs = {step["uses"].partition("@")[0]: step["with"] for step in job["steps"] if "with" in step}
    outcomes = cases(checkout / with_inputs["mikepenz/action-junit-report"]["report_paths"])
    claims = {True: "passed", False: "failure", None: "skipped"}
    assert list(outcomes.values())[1:] == [claims[objective["met"]] for objective in summary["objectives"]]


@pytest.mark.nightly
def test_gitlab_job_ends_with_exit_code_and_keeps_its_report(url: str, checkout: Path) -> None:
    job = yaml.safe_load((EXAMPLES / "ci/gitlab-ci.yml").read_text())["voice-load-test"]
    (script,) = job["script"]
    code = carried_out(against(script, url), checkout, ("bash", "-eo", "pipefail"))
    check_left(checkout / "voice-run", code)
    assert all((checkout / path).is_dir() for path in job["artifacts"]["paths"])
    assert len(cases(checkout / job["artifacts"]["reports"]["junit"])) == 3
