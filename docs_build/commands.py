"""Every command, argument and flag with its help text."""

import re
from collections.abc import Iterator
from typing import Any

import typer

import corpora.cli
import dashboard.__main__
import telemetry.sidecar.app
from docs_build.markdown import cell, code, sections, table
from loadtest.cli import main
from loadtest.scenario.options import OPTIONS
from loadtest.targets.assistant import command as assistant


def command_sections() -> str:
    """Return a section for every command of `voiceprobe`, with its arguments and flags."""
    return sections(part for name, command in commands() for part in _command(name, command))


def locust_flags() -> str:
    """Return the table of voiceprobe's flags for Locust's command line."""
    return table(("Flag", "Meaning"), [(code(option.flag), cell(option.help)) for option in OPTIONS])


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command as typed by the user, with its parser."""
    alone = typer.Typer(add_completion=False)
    alone.command(help=assistant.HELP)(assistant.assistant_command)
    own_processes = {
        "assistant": alone,
        "sidecar": telemetry.sidecar.app.app,
        "dashboard": dashboard.__main__.app,
        "corpus": corpora.cli.app,
    }
    for name, command in _children(typer.main.get_command(main.app)):
        own = typer.main.get_command(own_processes[name]) if name in own_processes else command
        children = _children(own)
        if not children or getattr(own, "invoke_without_command", False):
            yield f"voiceprobe {name}", own
        for child, parser in children:
            yield f"voiceprobe {name} {child}", parser


def _children(group: Any) -> list[tuple[str, Any]]:
    return list(getattr(group, "commands", {}).items())


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name)
    arguments, flags = _rows(command, context, "argument"), _rows(command, context, "option")
    usage = " ".join([name, "[FLAGS]", *(label for label, _, _ in arguments)])
    yield f"## {name}"
    yield f"```text\n{usage}\n```"
    yield _prose(command.help or "")
    if arguments:
        yield table(("Argument", "Meaning"), [(code(label), cell(text)) for label, text, _ in arguments])
    for panel in dict.fromkeys(panel for _, _, panel in flags):
        rows = [(code(label), cell(text)) for label, text, own in flags if own == panel]
        yield f"**{panel}**" if panel else ""
        yield table(("Flag", "Meaning"), rows)
    if command.epilog:
        yield _examples(command.epilog)


def _rows(command: Any, context: Any, kind: str) -> list[tuple[str, str, str]]:
    """Return label, help and group of each parameter of a kind, as the command prints them."""
    rows: list[tuple[str, str, str]] = []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if parameter.param_type_name == kind and record is not None:
            rows.append((record[0].strip(), record[1], parameter.rich_help_panel or ""))
    return rows


def _prose(text: str) -> str:
    """Convert help text to Markdown: examples become code, markup in the rest is escaped."""
    parts = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(_examples(part) if part.startswith("Example") else cell(part) for part in parts)


def _examples(text: str) -> str:
    label, _, rest = text.partition(":")
    blocks = [" ".join(block.split()) for block in re.split(r"\n\s*\n", rest.strip())]
    return f"{label}:\n\n```bash\n" + "\n".join(blocks) + "\n```"
