"""`voiceprobe dashboard`."""

import typer

from loadtest.cli.forwarding import become


def dashboard(context: typer.Context) -> None:
    """Show a store in the browser."""
    become("-m", "dashboard", arguments=context.args)
