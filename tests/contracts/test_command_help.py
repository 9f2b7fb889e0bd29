"""The help of every command: its flags in groups, one style in all parsers, and completion with one command."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from loadtest.cli.main import WAYS, app
from loadtest.protocols import registry
from loadtest.scenario.fields import GROUPS
from tests.contracts.command_help import VOICEPROBE, help_of, parsed_help, run
from tests.contracts.documents import faults, parsers

GROUPED = ("run", "capacity", "demo", "calibrate", "report")
TITLES = ("Target", "Load", "Speech", "Behavior", "Objectives", "Output", "Machine")


def panels(name: str) -> dict[str, list[str]]:
    """The flags that the help of a command shows, by their heading."""
    flags: dict[str, list[str]] = {}
    heading = ""
    for line in parsed_help(f"voiceprobe {name}", parsers()[f"voiceprobe {name}"]).splitlines():
        if title := re.match(r"╭─ (\w+) ─", line):
            heading = title[1]
        elif flag := re.match(r"│ [ *]*(--[a-z-]+)", line):
            flags.setdefault(heading, []).append(flag[1])
    return flags


def test_the_groups_are_those_that_help_promises() -> None:
    assert tuple(group.capitalize() for group in GROUPS) == TITLES


@pytest.mark.parametrize("name", GROUPED)
def test_every_flag_is_in_a_group_and_the_groups_are_in_order(name: str) -> None:
    shown = panels(name)
    assert shown.pop("Options") == ["--help"]
    assert list(shown) == [title for title in TITLES if title in shown]
    declared = {
        option
        for parameter in parsers()[f"voiceprobe {name}"].params
        for option in parameter.opts
        if option[:2] == "--"
    }
    assert sorted(flag for flags in shown.values() for flag in flags) == sorted(declared - {"--help"})


@pytest.mark.parametrize(
    ("name", "flag", "title"),
    [
        ("run", "--header", "Target"),
        ("run", "--users", "Load"),
        ("run", "--noise", "Speech"),
        ("run", "--think", "Behavior"),
        ("run", "--slo", "Objectives"),
        ("run", "--json", "Output"),
        ("run", "--processes", "Machine"),
        ("capacity", "--from", "Load"),
        ("demo", "--engines", "Target"),
        ("calibrate", "--picture", "Output"),
    ],
)
def test_a_flag_is_listed_where_its_user_looks_for_it(name: str, flag: str, title: str) -> None:
    assert flag in panels(name)[title]


@pytest.mark.slow
def test_help_without_command_shows_each_way_with_its_command() -> None:
    done = run(*VOICEPROBE)
    assert (done.returncode, done.stderr) == (2, "")
    assert len(WAYS) == 3
    for (purpose, command), word in zip(WAYS, ("terminal", "browser", "rollout"), strict=True):
        assert word in purpose
        assert f"{purpose}:\n  {command}\n" in done.stdout
        assert faults(command) == []
    assert max(map(len, done.stdout.splitlines())) <= 120


@pytest.fixture
def bare_home(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty home folder, and `voiceprobe` on the path."""
    script = tmp_path / "bin" / "voiceprobe"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom loadtest.cli.main import main\n\nmain()\n")
    script.chmod(0o755)
    home = tmp_path / "own"
    home.mkdir()
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if "COMPLETE" not in name and name != "SHELL"}
    return {**kept, "HOME": str(home), "PATH": path}


