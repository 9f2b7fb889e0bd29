"""Every command is a thin file of its own, named as the command is."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

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
