"""The help of every command is written in one way, whichever program its parser is of."""

import re
from typing import Any

import pytest
import typer

from loadtest.cli.main import app
from tests.contracts.documents import parsers

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
    """What is not as it should be; `printed_default` is one that typer prints by itself."""
    found: list[str] = []
    first = text.partition(" ")[0]
    # A name or an acronym has two capitals: PEM, OTLP/HTTP, WebSocket, NAME=SHARE.
    if not (first[:1].islower() or len(re.findall("[A-Z]", first)) >= 2):
        found.append("begins neither in lower case nor with a name")
    before = DEFAULT.sub("", text)
    if before.endswith("."):
        found.append("ends with a full stop")
    if re.search(r"\. [A-Z]", text):
        found.append("is more than one sentence")
    if any(words in before for words in OTHER_DEFAULTS):
        found.append("writes a default in another way than (default: …) at its end")
    if before != text and printed_default not in (None, False, "", [], ()):
        found.append("repeats a default that is printed behind it")
    return found


@pytest.mark.parametrize("name", explained())
def test_every_help_text_is_in_the_style_of_all(name: str) -> None:
    parameter = explained()[name]
    assert parameter.help, "it has none"
    assert style_faults(parameter.help, parameter.default if parameter.show_default else None) == []


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
def test_what_is_another_style_is_found(text: str, printed_default: object, is_fault: bool) -> None:
    assert bool(style_faults(text, printed_default)) is is_fault
