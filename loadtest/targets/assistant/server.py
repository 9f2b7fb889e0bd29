"""The WebSocket server: upgrades, limits, arrival timestamps, and one session per connection."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import DATA_OPCODES, CloseCode, Frame
from websockets.http11 import Request, Response

from loadtest.protocols.openai_realtime.service import ServiceSession
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import Assignment, AssistantConfig, Fault
from loadtest.targets.assistant.engines import Engines
from loadtest.targets.assistant.faults import FaultySender
from loadtest.targets.assistant.session import CallParts, Session, make_id
from telemetry.model import semconv
from telemetry.model.addresses import host_and_port

if TYPE_CHECKING:
    from telemetry.export.instrumentation import CallTrace
    from telemetry.export.sdk import Telemetry

_logger = logging.getLogger(__name__)
SLOW_ACCEPT_S: Final = 3.0
PATH: Final = "/v1/realtime"
_MAX_MESSAGE_BYTES: Final = 21 * 1024 * 1024  # 15 MiB of audio in base64, and its envelope


class StampedConnection(ServerConnection):
    """Records when each message's last bytes were read, before it waits in a queue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arrivals_perf_ns: deque[int] = deque()
        self.fault: Fault | None = None
        self.call_key = ""
        self.assignment = Assignment()
        self._read_perf_ns = 0

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._read_perf_ns = time.perf_counter_ns()
        super().data_received(data)

    def process_event(self, event: Any) -> None:
        """See the base class. `recv` returns messages in this order, so a queue can hold their timestamps."""
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES and event.fin:
            self.arrivals_perf_ns.append(self._read_perf_ns)
        super().process_event(event)


class AssistantServer:
    """The assistant's server. After `start`, `url` is the address for callers. `assign` decides on their cohorts."""

    def __init__(
        self,
        config: AssistantConfig,
        engines: Engines,
        clock: Clock,
        telemetry: Telemetry | None,
        assign: Callable[[str], Assignment] = lambda _: Assignment(),
    ) -> None:
        self._config = config
        self._engines = engines
        self._clock = clock
        self._telemetry = telemetry
        self._assign = assign
        self._calls = 0
        self._open = 0
        self._server: Server | None = None
        self.url = ""

    async def start(self) -> None:
        """Start listening. Raises OSError if the address is not available."""
        config = self._config
        self._server = await serve(
            self._serve_call,
            config.host,
            config.port,
            create_connection=StampedConnection,
            process_request=self._upgrade,
            select_subprotocol=_subprotocol,
            compression=None,  # it gains little on base64 audio, and its time would be measured
            max_size=_MAX_MESSAGE_BYTES,
            open_timeout=None,  # faults determine how long an upgrade takes
            ping_interval=20,
            ping_timeout=60,
            close_timeout=2,
            server_header=None,
            reuse_port=config.share_port or None,
        )
        port = next(iter(self._server.sockets)).getsockname()[1]
        self.url = f"ws://{host_and_port(config.host, port)}{PATH}"

    async def stop(self) -> None:
        """Close all calls (1001) and the port."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _upgrade(self, connection: ServerConnection, request: Request) -> Response | None:
        path = urlsplit(request.path).path
        if path == "/healthz":
            return connection.respond(HTTPStatus.OK, "ok\n")
        if path != PATH:
            return connection.respond(HTTPStatus.NOT_FOUND, f"Not found; the assistant's path is {PATH}.\n")
        if not self._allowed(request.headers):
            refused = connection.respond(HTTPStatus.UNAUTHORIZED, "The bearer token is missing or wrong.\n")
            refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        assert isinstance(connection, StampedConnection)  # noqa: S101 - `create_connection` makes no others
        connection.call_key = _asked(request, "call_id") or make_id("call")
        connection.assignment = self._assign(_asked(request, "user_id") or connection.call_key)
        variant = self._engines.variant(connection.assignment.cohort)
        connection.fault = fault = variant.config.fault_of(self._calls)
        self._calls += 1
        if fault == "refuse":
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "The assistant does not accept calls.\n")
        if fault == "half-open":
            await connection.connection_lost_waiter
        if fault == "slow-accept":
            await asyncio.sleep(SLOW_ACCEPT_S)
        return None

    def _allowed(self, headers: Headers) -> bool:
        expected = self._config.token
        if expected is None:
            return True
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode(), expected.encode())
        return scheme.lower() == "bearer" and matches

    async def _serve_call(self, connection: ServerConnection) -> None:
        if not isinstance(connection, StampedConnection) or connection.request is None:
            return
        headers = connection.request.headers
        service = ServiceSession(make_id, beta="realtime=v1" in headers.get("OpenAI-Beta", ""))
        if self._open >= self._config.max_sessions:
            message = f"all {self._config.max_sessions} sessions of this assistant are in use"
            await connection.send(
                service.error(message, code="session_limit_reached", error_type="session_limit_reached")
            )
            await connection.close(CloseCode.POLICY_VIOLATION, "session_limit_reached")
            return
        self._open += 1
        try:
            await self._converse(connection, service, headers)
        except ConnectionClosed:
            pass  # callers may hang up at any time
        finally:
            self._open -= 1

    async def _converse(self, connection: StampedConnection, service: ServiceSession, headers: Headers) -> None:
        def failed(error: BaseException) -> None:
            _logger.error("A session failed and was closed.", exc_info=error)
            connection.transport.abort()

        cohort = connection.assignment.cohort
        sender = FaultySender(connection, connection.fault)
        trace = self._trace(service.session_id, headers.get("traceparent"), connection.assignment)
        call = CallParts(connection.call_key, service, sender, trace, failed, cohort)
        session = Session(self._engines.variant(cohort), call)
        try:
            await session.begin()
            async for message in connection:
                await session.receive(message, connection.arrivals_perf_ns.popleft())
        finally:
            await session.close()

    def _trace(self, call_id: str, traceparent: str | None, assignment: Assignment) -> CallTrace | None:
        """The trace of a call; without telemetry there is none."""
        if self._telemetry is None:
            return None
        from telemetry.export.instrumentation import CallTrace

        trace = CallTrace(
            self._telemetry,
            run_id=self._config.run_id,
            call_id=call_id,
            source="service",
            started_unix_ns=self._clock.unix_ns(),
            started_perf_ns=self._clock.perf_ns(),
            attributes={} if assignment.cohort is None else {"cohort": assignment.cohort},
            parent_traceparent=traceparent,
        )
        if assignment.flag:
            trace.add_event(semconv.EVENT_FEATURE_FLAG, assignment.flag, self._clock.unix_ns())
        return trace


def _asked(request: Request, name: str) -> str | None:
    """Return what a caller says of itself in the address: `user_id` determines its cohort in all of its calls,
    `call_id` a call's draws, so that a run can be repeated, and its cohort where no user is named."""
    named = parse_qs(urlsplit(request.path).query).get(name)
    return named[0] if named else None


def _subprotocol(connection: ServerConnection, offered: Any) -> Any:
    """Select `realtime` if it is offered: browsers offer it together with subprotocols that carry credentials."""
    del connection
    return "realtime" if "realtime" in offered else None
