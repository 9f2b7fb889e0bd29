"""The front of a sidecar: its sockets, from the start of the store process to its end."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from starlette.applications import Starlette

from telemetry.model.errors import ConfigError
from telemetry.model.host_names import host_and_port
from telemetry.sidecar import pages, query_api, systemd
from telemetry.sidecar.connection_limits import connections_allowed
from telemetry.sidecar.forwarding.destinations import refuse_own_address
from telemetry.sidecar.http_connections import http_server
from telemetry.sidecar.logs import log_event
from telemetry.sidecar.messages import StoreOptions
from telemetry.sidecar.options import SidecarOptions
from telemetry.sidecar.otlp import grpc as otlp_grpc
from telemetry.sidecar.otlp import http as otlp_http
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.otlp.body import Bodies
from telemetry.sidecar.otlp.grpc_health import GrpcHealth
from telemetry.sidecar.otlp.ingest import Ingest
from telemetry.sidecar.rollouts import routes as rollout_routes
from telemetry.sidecar.rollouts.exposition import with_rollouts
from telemetry.sidecar.rollouts.link import RolloutLink
from telemetry.sidecar.rollouts.messages import RolloutOptions
from telemetry.sidecar.scraping.scraper import Scraper
from telemetry.sidecar.stopping import StopRequests
from telemetry.sidecar.store_link import StoreLink
from telemetry.sidecar.tls_connections import TlsConnection

# On shutdown, requests in progress get this long to finish: what an exporter waits for an answer.
_GRACE_S: Final = 10

_log = logging.getLogger(__name__)


async def serve(options: SidecarOptions, ready: Callable[[dict[str, object]], None], stop: StopRequests) -> None:
    """Run until `stop` is asked for; `ready` is called with the addresses once both receivers are listening.

    Raises ConfigError for an unusable port, address or objectives file, and StoreError for a store that another process
    owns. Whatever ends it, everything that was acknowledged is durable.
    """
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(_listen(options.host, options.http_port))
        refuse_own_address(options.destinations, listener.getsockname()[1])
        link = StoreLink(_store_options(options))
        ingest = Ingest(link.send)
        stack.push_async_callback(link.stop)
        await link.start(ingest)
        limits = replace(options.limits, connections=connections_allowed(options.limits.connections))
        bodies = Bodies(limits)
        stack.callback(bodies.close)
        scraper = Scraper(options.scrape, lambda body: ingest.take("metrics", "protobuf", body))
        stack.push_async_callback(scraper.stop)
        questions = query_api.QueryLink(options.store)
        stack.push_async_callback(questions.stop)
        rollouts = RolloutLink(_rollout_options(options))
        stack.push_async_callback(rollouts.stop)
        health = GrpcHealth(lambda: link.is_storing and not stop.is_asked, otlp_grpc.SERVICES)
        access = _access(options)
        grpc_server, grpc_port = await otlp_grpc.start(
            ingest,
            bodies,
            # A name may have several addresses, and gRPC is content with any of them: both receivers have the same one.
            listener.getsockname()[0],
            options.grpc_port,
            access,
            health=health,
            credentials=None if options.tls is None else options.tls.grpc,
        )
        routes = [
            *otlp_http.routes(ingest, bodies, access),
            *pages.routes(link, ingest, access, lambda: stop.is_asked, partial(with_rollouts, link=rollouts)),
            *query_api.routes(questions, access),
            *rollout_routes.routes(rollouts, access),
        ]
        secured = None if options.tls is None else partial(TlsConnection, options.tls.http)
        http = http_server(Starlette(routes=routes), limits, _GRACE_S, secured)
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        while not http.started and not serving.done():  # noqa: ASYNC110 - uvicorn only sets this flag
            await asyncio.sleep(0.005)
        if not serving.done():
            scraper.start()
            rollouts.start()
            ready(addresses := _addresses(options, listener.getsockname()[1], grpc_port))
            log_event(_log, logging.INFO, "ready", "the receivers are listening", **addresses)
            systemd.notify(systemd.READY)
            await stop.wait(serving)
            systemd.notify(systemd.STOPPING)
            log_event(_log, logging.INFO, "stopping", "the sidecar stops: requests in progress are finished")
            await stop.drain(options.drain_s, serving)
        http.should_exit = True
        health.close()
        with stop.hurrying(partial(setattr, http, "force_exit", True)):
            await asyncio.gather(serving, grpc_server.shutdown(_GRACE_S))
    log_event(_log, logging.INFO, "stopped", "the sidecar has stopped; everything acknowledged is stored")


def _access(options: SidecarOptions) -> Access:
    return Access(options.token, requires_certificate=options.tls is not None and options.tls.requires_certificate)


def _store_options(options: SidecarOptions) -> StoreOptions:
    return StoreOptions(
        str(options.store.resolve()),
        options.keep_transcripts,
        str(options.slo) if options.slo else None,
        options.keep.age_ns,
        options.keep.size_bytes,
        redact_names=str(options.redact_names) if options.redact_names else None,
        destinations=options.destinations,
    )


def _rollout_options(options: SidecarOptions) -> RolloutOptions:
    return RolloutOptions(
        str(options.store.resolve()),
        options.rollouts,
        str(options.slo) if options.slo else None,
        options.rollout_every_s,
    )


def _addresses(options: SidecarOptions, http_port: int, grpc_port: int) -> dict[str, object]:
    return {
        "ready": True,
        "http": f"{'http' if options.tls is None else 'https'}://{host_and_port(options.host, http_port)}",
        "grpc": host_and_port(options.host, grpc_port),
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
                f"cannot listen on {host_and_port(host, port)} ({error.strerror}); "
                "free the port, choose another one, or give 0 for any free port"
            ],
        ) from error
    return listener
