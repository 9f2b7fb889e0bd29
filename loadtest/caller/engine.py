"""The engine: one per worker process, moving all of its callers' audio in real time on the gevent hub.

It alone owns sockets and clocks. A 1 ms tick sends the frames that are due. What arrives is read and decoded between
two ticks, and what is not read when the next one is due waits with the kernel, which has stamped it. A caller's
greenlet only waits.
"""

import logging
import ssl
from collections.abc import Iterator
from typing import Any, Final

import gevent
import gevent.socket

from loadtest.caller.address import parse_address
from loadtest.caller.call import Call
from loadtest.caller.clock import Clocks
from loadtest.caller.connection import Connection
from loadtest.caller.descriptors import Descriptors
from loadtest.caller.exchange import Exchange
from loadtest.caller.health import EngineHealth
from loadtest.caller.pacing import TICK_NS, Slot, Wheel
from loadtest.caller.plan import CallPlan, Limits
from loadtest.caller.ticker import Ticker
from loadtest.caller.tls import TlsClient
from loadtest.caller.watch import SocketWatch
from loadtest.errors import EndpointUnreachable, InstrumentError
from loadtest.protocols.base import CallerProtocol, UpgradeRequest
from loadtest.protocols.websocket import ConnectionState, WebSocketClient

_log = logging.getLogger(__name__)

_OFFSET_EVERY_TICKS: Final = 1000


