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

from telemetry.model.errors import TelemetryError
from telemetry.model.semconv import SIDECAR_TOKEN_VARIABLE
from telemetry.sidecar.body_budget import BODIES_BYTES_MAX
from telemetry.sidecar.connection_limits import BODY_S, CONNECTIONS_MAX, HEADER_S, IDLE_S, ConnectionLimits
from telemetry.sidecar.options import SidecarOptions
from telemetry.sidecar.server import serve
from telemetry.store.retention import Keep

EXIT_USAGE: Final = 2
_DAY_NS: Final = 86_400 * 10**9
_GIB: Final = 1 << 30


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
    keep_days: Annotated[
        float | None, typer.Option(min=0.01, help="Days for which the store keeps what it received; all if not given.")
    ] = None,
    keep_gib: Annotated[
        float | None, typer.Option(min=0.001, help="GiB to which the store is kept, the newest data; all if not given.")
    ] = None,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Most connections, for HTTP and for gRPC each; fewer if descriptors are scarce.")
    ] = CONNECTIONS_MAX,
    body_memory: Annotated[
        int, typer.Option(min=64, help="Most memory for bodies of requests in progress, in MiB; beyond it, 503.")
    ] = BODIES_BYTES_MAX >> 20,
    header_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for the header of a request, or for opening a gRPC connection.")
    ] = HEADER_S,
    body_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for the body of a request; one that stalls has a third of them.")
    ] = BODY_S,
    idle_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a connection without a request is closed.")
    ] = IDLE_S,
) -> None:
    """Receive OTLP traces and metrics, store them, and serve Prometheus metrics."""
    limits = ConnectionLimits(max_connections, body_memory << 20, header_timeout, body_timeout, idle_timeout)
    keep = Keep(
        None if keep_days is None else round(keep_days * _DAY_NS), None if keep_gib is None else round(keep_gib * _GIB)
    )
    options = SidecarOptions(store, host, http_port, grpc_port, token, keep_transcripts, slo, keep, limits)
    raise typer.Exit(run(options))
