"""The sidecar: receives OTLP from both sides of a call, owns the store and serves Prometheus metrics.

python -m telemetry.sidecar --store ./voiceprobe-data
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from telemetry.export.sdk import SIDECAR_TOKEN_VARIABLE
from telemetry.model.errors import TelemetryError
from telemetry.sidecar.options import SidecarOptions
from telemetry.sidecar.server import serve

EXIT_USAGE: Final = 2


def run(options: SidecarOptions) -> int:
    """Run a sidecar in this process until SIGTERM or SIGINT; return the exit code.

    Prints a JSON line with its addresses on stdout when it is ready.
    """

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(options, _print_ready, stop)

    try:
        asyncio.run(main())
    except TelemetryError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the command line's answer
        return EXIT_USAGE
    return 0


def _print_ready(addresses: dict[str, object]) -> None:
    print(orjson.dumps(addresses).decode(), flush=True)  # noqa: T201 - the parent process waits for this line


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog="Example: python -m telemetry.sidecar --store ./voiceprobe-data --http-port 0 --grpc-port 0")
def sidecar(
    *,
    store: Annotated[Path, typer.Option(help="Directory of the store; created when missing.")],
    host: Annotated[str, typer.Option(help="Address to listen on; beyond loopback it requires --token.")] = "127.0.0.1",
    http_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for OTLP/HTTP and /metrics; 0 for any free port.")
    ] = 4318,
    grpc_port: Annotated[int, typer.Option(min=0, max=65535, help="Port for OTLP/gRPC; 0 for any free port.")] = 4317,
    token: Annotated[
        str | None,
        typer.Option(envvar=SIDECAR_TOKEN_VARIABLE, help="Bearer token that senders and readers must present."),
    ] = None,
    keep_transcripts: Annotated[
        bool, typer.Option("--keep-transcripts", help="Store transcripts and other texts, which are dropped otherwise.")
    ] = False,
    slo: Annotated[
        Path | None, typer.Option(help="Objectives (OpenSLO) whose thresholds become histogram buckets.")
    ] = None,
) -> None:
    """Receive OTLP traces and metrics, store them, and serve Prometheus metrics."""
    options = SidecarOptions(store, host, http_port, grpc_port, token, keep_transcripts, slo)
    raise typer.Exit(run(options))
