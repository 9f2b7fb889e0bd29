"""The README is true: its commands exist with their flags, its tables are those of the code, its links hold."""

import re
import shlex
from pathlib import Path

import pytest

from loadtest.exit_codes import ExitCode
from telemetry.metrics import METRIC_NAMES
from tests.contracts.command_help import LOCUST, VOICEPROBE, flags, has_flag, help_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = ("voiceprobe", "./voiceprobe", "locust", ".venv/bin/locust")
# What the wrapper does itself, before the command line is reached: its arguments are pytest's.
WRAPPERS_OWN = {"test"}


def code_lines(text: str) -> list[str]:
    """Every command in the text's shell blocks, continued lines joined, comments and prompts taken off."""
    blocks = re.findall(r"^```(?:bash|sh|shell|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    joined = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip().removeprefix("$ ") for line in joined if line.strip() and not line.strip().startswith("#")]


def words(line: str) -> list[str]:
    """The words of one command, without what it is piped into and without the settings before it."""
    split = shlex.split(line, comments=True)
    end = next((index for index, word in enumerate(split) if word in {"|", ">", "&&", ";", "&"}), len(split))
    begin = next((index for index, word in enumerate(split) if not re.match(r"[A-Z_]+=", word)), 0)
    return split[begin:end]


def command_and_arguments(line: str) -> tuple[list[str], list[str]] | None:
    """How to ask the line's command for help, and its arguments; None for a command that is not ours."""
    name, *rest = words(line) or [""]
    match name:
        case "voiceprobe" | "./voiceprobe":
            return _down_to_the_subcommand(rest)
        case "locust" | ".venv/bin/locust":
            assert rest[:2] == ["-f", "loadtest/locustfile.py"], line
            return list(LOCUST), rest[2:]
        case _:
            return None


def _down_to_the_subcommand(rest: list[str]) -> tuple[list[str], list[str]]:
    command = list(VOICEPROBE)
    while rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]) and _lists(help_of(*command), rest[0]):
        command.append(rest.pop(0))
    return command, rest


def _lists(text: str, subcommand: str) -> bool:
    listed = re.split(r"Commands\b", text, maxsplit=1)
    return len(listed) == 2 and re.search(rf"^\W*{re.escape(subcommand)}\s", listed[1], re.MULTILINE) is not None


def faults(line: str) -> list[str]:
    """What is wrong with one line of the README; nothing for a line that is right or not ours."""
    if words(line)[:2] in (["./voiceprobe", name] for name in WRAPPERS_OWN):
        return []
    found = command_and_arguments(line)
    if found is None:
        return []
    command, arguments = found
    text = help_of(*command)
    wrong = [f"{flag} is no flag" for flag in flags(arguments) if not has_flag(text, flag)]
    if command == list(VOICEPROBE) and arguments[:1] and not arguments[0].startswith("-"):
        wrong.append(f"{arguments[0]} is no command")
    return wrong


def table(text: str, first_heading: str) -> list[list[str]]:
    """The rows of the Markdown table whose first column has that heading."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        cells = _cells(line)
        if (
            cells
            and cells[0].lower() == first_heading
            and index + 1 < len(lines)
            and set(lines[index + 1]) <= set("|-: ")
        ):
            rows: list[list[str]] = []
            for row in lines[index + 2 :]:
                if not row.startswith("|"):
                    break
                rows.append(_cells(row))
            return rows
    pytest.fail(f"README.md has no table with a first column {first_heading!r}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


OURS = [line for line in code_lines(README) if (words(line) or [""])[0] in PROGRAMS]


def test_the_two_commands_are_shown() -> None:
    assert any(words(line)[:2] == ["./voiceprobe", "demo"] for line in OURS)
    assert any(words(line)[:2] == ["./voiceprobe", "test"] for line in OURS)


@pytest.mark.parametrize("line", OURS)
def test_every_command_exists_with_its_flags(line: str) -> None:
    assert faults(line) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("./voiceprobe demo --users 8", []),
        ("VOICEPROBE_TOKEN=x voiceprobe run ws://h/ --users 3 | tee log  # why", []),
        ("./voiceprobe demo --usres 8", ["--usres is no flag"]),
        ("./voiceprobe dmeo", ["dmeo is no command"]),
        ("./voiceprobe test -q", []),
        ("locust -f loadtest/locustfile.py --host ws://h/v1 --noise babble", []),
        ("locust -f loadtest/locustfile.py --noize babble", ["--noize is no flag"]),
        ("docker compose up --what", []),
    ],
)
def test_a_command_that_is_wrong_is_noticed(line: str, said: list[str]) -> None:
    assert faults(line) == said


def test_the_exit_codes_are_those_of_the_code() -> None:
    assert [int(row[0].strip("`")) for row in table(README, "exit code")] == [int(code) for code in ExitCode]


def test_the_metrics_are_those_of_the_code() -> None:
    assert {row[0].strip("`") for row in table(README, "metric")} == set(METRIC_NAMES)


def test_links_and_pictures_lead_to_what_is_there() -> None:
    targets = re.findall(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)", README)
    for target in targets:
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        assert not path or (ROOT / path).exists(), f"README.md links to {path}, which is not there"
        if anchor and not path:
            assert anchor in _anchors(), f"README.md links to #{anchor}, a heading it does not have"


def _anchors() -> set[str]:
    headings = re.findall(r"^#+\s+(.*)$", README, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
