"""The engine: one per worker process, moving all of its callers' audio in real time on the gevent hub.

It alone owns sockets and clocks. A 1 ms tick sends the frames that are due. What arrives is read and decoded between
two ticks, and what is not read when the next one is due waits with the kernel, which has stamped it. A caller's
greenlet only waits.
"""

import logging
import socket as socket_names
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final

import gevent
import gevent.socket

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import CallPlan, Limits
from loadtest.engine.call import Call
from loadtest.engine.clock import Clocks
from loadtest.engine.connection import Connection, broken_by
from loadtest.engine.descriptors import Descriptors
from loadtest.engine.health import EngineHealth
from loadtest.engine.ticker import Ticker
from loadtest.engine.timing_wheel import TICK_NS, TimingWheel, WheelSlot
from loadtest.engine.tls import TlsClient
from loadtest.engine.watch import SocketWatch
from loadtest.errors import EndpointUnreachable, InstrumentError
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import CallerProtocol, UpgradeRequest
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.websocket import ConnectionState, WebSocketClient

_log = logging.getLogger(__name__)

_OFFSET_EVERY_TICKS: Final = 1000
_LOOKUP_FAULTS: Final = {getattr(socket_names, name): name for name in dir(socket_names) if name.startswith("EAI_")}


class _NoConnection(EndpointUnreachable):
    """There is no connection, and this is the cause."""

    def __init__(self, sentence: str, failure: Failure) -> None:
        super().__init__(sentence)
        self.failure = failure


def _cause_of(error: OSError | UnicodeError) -> Failure:
    """Why there is no TCP connection."""
    if isinstance(error, socket_names.gaierror):
        return Failure("dns", _LOOKUP_FAULTS.get(error.errno or 0))
    if isinstance(error, UnicodeError):
        return Failure("dns", "bad_name")
    return Failure("timeout", "connect") if isinstance(error, TimeoutError) and not error.errno else broken_by(error)


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
        self._wheel: TimingWheel[Call] = TimingWheel(base, frame_ns)
        self._watch = SocketWatch(self._loop, self.clocks.perf_ns)
        self._lateness_ns: list[int] = []  # of the frames of this tick
        self._descriptors = Descriptors()
        self._descriptors.allow_many()
        self._calls: set[Call] = set()
        self._winding_down = False
        self.cut_by = "the end of the caller"  # what ends the turns under way of a caller who is ended from outside
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

    def break_off_all(self) -> None:
        """End every call: what is under way is cut by `cut_by`, and waits with the call to be recorded."""
        for call in tuple(self._calls):
            call.break_off(self.cut_by, self.clocks.perf_ns())

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

    def _send(self, slot: WheelSlot[Call], began_perf_ns: int) -> None:
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
                if counted is not None and lateness > counted.frame_lateness_worst_ns:
                    counted.frame_lateness_worst_ns = lateness
                if sent != len(frame) and not call.ended:
                    call.held_up(frame, sent, counted is not None, now)
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
        if call.conversation.exchange is not None:
            call.conversation.exchange.evidence.note_fault("generator fault")
        reason = f"the generator failed: {type(fault).__name__}: {fault}"
        call.lost(reason, self.clocks.perf_ns(), Failure("generator", "fault"))

    def hang_up(self, call: Call, reason: str) -> None:
        """End a call: nothing of it is sent or decoded any more."""
        if call.ended:
            return
        self._wheel.remove(call.entry)
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
        self,
        plan: CallPlan,
        protocol: CallerProtocol,
        request: UpgradeRequest,
        began: Callable[[Call], None] = lambda call: None,
    ) -> Iterator[tuple[Call, Exchange]]:
        """Make one call and yield each of its exchanges as it ends. Blocks only the calling greenlet.

        A call that cannot be connected yields one exchange with the outcome `error` and the reason. Where the greenlet
        is ended before the call is, the turn under way is cut at once and found in the call's `exchanges`; `began` is
        given the call before anything of it happens.
        """
        websocket = WebSocketClient(request, max_message_bytes=self._max_message_bytes)
        call = Call(self, plan, protocol, websocket, self._onset_preset)
        self._calls.add(call)
        began(call)
        if self._winding_down:
            call.wind_down()
        try:
            self._connect(call, request)
            if call.failure is None:
                self.health.calls_connected += 1
                self._wheel.add(call.entry, call, self.clocks.perf_ns())
                call.begin(self.clocks.perf_ns())
            else:
                self.health.calls_failed_to_connect += 1
            while (exchange := call.exchanges.get()) is not None:
                yield call, exchange
        finally:
            call.break_off(self.cut_by, self.clocks.perf_ns())
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
        except _NoConnection as error:
            call.fail_to_connect(str(error), self.clocks.perf_ns(), error.failure)
            return
        except InstrumentError as error:
            call.fault = "out of descriptors"
            call.fail_to_connect(str(error), self.clocks.perf_ns(), Failure("generator", "descriptors"))
            return
        if not call.ready.wait(limits.ready_ns / 1e9):
            assert call.connection is not None  # noqa: S101 - it was opened above, and only `_end` gives it up
            reason, failure = call.connection.silence(limits.ready_ns / 1e9)
            call.fail_to_connect(reason, self.clocks.perf_ns(), failure)

    def _open(self, request: UpgradeRequest, call: Call, timeout_s: float) -> Connection:
        address = parse_address(request.url)
        try:
            opened = gevent.socket.create_connection((address.host, address.port), timeout=timeout_s)
        except (OSError, UnicodeError) as error:  # the second for a host name that cannot be one
            shortage = self._descriptors.shortage(error) if isinstance(error, OSError) else None
            if shortage is not None:
                raise InstrumentError(shortage) from error
            detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
            sentence = f"cannot connect to {address.host}:{address.port}: {detail}"
            raise _NoConnection(sentence, _cause_of(error)) from error
        family = int(opened.family)
        descriptor = opened.detach()
        try:
            tls = (self._tls or TlsClient()).begin(address.host) if address.tls else None
            server = f"{address.host}:{address.port}"
            return Connection(self._loop, self._watch, descriptor, family, self.clocks, tls, call, server)
        except (OSError, ssl.SSLError, ValueError) as error:
            sentence = f"cannot secure {address.host}:{address.port}: {error}"
            raise _NoConnection(sentence, Failure("tls", code_of(getattr(error, "reason", None)))) from error

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
