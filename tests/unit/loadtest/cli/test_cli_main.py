"""Every command is a thin file of its own, named as the command is."""

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtest.cli.main import app

COMMANDS = tuple(command for each in app.registered_commands if (command := each.callback) is not None)
# Files beside the commands: what puts them together, what they share.
OTHERS = {"__init__", "main", "flags", "forwarding", "guard"}


def test_the_files_are_the_commands() -> None:
    folder = Path(import_module("loadtest.cli").__path__[0])
    groups = {str(group.name) for group in app.registered_groups}
    assert {file.stem for file in folder.glob("*.py")} - OTHERS == {command.__name__ for command in COMMANDS} | groups


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_is_one_function_in_a_file_of_its_name(command: object) -> None:
    name: str = getattr(command, "__name__", "")
    module = import_module(f"loadtest.cli.{name}")
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    public = [each.name for each in tree.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    assert public == [name]
    assert not [each for each in tree.body if isinstance(each, ast.ClassDef)], "a job stays in its own folder"
    assert getattr(command, "__module__", "") == f"loadtest.cli.{name}"


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"voiceprobe {project['version']}\n")


def test_every_flag_that_cannot_be_used_is_named_at_once() -> None:
    asked = ["run", "ws://127.0.0.1:1/v1/realtime", "--users", "-3", "--run-time", "banana", "--noise", "xx"]
    refused = CliRunner().invoke(app, [*asked, "--stop-timeout", "soon", "--patience", "ages", "--processes", "many"])
    text = str(refused.exception)
    for fault in (
        "--users -3 is out of range",
        "--run-time 'banana' is not a duration",
        "--stop-timeout 'soon' is not a duration",
        "'xx'",
        "--patience 'ages'",
        "--processes 'many' is not a number of processes",
    ):
        assert fault in text
    assert len(text.splitlines()) == 6
