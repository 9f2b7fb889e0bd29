"""`voiceprobe corpus`."""

import typer

from loadtest.cli.forwarding import become


def corpus(context: typer.Context) -> None:
    """List, install, build and check the speech that callers say."""
    become("-m", "corpora", arguments=context.args)
