"""The documentation as the tests read it: every page, its commands, its links, and the commands' real parsers."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from docs_build.commands import commands
from docs_build.pages import PAGES
from loadtest.cli.flags import unreadable_of
from loadtest.cli.main import app
from telemetry.sidecar.configuration import read_configuration
from tests.contracts.command_help import LOCUST, ROOT, flags, has_flag, help_of

DOCS = ROOT / "docs"
VOICEPROBES = ("voiceprobe", "./voiceprobe", ".venv/bin/voiceprobe")
LOCUSTS = ("locust", ".venv/bin/locust")
MKDOCS = (".venv/bin/mkdocs",)
PYTHONS = ("python", ".venv/bin/python")
# Commands of others, which nobody here can parse: a name that is not among them is a slip.
OTHERS = (
    "docker",
    "git",
    "sudo",
    "journalctl",
    "jq",
    ".venv/bin/pre-commit",
    ".venv/bin/ruff",
    ".venv/bin/pyright",
    "flock",
    "uv",
)
MODULES_OF_OTHERS = ("pip", "pytest", "livekit.agents")
# What the wrapper does itself, before the command line is reached: its arguments are pytest's.
WRAPPERS_OWN = "test"


@cache
def pages() -> dict[str, str]:
    """Every page by its place in the checkout; generated ones at their future place in `docs`."""
    files = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    written = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    return written | {f"docs/{place}": make() for place, make in PAGES.items() if place.endswith(".md")}


def code_lines(text: str) -> list[str]:
    """Every command in the text's shell blocks, continued lines joined, comments and prompts taken off."""
    blocks = re.findall(r"^ *```(?:bash|sh|shell|console)\b[^\n]*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    joined = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip().removeprefix("$ ") for line in joined if line.strip() and not line.strip().startswith("#")]


def words(line: str) -> list[str]:
    """The words of one command, without what it is piped into and without the settings before it."""
    split = shlex.split(line, comments=True)
    end = next((index for index, word in enumerate(split) if word in {"|", ">", "&&", ";", "&"}), len(split))
    begin = next((index for index, word in enumerate(split) if not re.match(r"[A-Z_]+=", word)), 0)
    return split[begin:end]


@cache
def parsers() -> dict[str, Any]:
    """The parser of every command, by the words that start it."""
    return dict(commands())


def faults(line: str) -> list[str]:
    """Return the faults of one command of a page: its name, its flags, their values; empty if there are none."""
    match words(line):
        case [name, *rest] if name in VOICEPROBES:
            return [] if rest[:1] == [WRAPPERS_OWN] and name == "./voiceprobe" else _voiceprobe(rest)
        case [name, "-f", file, *rest] if name in LOCUSTS:
            missing = [] if (ROOT / file).is_file() else [f"{file} is not there"]
            text = help_of(*LOCUST)
            return missing + [f"{flag} is not a flag" for flag in flags(rest) if not has_flag(text, flag)]
        case [name, "-m", module, *rest] if name in PYTHONS:
            return _module(module, rest)
        case [name, *rest] if name in MKDOCS:
            return [] if rest[:1] in (["build"], ["serve"]) else [f"{rest} is no command of mkdocs"]
        case [name, *_] if name in OTHERS:
            return []
        case other:
            return [f"{' '.join(other[:1])} is no command that is known here"]


def _module(module: str, rest: list[str]) -> list[str]:
    """A part that is started as a module: it has the flags of the command that starts it."""
    started = {"telemetry.sidecar": "sidecar", "dashboard": "dashboard", "loadtest.targets.assistant": "assistant"}
    if module in started:
        return _voiceprobe([started[module], *rest])
    known = (ROOT / module.replace(".", "/") / "__main__.py").is_file() or module in MODULES_OF_OTHERS
    return [] if known else [f"{module} is no module that can be run"]


def _voiceprobe(arguments: list[str]) -> list[str]:
    if not arguments or arguments[0].startswith("-"):
        own = {option for parameter in typer.main.get_command(app).params for option in parameter.opts} | {"--help"}
        return [f"{flag} is not a flag of voiceprobe itself" for flag in arguments if flag not in own]
    for taken in (2, 1):
        name = " ".join(["voiceprobe", *arguments[:taken]])
        if name in parsers():
            return _parsed(parsers()[name], name, arguments[taken:])
    return [f"{arguments[0]} is no command"]


def _parsed(parser: Any, name: str, arguments: list[str]) -> list[str]:
    """Return the faults that the command's own parser reports; the command is not run."""
    if "--help" in arguments:
        return []
    try:
        context = parser.make_context(name, list(arguments))
    except Exception as error:  # noqa: BLE001 - whatever the parser objects with is the finding
        say = getattr(error, "format_message", error.__str__)
        return [say() or type(error).__name__]
    # The command itself reports these, with all that is wrong with its flags.
    if unreadable := unreadable_of(context):
        return unreadable
    if missing := [
        parameter.name for parameter in parser.params if parameter.required and context.params.get(parameter.name) == ""
    ]:
        return [f"missing argument {name}" for name in missing]
    # The sidecar's parser takes texts; what they mean is read where those of its file and environment are.
    flags_alone = {**context.params, "config": None}
    return read_configuration(flags_alone, {}).faults if name == "voiceprobe sidecar" else []


def headings(text: str) -> set[str]:
    """The anchors of a page, as both GitHub and mkdocs make them of its headings."""
    outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    texts = re.findall(r"^#+\s+(.*)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in texts}


def links(text: str) -> Iterator[tuple[str, str]]:
    """Each link and picture of a page that leads to a place in the checkout: its path and its anchor."""
    outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)", outside):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield path, anchor


def table(text: str, first_heading: str) -> list[list[str]]:
    """The rows of the Markdown table whose first column has that heading. Raises LookupError without such a table."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        cells = _cells(line)
        follows = lines[index + 1] if index + 1 < len(lines) else ""
        if cells and cells[0].lower() == first_heading and follows and set(follows) <= set("|-: "):
            rows: list[list[str]] = []
            for row in lines[index + 2 :]:
                if not row.startswith("|"):
                    break
                rows.append(_cells(row))
            return rows
    raise LookupError(f"no table has a first column {first_heading!r}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] if line.startswith("|") else []
