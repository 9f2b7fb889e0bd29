"""Commands that are processes of their own: everything behind the name goes to them as it is."""

import os
import sys
from typing import Any, Final

import typer

# Their help is their own, and so is every flag.
CONTEXT: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}


def assistant(context: typer.Context) -> None:
    """Run the reference voice assistant, the target of the demo."""
    _become("loadtest.targets.assistant", context)


def sidecar(context: typer.Context) -> None:
    """Run the sidecar: OTLP in, store, Prometheus out."""
    _become("telemetry.sidecar", context)


def dashboard(context: typer.Context) -> None:
    """Show a store in the browser."""
    _become("dashboard", context)


def corpus(context: typer.Context) -> None:
    """List, install, build and check the speech that callers say."""
    _become("corpora", context)


def _become(module: str, context: typer.Context) -> None:
    """Replace this process by the module's, with all that stands behind the command."""
    from loadtest.run.processes import environment

    os.execve(sys.executable, [sys.executable, "-m", module, *context.args], environment())  # noqa: S606