class Engine:
    """Moves audio for all calls of this process. Make it once, in the process's main greenlet."""

    def __init__(
        self,
        *,
        frame_ns: int,
        onset_preset: str,
        clocks: Clocks | None = None,
        max_message_bytes: int = 16 * 2**20,
        tls: TlsClient | None = None,
    ) -> None:
        self.clocks = clocks or Clocks()
        self.health = EngineHealth()
        self._onset_preset = onset_preset
        self._max_message_bytes = max_message_bytes
        self._tls = tls
        self._loop: Any = gevent.get_hub().loop
        base = self.clocks.perf_ns()
        self._base_perf_ns = base
        self._ticks_served = 0
        self._offset_at_tick = _OFFSET_EVERY_TICKS
        self._wheel: Wheel[Call] = Wheel(base, frame_ns)
        self._watch = SocketWatch(self._loop, self.clocks.perf_ns)
        self._lateness_ns: list[int] = []  # of the frames of this tick
        self._descriptors = Descriptors()
        self._descriptors.allow_many()
        self._calls: set[Call] = set()
        self._winding_down = False
        self._ticker = Ticker(self._loop, self._tick, base)

    @property
    def pacer(self) -> str:
        """ "timerfd" or "timer": part of each turn's evidence."""
        return self._ticker.kind

    @property
    def calls_in_flight(self) -> int:
        """Calls that were begun and have not ended."""
        return len(self._calls)

    def wind_down(self) -> None:
        """Running turns go on to their end; no call begins another one."""
        self._winding_down = True
        for call in self._calls:
            call.wind_down()

    def close(self) -> None:
        """Stop ticking."""
        self._ticker.close()
        self._watch.close()

    # The hub's side: no greenlet switch may happen here.

    def _tick(self) -> None:
        now = self.clocks.perf_ns()
        tick = (now - self._base_perf_ns) // TICK_NS
        if self._calls:  # else the loop kept nobody waiting
            self.health.note_tick(max(0, now - self._base_perf_ns - (self._ticks_served + 1) * TICK_NS), now)
        self._ticks_served = tick
        for slot in self._wheel.due(now):
            self._send(slot, now)
        if self._lateness_ns:
            self.health.note_frames(self._lateness_ns)
            self._lateness_ns.clear()
        self._watch.tick(self._base_perf_ns + (tick + 1) * TICK_NS)
        if tick >= self._offset_at_tick:
            self._offset_at_tick = tick + _OFFSET_EVERY_TICKS
            self.clocks.measure()

    def _send(self, slot: Slot[Call], began_perf_ns: int) -> None:
        """A frame for each caller of a slot. This runs once a frame: the usual way through it calls nobody."""
        perf_ns, note_lateness, due = self.clocks.perf_ns, self._lateness_ns.append, slot.due_perf_ns
        for call, write, frame, counted in slot.take_row(began_perf_ns):
            now = perf_ns()
            lateness = now - due
            if frame is None:
                if not self._ask(call, due, now):
                    continue
            else:
                try:
                    sent = write(frame)
                except OSError as error:
                    sent = self._refused(call, error)
                if sent != len(frame):
                    if not call.ended:
                        call.held_up(frame, sent, counted is not None, due, now)
                elif counted is not None and lateness > counted.frame_lateness_worst_ns:
                    counted.frame_lateness_worst_ns = lateness
            note_lateness(lateness)

    def _ask(self, call: Call, due_perf_ns: int, now_perf_ns: int) -> bool:
        """Let a call send what is due; whether there was anything."""
        try:
            return call.send_frame(due_perf_ns, now_perf_ns)
        except Exception as fault:  # noqa: BLE001 - one caller's fault of ours must not stop the others' audio
            self.our_fault(call, fault)
            return False

    def _refused(self, call: Call, error: OSError) -> int:
        """How many bytes of a frame a socket took that raised an error: none. One that is gone ends the call."""
        if call.connection is not None:
            call.connection.refused(error)
        return 0

    def our_fault(self, call: Call, fault: Exception) -> None:
        """A fault of the generator ends one call, and says so."""
        _log.error("a fault of the generator ended one call", exc_info=fault)
        if call.session.exchange is not None:
            call.session.exchange.evidence.note_fault("generator fault")
        call.lost(f"the generator failed: {type(fault).__name__}: {fault}", self.clocks.perf_ns())

    def hang_up(self, call: Call, reason: str) -> None:
        """End a call: nothing of it is sent or decoded any more."""
        if call.ended:
            return
        self._wheel.remove(call.seat)
        connection = call.connection
        if connection is not None and connection.closed is None and call.websocket.state is ConnectionState.OPEN:
            for message in call.protocol.goodbye():
                connection.send(call.websocket.send(message))
            connection.send(call.websocket.close(1000, "" if len(reason) > 100 else reason))
        call.ended = True
        call.exchanges.put(None)
        call.ready.set()

    # The caller's side: greenlets.

    def call(
        self, plan: CallPlan, protocol: CallerProtocol, request: UpgradeRequest
    ) -> Iterator[tuple[Call, Exchange]]:
        """Make one call and yield each of its exchanges as it ends. Blocks only the calling greenlet.

        A call that cannot be connected yields one exchange with the outcome `error` and the reason.
        """
        websocket = WebSocketClient(request, max_message_bytes=self._max_message_bytes)
        call = Call(self, plan, protocol, websocket, self._onset_preset)
        self._calls.add(call)
        if self._winding_down:
            call.wind_down()
        try:
            self._connect(call, request)
            if call.failure is None:
                self.health.calls_connected += 1
                self._wheel.add(call.seat, call, self.clocks.perf_ns())
                call.begin(self.clocks.perf_ns())
            else:
                self.health.calls_failed_to_connect += 1
            while (exchange := call.exchanges.get()) is not None:
                yield call, exchange
        finally:
            self._calls.discard(call)
            self._end(call, "the caller left")

    def probe(self, protocol: CallerProtocol, request: UpgradeRequest, limits: Limits) -> int:
        """Open a session and close it again; how long it took until it was ready, in ns.

        Raises EndpointUnreachable with the reason. Blocks only the calling greenlet.
        """
        websocket = WebSocketClient(request, max_message_bytes=self._max_message_bytes)
        call = Call(self, CallPlan("probe", (), (b"",), limits), protocol, websocket, self._onset_preset)
        try:
            self._connect(call, request)
            if call.connect_ns is None:
                raise EndpointUnreachable(call.failure or "the endpoint opened no session")
            return call.connect_ns
        finally:
            self._end(call, "the endpoint answers")

    def _connect(self, call: Call, request: UpgradeRequest) -> None:
        limits = call.plan.limits
        call.connect_began_perf_ns = self.clocks.perf_ns()
        try:
            call.opened_socket(self._open(request, call, limits.connect_ns / 1e9))
        except EndpointUnreachable as error:
            call.fail_to_connect(str(error), self.clocks.perf_ns())
            return
        except InstrumentError as error:
            call.fault = "out of descriptors"
            call.fail_to_connect(str(error), self.clocks.perf_ns())
            return
        if not call.ready.wait(limits.ready_ns / 1e9):
            call.fail_to_connect(
                f"the endpoint took the connection and did not open a session within {limits.ready_ns / 1e9:g} s",
                self.clocks.perf_ns(),
            )

    def _open(self, request: UpgradeRequest, call: Call, timeout_s: float) -> Connection:
        address = parse_address(request.url)
        try:
            opened = gevent.socket.create_connection((address.host, address.port), timeout=timeout_s)
        except (OSError, UnicodeError) as error:  # the second for a host name that cannot be one
            shortage = self._descriptors.shortage(error) if isinstance(error, OSError) else None
            if shortage is not None:
                raise InstrumentError(shortage) from error
            detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise EndpointUnreachable(f"cannot connect to {address.host}:{address.port}: {detail}") from error
        family = int(opened.family)
        descriptor = opened.detach()
        try:
            tls = (self._tls or TlsClient()).begin(address.host) if address.tls else None
            return Connection(self._loop, self._watch, descriptor, family, self.clocks, tls, call)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise EndpointUnreachable(f"cannot secure {address.host}:{address.port}: {error}") from error

    def _end(self, call: Call, reason: str) -> None:
        """Hang up and let the goodbye arrive: closing while data is unread would make the kernel break the connection
        off."""
        self.hang_up(call, reason)
        connection = call.let_go()
        if connection is None:
            return
        deadline = self.clocks.perf_ns() + call.plan.limits.close_ns
        while connection.closed is None and self.clocks.perf_ns() < deadline:
            gevent.sleep(0.005)
        connection.close()
