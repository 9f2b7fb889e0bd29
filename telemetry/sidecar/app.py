"""The sidecar: receives OTLP from both sides of a call, owns the store and serves Prometheus metrics.

python -m telemetry.sidecar --store ./voiceprobe-data
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.export.sdk import SIDECAR_TOKEN_VARIABLE
from telemetry.model.errors import ConfigError, TelemetryError
from telemetry.objectives.slo import load_objectives
from telemetry.sidecar.otlp import grpc as otlp_grpc
from telemetry.sidecar.otlp import http as otlp_http
from telemetry.sidecar.otlp.access import is_authorized, is_loopback
from telemetry.sidecar.otlp.ingest import Ingest
from telemetry.sidecar.prometheus import Exposition
from telemetry.store.compaction import Compactor
from telemetry.store.schema import turns_table
from telemetry.store.writer import StoreWriter

EXIT_USAGE: Final = 2
# On shutdown, requests in progress get this long to finish; what was acknowledged is durable in any case.
_GRACE_S: Final = 3


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """The options of a sidecar. Port 0 means any free port; `slo` determines the boundaries of histogram buckets."""

    store: Path
    host: str = "127.0.0.1"
    http_port: int = 4318
    grpc_port: int = 4317
    token: str | None = None
    keep_transcripts: bool = False
    slo: Path | None = None


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals: they stop the whole sidecar, not only the HTTP server."""
        yield


async def serve(options: SidecarOptions, ready: Callable[[dict[str, object]], None], stop: asyncio.Event) -> None:
    """Run until `stop` is set; `ready` is called with the addresses once both receivers are listening.

    Raises ConfigError for an unusable port, address or objectives file, and StoreError for a store that another process
    owns. Whatever ends it, everything that was acknowledged is durable.
    """
    if options.token is None and not is_loopback(options.host):
        raise ConfigError("--host", [f"{options.host} is reachable from other machines; add --token or use 127.0.0.1"])
    exposition = Exposition(load_objectives(options.slo))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listen(options.host, options.http_port))
        writer = stack.enter_context(StoreWriter(options.store, keep_text=options.keep_transcripts))
        compactor = Compactor(writer)
        compactor.start()
        stack.callback(compactor.stop)
        ingest = Ingest(writer, on_turns=lambda turns: exposition.observe(turns_table(turns)))
        stack.callback(ingest.close)
        exposition.watch(ingest)
        grpc_server, grpc_port = await otlp_grpc.start(ingest, options.host, options.grpc_port, options.token)
        http = _Server(
            uvicorn.Config(
                _application(ingest, exposition, options),
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        while not http.started and not serving.done():  # noqa: ASYNC110 - uvicorn only sets this flag
            await asyncio.sleep(0.005)
        if not serving.done():
            ready(_addresses(options, listener.getsockname()[1], grpc_port))
            await asyncio.wait([serving, stopping := asyncio.create_task(stop.wait())], return_when="FIRST_COMPLETED")
            stopping.cancel()
        http.should_exit = True
        await asyncio.gather(serving, grpc_server.stop(_GRACE_S))


def _addresses(options: SidecarOptions, http_port: int, grpc_port: int) -> dict[str, object]:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return {
        "ready": True,
        "http": f"http://{host}:{http_port}",
        "grpc": f"{host}:{grpc_port}",
        "store": str(options.store.resolve()),
    }


def _listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises ConfigError if the port is in use or the address is not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError("--host", [f"{host} is not an address of this machine ({error.strerror})"]) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise ConfigError(
            "--http-port",
            [
                f"cannot listen on {host}:{port} ({error.strerror}); "
                "free the port, choose another one, or give 0 for any free port"
            ],
        ) from error
    return listener


def _application(ingest: Ingest, exposition: Exposition, options: SidecarOptions) -> Starlette:
    token = options.token

    async def healthz(_request: Request) -> Response:
        return Response(b"ok\n", media_type="text/plain")

    async def state(_request: Request) -> Response:
        content = {**ingest.snapshot().as_dict(), "store": str(options.store.resolve())}
        return Response(orjson.dumps(content), media_type="application/json")

    async def metrics(request: Request) -> Response:
        body, content_type = exposition.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    def guarded(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if is_authorized(request.headers.get("authorization"), token):
                return await answer(request)
            return Response(b"a valid bearer token is required\n", 401, {"www-authenticate": "Bearer"}, "text/plain")

        return endpoint

    return Starlette(
        routes=[
            *otlp_http.routes(ingest, token),
            Route("/healthz", healthz),
            Route("/v1/state", guarded(state)),
            Route("/metrics", guarded(metrics)),
        ]
    )


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
