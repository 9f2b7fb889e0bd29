"""A sidecar in one process: its sockets in an event loop, and the threads that store, answer and maintain the store.

Its components are closed in reverse order of opening, the store last, and however it ends, everything that was
acknowledged is committed.
"""

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from telemetry.model.addresses import host_and_port
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.sidecar import pages, queries
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.faults import FaultBoard, StoreWatch
from telemetry.sidecar.forwarding.bounded_queue import forwarding_families, shown_in_state
from telemetry.sidecar.forwarding.destinations import refuse_own_address
from telemetry.sidecar.forwarding.forwarder import Forwarding
from telemetry.sidecar.http_connections import http_server
from telemetry.sidecar.ingest import Ingest
from telemetry.sidecar.limits import ConnectionLimits, connections_allowed
from telemetry.sidecar.logs import log_event
from telemetry.sidecar.otlp import grpc as otlp_grpc
from telemetry.sidecar.otlp import http as otlp_http
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.otlp.body import Bodies
from telemetry.sidecar.otlp.grpc_health import GrpcHealth
from telemetry.sidecar.privacy import redactor_of_store
from telemetry.sidecar.rollouts import routes as rollout_routes
from telemetry.sidecar.rollouts.evaluation import RolloutEvaluator
from telemetry.sidecar.rollouts.states import RolloutStates, rollout_families
from telemetry.sidecar.scraping import Scraper
from telemetry.sidecar.service_turns import ServiceTurns
from telemetry.sidecar.settings import SidecarOptions
from telemetry.sidecar.stopping import READY, STOPPING, StopRequests, notify
from telemetry.sidecar.storing import Counts, GroupStages
from telemetry.store.database import OWNER_NAME, Database, owned
from telemetry.store.private_files import write_durably
from telemetry.store.reader import StoreReader
from telemetry.store.recordings.expiry import Expiry
from telemetry.store.retention import Retention
from telemetry.store.wire import Owner
from telemetry.store.writer import StoreWriter

# On shutdown, requests in progress get this long to finish: what an exporter waits for an answer.
_GRACE_S: Final = 10
# For readers on this machine that use the address in the store's folder.
_LOOPBACK: Final = "127.0.0.1"
_OWN_CONNECTIONS: Final = 64
_WATCH_S: Final = 1.0
# Turns of services are stored this long after their spans.
_TURNS_S: Final = 0.25
# A group of requests that takes longer than any request may take will not be stored.
_HANGS_AFTER_S: Final = 20.0
# DuckDB's own limit: the store's maintenance makes checkpoints when the disk has room for them.
_NEVER: Final = 1 << 40

_log = logging.getLogger(__name__)


