"""`voiceprobe assistant`."""

import typer

from loadtest.cli.forwarding import become


def assistant(context: typer.Context) -> None:
    """Run the reference voice assistant, the target of the demo."""
    become("-m", "loadtest.targets.assistant", arguments=context.args)