def shell(program: Path | str, script: str, environment: dict[str, str]) -> str:
    """Run a script in a shell and return its output."""
    done = subprocess.run(
        [program, "-c", script], env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_completion_installs_by_one_command_and_works_in_bash(bare_home: dict[str, str]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    assert "bash completion installed" in shell(bash, "voiceprobe --install-completion; :", bare_home)
    complete = (
        'source ~/.bashrc; complete -p voiceprobe; for words in "voiceprobe ca" "voiceprobe run --spa"; do'
        " COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _voiceprobe_completion voiceprobe;"
        ' printf "%s\\n" "${COMPREPLY[@]}"; done'
    )
    first, *completed = shell(bash, complete, bare_home).splitlines()
    assert first.endswith("-F _voiceprobe_completion voiceprobe")
    assert sorted(completed) == ["--spawn-rate", "calibrate", "capacity"]


@pytest.mark.slow
def test_completion_installs_for_zsh_if_command_runs_in_zsh(bare_home: dict[str, str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    # The shell is recognized by the name of the process: another shell of this name is enough to install from.
    zsh = shutil.which("zsh") or tmp_path / "zsh"
    if not Path(zsh).exists():
        Path(zsh).symlink_to(bash)
    assert "zsh completion installed" in shell(zsh, "voiceprobe --install-completion; :", bare_home)
    home = Path(bare_home["HOME"])
    assert "compinit" in (home / ".zshrc").read_text()
    assert (home / ".zfunc" / "_voiceprobe").read_text().startswith("#compdef voiceprobe\n")
    # What that file asks, and evaluates the answer to.
    asked = {**bare_home, "_TYPER_COMPLETE_ARGS": "voiceprobe ca", "_VOICEPROBE_COMPLETE": "complete_zsh"}
    answer = shell(bash, "voiceprobe", asked)
    assert answer.startswith("_arguments ")
    assert set(re.findall(r'"(\w+)":', answer)) == {"capacity", "calibrate"}


@pytest.mark.slow
def test_run_lists_every_protocol_with_what_it_shows() -> None:
    listed = " ".join(help_of(*VOICEPROBE, "run").partition("╭─")[0].split())
    for name in registry.names():
        described = registry.describe(name)
        assert f" {name}: {described.summary}. Shows: {described.shown} " in f"{listed} "


OF_CLICK = {"--help", "--install-completion", "--show-completion"}
# What a help text may say of a default, at its end and nowhere else.
DEFAULT = re.compile(r" \(default: [^()]+\)$")
OTHER_DEFAULTS = ("default", "if omitted", "if not given", "if none is given")


def explained() -> dict[str, Any]:
    """Every argument and option of every command, those of `voiceprobe` itself too, but for those that click makes."""
    every = {"voiceprobe": typer.main.get_command(app), **parsers()}
    return {
        f"{name} {parameter.opts[0]}": parameter
        for name, parser in every.items()
        for parameter in parser.params
        if not OF_CLICK & set(parameter.opts)
    }


def style_faults(text: str, printed_default: object = None) -> list[str]:
    """Return the faults of a help text; `printed_default` is a default that typer prints itself."""
    texts: list[str] = []
    first = text.partition(" ")[0]
    # A name or an acronym has two capitals: PEM, OTLP/HTTP, WebSocket, NAME=SHARE.
    if not (first[:1].islower() or len(re.findall("[A-Z]", first)) >= 2):
        texts.append("begins neither in lower case nor with a name")
    before = DEFAULT.sub("", text)
    if before.endswith("."):
        texts.append("ends with a full stop")
    if re.search(r"\. [A-Z]", text):
        texts.append("is more than one sentence")
    if any(words in before for words in OTHER_DEFAULTS):
        texts.append("writes a default in another way than (default: …) at its end")
    if before != text and printed_default not in (None, False, "", [], ()):
        texts.append("repeats a default that is printed behind it")
    return texts


def test_every_help_text_is_in_the_style_of_all() -> None:
    every = explained()
    assert len(every) > 400
    assert [name for name, parameter in every.items() if not parameter.help] == [], "they have none"
    by_page = {
        name: style_faults(parameter.help, parameter.default if parameter.show_default else None)
        for name, parameter in every.items()
    }
    assert {name: faults for name, faults in by_page.items() if faults} == {}


@pytest.mark.parametrize(
    ("text", "printed_default", "is_fault"),
    [
        ("callers at the same time (default: 5)", None, False),
        ("PEM file of its key", None, False),
        ("OTLP/HTTP address of the sidecar", "http://127.0.0.1:4318", False),
        ("how long, e.g. 2m (default: until it ends)", None, False),
        ("The folder to write", None, True),
        ("A folder", None, True),
        ("do not open a browser.", None, True),
        ("port to listen on. (default: 4318)", None, True),
        ("address to listen on. It has no login", None, True),
        ("port (default 0)", None, True),
        ("processes; one per CPU by default", None, True),
        ("rate in Hz; unchanged if omitted", None, True),
        ("(default: 5) callers", None, True),
        ("how long (default: 1s)", "1s", True),
    ],
)
def test_help_text_of_other_style_is_detected(text: str, printed_default: object, is_fault: bool) -> None:
    assert bool(style_faults(text, printed_default)) is is_fault