class StoreServer:
    """Everything that a sidecar does with its store, without its sockets. Raises StoreError for an unusable store, and
    ConfigError for unusable objectives, names or plans."""

    def __init__(self, options: SidecarOptions, stack: contextlib.ExitStack) -> None:
        directory = options.store
        objectives = load_objectives(options.slo)
        self.faults = FaultBoard()
        state = IngestState()
        shown = (
            lambda: forwarding_families(self.forwarding.reports()),
            lambda: rollout_families(self.rollouts),
        )
        self.counts = Counts(state, Exposition(objectives, state=state, shown=shown), self.faults)
        database = owned(directory, memory_limit=f"{options.store_memory}MiB", checkpoint_bytes=_NEVER)
        self.writer = StoreWriter(directory, keep_text=options.keep_transcripts, database=database)
        stack.callback(self.writer.close)
        (directory / OWNER_NAME).unlink(missing_ok=True)
        redactor = redactor_of_store(directory, keep_text=options.keep_transcripts, names=options.redact_names)
        self._service_turns = ServiceTurns(
            self.writer,
            self.counts.stored,
            self.counts.state,
            self.faults,
            revised=self.counts.exposition.observe_revised,
        )
        self._service_turns.recover()
        stack.callback(self._service_turns.close)
        self._watch_for = StoreWatch(self.writer, self.faults)
        self._watch_for.refresh()
        self.forwarding = Forwarding(directory, options.destinations, self.faults, names=options.redact_names)
        stages = GroupStages(
            self.writer, redactor, self.counts, self._service_turns, forwarding=self.forwarding, watch=self._watch_for
        )
        self.ingest = Ingest(stages)
        self.rollouts = RolloutStates(_evaluator(options, objectives))
        self._retention = Retention(self.writer, options.keep)
        self._expiry = Expiry(directory)
        self._ended = threading.Event()
        tasks = (
            self._watch_for.refresh,
            self._check_ingest,
            self.forwarding.refresh,
            self._retention.remove_some,
            self.writer.checkpoint_when_due,
            self._expiry.remove_due,
        )
        self._threads = [
            threading.Thread(target=self._repeat, args=(_WATCH_S, tasks), name="watch", daemon=True),
            threading.Thread(
                target=self._repeat, args=(_TURNS_S, (self._service_turns.refresh,)), name="turns", daemon=True
            ),
        ]

    def start(self) -> None:
        """Start storing and maintaining the store; to be called in the event loop."""
        self.ingest.start()
        self.forwarding.start()
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Store waiting requests, forward what can be forwarded within seconds, then end."""
        await self.ingest.stop()
        await asyncio.to_thread(self.forwarding.stop)
        self._ended.set()
        for thread in self._threads:
            if thread.ident is not None:
                await asyncio.to_thread(thread.join)

    def _repeat(self, every_s: float, tasks: Sequence[Callable[[], None]]) -> None:
        while not self._ended.wait(every_s):
            for task in tasks:
                try:
                    task()
                except Exception:  # noqa: BLE001 - what fails once is tried again
                    _log.exception("the state of the store could not be looked at")

    def _check_ingest(self) -> None:
        hangs = self.ingest.busy_s > _HANGS_AFTER_S
        sentence = f"nothing was stored for {_HANGS_AFTER_S:.0f} s, restart the sidecar" if hangs else None
        self.faults.set("ingest", sentence, stops_storing=True)


async def serve(options: SidecarOptions, ready: Callable[[dict[str, object]], None], stop: StopRequests) -> None:
    """Run until `stop` is requested; `ready` is called with the addresses once both receivers are listening.

    Raises ConfigError for an unusable port, address, plan or objectives file, and StoreError for a store that another
    process owns. However it ends, everything that was acknowledged is durable.
    """
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(_listen(options.host, options.http_port))
        refuse_own_address(options.destinations, listener.getsockname()[1])
        store_stack = stack.enter_context(contextlib.ExitStack())
        store = await asyncio.to_thread(StoreServer, options, store_stack)
        stack.push_async_callback(store.stop)
        store.start()
        limits = replace(options.limits, connections=connections_allowed(options.limits.connections))
        bodies = Bodies(limits)
        stack.callback(bodies.close)
        scraper = Scraper(options.scrape, lambda body: store.ingest.take("metrics", "protobuf", body))
        stack.push_async_callback(scraper.stop)
        questions = queries.Questions(store.writer.database, exact_turns=options.exact_turns)
        stack.push_async_callback(questions.stop)
        stack.push_async_callback(store.rollouts.stop)
        access = _access(options)
        health = GrpcHealth(lambda: store.faults.is_storing and not stop.is_asked, otlp_grpc.SERVICES)
        grpc_server, grpc_port = await otlp_grpc.start(
            store.ingest,
            bodies,
            # A name may have several addresses, and gRPC is content with any of them: both receivers have the same one.
            listener.getsockname()[0],
            options.grpc_port,
            access,
            health=health,
            credentials=None if options.tls is None else options.tls.grpc,
        )
        routes = [
            *otlp_http.routes(store.ingest, bodies, access),
            *pages.routes(_shown(store, options, access, stop)),
            *queries.routes(questions, access),
            *rollout_routes.routes(store.rollouts, access),
        ]
        http = http_server(Starlette(routes=routes), limits, _GRACE_S, options.tls and options.tls.http)
        async with _for_readers(store.writer.database, questions, limits), _serving(http, listener) as serving:
            if not serving.done():
                scraper.start()
                store.rollouts.start()
                gc.collect()  # existing objects stay, and need not be scanned again in a pause
                gc.freeze()
                stack.callback(gc.unfreeze)
                ready(addresses := _addresses(options, listener.getsockname()[1], grpc_port))
                log_event(_log, logging.INFO, "ready", "the receivers are listening", **addresses)
                notify(READY)
                await stop.wait(serving)
                notify(STOPPING)
                log_event(_log, logging.INFO, "stopping", "the sidecar stops: requests in progress are finished")
                await stop.drain(options.drain_time, serving)
            http.should_exit = True
            health.close()
            hurrying = asyncio.create_task(_hurry(http, stop))
            await asyncio.gather(serving, grpc_server.shutdown(_GRACE_S))
            hurrying.cancel()
    log_event(_log, logging.INFO, "stopped", "the sidecar has stopped; everything acknowledged is stored")


async def _hurry(http: uvicorn.Server, stop: StopRequests) -> None:
    """Stop waiting for requests in progress once the second stop is requested."""
    await stop.hurried.wait()
    http.force_exit = True


def _access(options: SidecarOptions) -> Access:
    return Access(options.token, requires_certificate=options.tls is not None and options.tls.requires_certificate)


def _shown(store: "StoreServer", options: SidecarOptions, access: Access, stop: StopRequests) -> pages.ShownState:
    """Return the contents of the pages."""
    return pages.ShownState(
        store.counts,
        store.ingest,
        access,
        lambda: stop.is_asked,
        lambda: {
            "store": str(options.store.resolve()),
            "forwarding": shown_in_state(options.destinations, store.forwarding.reports()),
        },
    )


@contextlib.asynccontextmanager
async def _serving(http: uvicorn.Server, listener: socket.socket) -> AsyncGenerator["asyncio.Task[None]"]:
    """Serve HTTP inside the context."""
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    try:
        while not http.started and not serving.done():  # noqa: ASYNC110 - uvicorn only sets this flag
            await asyncio.sleep(0.005)
        yield serving
    finally:
        http.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def _for_readers(
    database: Database, questions: queries.Questions, limits: ConnectionLimits
) -> AsyncGenerator[None]:
    """Answer the readers of this machine and store their decisions on rollouts, independently of the receivers'
    credentials: on a separate port with a separate token, both in a file that only this user can read."""
    with _listen(_LOOPBACK, 0) as listener:
        token = secrets.token_urlsafe(32)
        store, access = database.directory, Access(token)
        routes: Sequence[BaseRoute] = [*queries.routes(questions, access), queries.keep_route(database, access)]
        http = http_server(Starlette(routes=routes), replace(limits, connections=_OWN_CONNECTIONS), _GRACE_S)
        async with _serving(http, listener):
            owner = Owner(os.getpid(), f"http://{_LOOPBACK}:{listener.getsockname()[1]}", token)
            written, file = store / f"{OWNER_NAME}.new", store / OWNER_NAME
            write_durably(written, msgspec.json.encode(owner))
            written.replace(file)
            try:
                yield
            finally:
                file.unlink(missing_ok=True)


def _evaluator(options: SidecarOptions, objectives: Sequence[Objective]) -> RolloutEvaluator | None:
    if not options.rollouts:
        return None
    reader = StoreReader(options.store)
    return RolloutEvaluator(options.store, options.rollouts, objectives, reader, time.time_ns, options.rollout_every)


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
