"""The examples work: our own loaders load what they can load, and Locust itself imports the locustfile."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtest.run.artifacts import JUNIT
from loadtest.scenario.file import load_scenario
from telemetry.objectives.openslo import parse_objectives
from tests.contracts.command_help import ROOT
from tests.contracts.documents import faults

EXAMPLES = ROOT / "examples"
JOBS = sorted((EXAMPLES / "ci").glob("*.yml"))
FORMS = sorted(form for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if form.name != "config.yml")


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def scripts(job: Path) -> list[str]:
    """The commands of a job, whichever of the two forms it has."""
    content = parsed(job)
    if "jobs" in content:
        return [step["run"] for entry in content["jobs"].values() for step in entry["steps"] if "run" in step]
    return [line for entry in content.values() if isinstance(entry, dict) for line in entry.get("script", [])]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_commands_of_ci_job_are_valid_and_its_files_exist(job: Path) -> None:
    commands = [command for command in scripts(job) if "voiceprobe" in command]
    assert commands
    for command in commands:
        assert faults(command) == []
        given = shlex.split(command)
        assert (ROOT / given[given.index("--slo") + 1]).is_file()


def test_a_job_keeps_and_shows_what_its_run_leaves() -> None:
    github, gitlab = parsed(EXAMPLES / "ci/github-actions.yml"), parsed(EXAMPLES / "ci/gitlab-ci.yml")
    commands = [shlex.split(command) for job in JOBS for command in scripts(job) if "voiceprobe run" in command]
    (out,) = {command[command.index("--out") + 1] for command in commands}
    steps = {step["uses"].partition("@")[0]: step for step in github["jobs"]["voice"]["steps"] if "uses" in step}
    kept = gitlab["voice-load-test"]["artifacts"]
    assert steps["actions/upload-artifact"]["with"]["path"] == out
    assert steps["mikepenz/action-junit-report"]["with"]["report_paths"] == f"{out}/{JUNIT}"
    assert (kept["paths"], kept["reports"]["junit"]) == ([out], f"{out}/{JUNIT}")
    # What shows a verdict does so for a run that failed, too.
    assert kept["when"] == "always"
    after = [step for step in github["jobs"]["voice"]["steps"] if "if" in step]
    assert [step["if"] for step in after] == ["always()"] * 3


def test_the_objectives_are_objectives() -> None:
    file = EXAMPLES / "objectives.yaml"
    assert [objective.name for objective in parse_objectives(file.read_text(encoding="utf-8"), file.name)] == [
        "voice-to-voice",
        "answered",
    ]


@pytest.mark.parametrize("file", sorted((EXAMPLES / "scenarios").glob("*.toml")), ids=lambda file: file.stem)
def test_a_scenario_is_loaded(file: Path) -> None:
    assert load_scenario(file).phases


@pytest.mark.slow
def test_locust_itself_imports_the_locustfile() -> None:
    command = [sys.executable, "-m", "locust", "-f", "examples/locustfile.py", "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert {"HealthWatcher", "VoiceUser"} <= set(done.stdout.split())


def test_hooks_run_programs_of_environment_and_fetch_nothing() -> None:
    (local,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        program = shlex.split(hook["entry"])[0].removeprefix(".venv/bin/")
        assert (Path(sys.executable).parent / program).exists(), hook["entry"]
        assert hook["language"] == "system"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_an_issue_form_has_what_a_form_needs(form: Path) -> None:
    content = parsed(form)
    assert content["name"]
    assert content["description"]
    ids = [part["id"] for part in content["body"]]
    assert len(ids) == len(set(ids)) > 0
    assert all(part["attributes"]["label"] for part in content["body"])


@pytest.mark.parametrize("package", ["corpora", "telemetry", "loadtest", "dashboard"])
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
