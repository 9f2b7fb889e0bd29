"""Every command is thin, and names all faults of its flags at once."""

import ast
import re
import tomllib
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.exit_codes import ExitCode
from loadtest.scenario.access import TARGET_VARIABLE

COMMANDS = tuple(command for entry in app.registered_commands if (command := entry.callback) is not None)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_is_one_function_of_a_file_without_jobs(command: object) -> None:
    module = import_module(getattr(command, "__module__", ""))
    assert module.__name__.startswith("loadtest.cli.")
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    assert not [node for node in tree.body if isinstance(node, ast.ClassDef)], "a job stays in its own folder"


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"voiceprobe {project['version']}\n")


TARGET = "ws://127.0.0.1:1/v1/realtime"
MISSING = "the target is missing: give a WebSocket address such as ws://127.0.0.1:8765/v1/realtime"
UNUSABLE = {
    ("--users", "-3"): "--users is -3; a whole number from 1 to 100000 is expected",
    ("--spawn-rate", "fast"): "--spawn-rate 'fast' is not a number: ",
    ("--seed", "1.5"): "--seed '1.5' is not a whole number: ",
    ("--run-time", "banana"): "--run-time 'banana' is not a duration",
    ("--noise", "xx"): "'xx'",
    ("--stop-timeout", "soon"): "--stop-timeout 'soon' is not a duration",
    ("--patience", "ages"): "--patience 'ages'",
    ("--processes", "many"): "--processes 'many' is not a number of processes",
}


@pytest.mark.parametrize(("target", "faults_of_target"), [([TARGET], []), ([], [MISSING])], ids=["target", "none"])
def test_every_flag_that_cannot_be_used_is_named_at_once(
    target: list[str], faults_of_target: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TARGET_VARIABLE, raising=False)
    asked = [word for pair in UNUSABLE for word in pair]
    assert guarded(partial(app, ["run", *target, *asked])) == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    for fault in (*UNUSABLE.values(), *faults_of_target):
        assert sum(fault in line for line in lines) == 1, fault
    assert len(lines) == len(UNUSABLE) + len(faults_of_target)


@pytest.mark.parametrize("rollout", [[], ["--rollout"]], ids=["demo", "rollout"])
def test_every_invalid_demo_flag_is_named_before_any_work(
    rollout: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_arguments: object, **_named: object) -> NoReturn:
        raise AssertionError("no speech is fetched, and no process started")

    monkeypatch.setattr("loadtest.run.demo._speech", work)
    monkeypatch.setattr("loadtest.run.processes.start", work)
    unusable = {
        ("--users", "-3"): "--users is -3; a whole number from 1 to 100000 is expected",
        ("--run-time", "banana"): "--run-time 'banana' is not a duration",
        ("--json", str(tmp_path)): "is a folder",
    }
    if not rollout:
        unusable |= {
            ("--noise", "xx"): "'xx'",
            ("--engines", "magic"): "--engines 'magic' is unknown",
            ("--seed", "one"): "--seed 'one' is not a whole number: ",
        }
    else:
        not_of_rollouts = ("--noise", "--engines", "--slo")
        unusable |= {(name, "babble"): f"{name}: not supported with --rollout" for name in not_of_rollouts}
    asked = [word for pair in unusable for word in pair]
    out = tmp_path / "out"
    assert guarded(partial(app, ["demo", *rollout, "--out", str(out), *asked])) == ExitCode.USAGE
    output = capsys.readouterr()
    lines = output.err.splitlines()
    for fault in unusable.values():
        assert sum(fault in line for line in lines) == 1, fault
    assert len(lines) == len(unusable)
    assert (output.out, out.exists()) == ("", False)


@pytest.mark.parametrize("command", ["run", "capacity"])
def test_a_flag_that_is_not_a_number_is_a_fault_alone_too(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(partial(app, [command, TARGET, "--seed", "one"])) == ExitCode.USAGE
    fault = "--seed 'one' is not a whole number: write it in digits, such as 10"
    assert capsys.readouterr().err == f"voiceprobe: {fault}\n"


def test_every_invalid_capacity_flag_is_named_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TARGET_VARIABLE, raising=False)
    unusable = {
        ("--from", "few"): "--from 'few' is not a whole number: ",
        ("--max", "0"): "--max 0 is out of range",
        ("--resolution", "fine"): "--resolution 'fine' is not a number: ",
        ("--rest", "soon"): "--rest 'soon' is not a duration",
        ("--step-time", "long"): "--step-time 'long' is not a duration",
        ("--processes", "many"): "--processes 'many' is not a number of processes",
        ("--noise", "xx"): "'xx'",
    }
    assert guarded(partial(app, ["capacity", *[word for pair in unusable for word in pair]])) == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    for fault in (*unusable.values(), MISSING):
        assert sum(fault in line for line in lines) == 1, fault
    assert len(lines) == len(unusable) + 1


@pytest.mark.parametrize("target", [[], [""]])
def test_a_target_that_is_missing_is_a_fault_alone_too(
    target: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TARGET_VARIABLE, raising=False)
    assert guarded(partial(app, ["run", *target])) == ExitCode.USAGE
    assert capsys.readouterr().err == f"voiceprobe: {MISSING}\n"


def test_the_target_may_be_in_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TARGET_VARIABLE, TARGET)
    assert guarded(partial(app, ["run", "--users", "0"])) == ExitCode.USAGE
    assert capsys.readouterr().err == "voiceprobe: --users is 0; a whole number from 1 to 100000 is expected\n"


def test_help_shows_the_target_as_required() -> None:
    shown = CliRunner().invoke(app, ["run", "--help"]).output
    assert re.search(r"Usage: .* run \[OPTIONS\] \{target\}", shown)
    assert re.search(r"│ \* +target .*?\[required\]", shown, re.DOTALL)
