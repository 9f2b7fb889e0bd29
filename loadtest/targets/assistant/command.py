"""The assistant's command line: one flag per setting of `config.py`."""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.targets.assistant.config import build_config, help_texts
from loadtest.targets.assistant.main import load, run
from telemetry.model.durations import METAVAR, Duration

HELP: Final = """Run the reference voice assistant: an OpenAI Realtime endpoint with known timing.

Prints one JSON line with its URL when it is ready, and serves until SIGTERM.

Example: voiceprobe assistant --port 8080 --llm-ttft lognormal:220ms:0.3 --cohort treatment=0.5

With --fault it misbehaves in one of these ways: never-answer, garbage, drop-mid-turn, oversized-message,
unknown-messages, answer-before-question, wrong-rate, half-open, refuse, slow-accept.
"""


def assistant_command(**flags: str | Path | None) -> None:
    """Run the assistant; exits with the documented exit codes."""
    config_file = flags.pop("config", None)
    try:
        config = load(Path(config_file) if config_file is not None else None, flags)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(ExitCode.USAGE) from None
    raise typer.Exit(run(config))


def _signature() -> inspect.Signature:
    """Create the signature that typer reads the flags from, so that every setting has a flag."""
    parameters = [
        inspect.Parameter(
            "config",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                Path | None, typer.Option(help="TOML file with the same settings; flags take precedence")
            ],
        )
    ]
    parameters += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(f"--{name.replace('_', '-')}", help=_help_text(name, text), metavar=_metavar(name)),
            ],
        )
        for name, text in help_texts().items()
    ]
    return inspect.Signature(parameters)


def _metavar(name: str) -> str | None:
    return METAVAR if isinstance(getattr(_DEFAULTS, name), Duration) else None


def _help_text(name: str, text: str) -> str:
    default = getattr(_DEFAULTS, name)
    if default is None or name == "run_id":
        return text
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"{text} (default: {shown})"


_DEFAULTS: Final = build_config({})
assistant_command.__signature__ = _signature()  # pyright: ignore[reportFunctionMemberAccess] - read by inspect
assistant_command.__annotations__ = {name: p.annotation for name, p in _signature().parameters.items()}


def main() -> None:
    """The entry point."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=HELP)(assistant_command)
    app(prog_name="voiceprobe assistant")
