"""`voiceprobe sidecar`."""

import typer

from loadtest.cli.forwarding import become


def sidecar(context: typer.Context) -> None:
    """Run the sidecar: OTLP in, store, Prometheus out."""
    become("-m", "telemetry.sidecar", arguments=context.args)
