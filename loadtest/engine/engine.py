"""The engine: one per worker process, moving all of its callers' audio in real time on the gevent hub.

Only the engine owns sockets and clocks. A 1 ms tick sends the frames that are due. Incoming data is read and decoded
between two ticks; what is still unread when the next tick is due waits in the kernel, which has timestamped it. A
caller's greenlet only waits.
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
from loadtest.engine.connection import Connection, ConnectionParts, OpenedSocket, broken_by
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


class _ConnectionFailed(EndpointUnreachable):
    """No connection could be opened; `failure` is the cause."""

    def __init__(self, sentence: str, failure: Failure) -> None:
        super().__init__(sentence)
        self.failure = failure


def _cause_of(error: OSError | UnicodeError) -> Failure:
    """Return why no TCP connection could be opened."""
    if isinstance(error, socket_names.gaierror):
        return Failure("dns", _LOOKUP_FAULTS.get(error.errno or 0))
    if isinstance(error, UnicodeError):
        return Failure("dns", "bad_name")
    return Failure("timeout", "connect") if isinstance(error, TimeoutError) and not error.errno else broken_by(error)


class Engine:
    """Moves audio for all calls of this process. Create it once, in the process's main greenlet."""

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
        loop: Any = gevent.get_hub().loop
        base = self.clocks.perf_ns()
        self._base_perf_ns = base
        self._ticks_served = 0
        self._offset_at_tick = _OFFSET_EVERY_TICKS
        self._wheel: TimingWheel[Call] = TimingWheel(base, frame_ns)
        self._watch = SocketWatch(loop, self.clocks.perf_ns)
        self._connection_parts = ConnectionParts(loop, self._watch, self.clocks)
        self._lateness_ns: list[int] = []  # of the frames of this tick
        self._descriptors = Descriptors()
        self._descriptors.allow_many()
        self._calls: set[Call] = set()
        self._winding_down = False
        self.cut_by = "the end of the caller"  # named as the cause when a caller is ended from outside
        self._ticker = Ticker(loop, self._tick, base)

    @property
    def pacer(self) -> str:
        """The kind of ticker, "timerfd" or "timer": part of each turn's evidence."""
        return self._ticker.kind

    @property
    def calls_in_flight(self) -> int:
        """How many calls have begun and not ended."""
        return len(self._calls)

    def wind_down(self) -> None:
        """Let current turns run to their end; no call begins another one."""
        self._winding_down = True
        for call in self._calls:
            call.wind_down()

    def break_off_all(self) -> None:
        """End every call: its current turn is cut by `cut_by` and stays in the call's `exchanges` to be recorded."""
        for call in tuple(self._calls):
            call.break_off(self.cut_by, self.clocks.perf_ns())

    def close(self) -> None:
        """Stop ticking."""
        self._ticker.close()
        self._watch.close()

    # On the hub: no greenlet switch may happen here.

    def _tick(self) -> None:
        now = self.clocks.perf_ns()
        tick = (now - self._base_perf_ns) // TICK_NS
        if self._calls:  # without calls, a late tick delays nothing
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
        """Send a frame for each caller of a slot. This runs for every frame; the common path calls only `write`."""
        perf_ns, note_lateness, due = self.clocks.perf_ns, self._lateness_ns.append, slot.due_perf_ns
        for call, write, frame, counted in slot.take_row(began_perf_ns):
            now = perf_ns()
            lateness = now - due
            if frame is None:
                if not self._send_special(call, due, now):
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

    def _send_special(self, call: Call, due_perf_ns: int, now_perf_ns: int) -> bool:
        """Send a frame that was not scheduled ahead; return whether there was one."""
        try:
            return call.send_frame(due_perf_ns, now_perf_ns)
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            self.internal_error(call, error)
            return False

    def _refused(self, call: Call, error: OSError) -> int:
        """Handle a socket error and return how many bytes were sent: none. A broken connection ends the call."""
        if call.connection is not None:
            call.connection.refused(error)
        return 0

    def internal_error(self, call: Call, error: Exception) -> None:
        """End one call because of an internal error of the load generator, and log it."""
        _log.error("an internal error of the load generator ended one call", exc_info=error)
        if call.conversation.exchange is not None:
            call.conversation.exchange.evidence.note_fault("generator fault")
        reason = f"the load generator failed: {type(error).__name__}: {error}"
        call.lost(reason, self.clocks.perf_ns(), Failure("generator", "fault"))

    def hang_up(self, call: Call, reason: str) -> None:
        """End a call: nothing more is sent or decoded."""
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

    # In the callers' greenlets.

    def call(
        self,
        plan: CallPlan,
        protocol: CallerProtocol,
        request: UpgradeRequest,
        began: Callable[[Call], None] = lambda call: None,
    ) -> Iterator[tuple[Call, Exchange]]:
        """Make one call and yield each of its exchanges as it ends. Blocks only the calling greenlet.

        A call that cannot be connected yields one exchange with the outcome `error` and the reason. If the greenlet
        ends before the call does, the current turn is cut at once and left in the call's `exchanges`. `began` is called
        with the call before it is connected.
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
        """Open a session, close it again and return how long it took until the session was ready, in ns.

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
        except _ConnectionFailed as error:
            call.fail_to_connect(str(error), self.clocks.perf_ns(), error.failure)
            return
        except InstrumentError as error:
            call.fault = "out of descriptors"
            call.fail_to_connect(str(error), self.clocks.perf_ns(), Failure("generator", "descriptors"))
            return
        if not call.ready.wait(limits.ready_ns / 1e9):
            assert call.connection is not None  # noqa: S101 - opened above, and only `_end` detaches it
            reason, failure = call.connection.no_session_reason(limits.ready_ns / 1e9)
            call.fail_to_connect(reason, self.clocks.perf_ns(), failure)

    def _open(self, request: UpgradeRequest, call: Call, timeout_s: float) -> Connection:
        address = parse_address(request.url)
        try:
            opened = gevent.socket.create_connection((address.host, address.port), timeout=timeout_s)
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            shortage = self._descriptors.shortage(error) if isinstance(error, OSError) else None
            if shortage is not None:
                raise InstrumentError(shortage) from error
            detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
            sentence = f"cannot connect to {address.host}:{address.port}: {detail}"
            raise _ConnectionFailed(sentence, _cause_of(error)) from error
        family = int(opened.family)
        descriptor = opened.detach()
        try:
            tls = (self._tls or TlsClient()).begin(address.host) if address.tls else None
            socket = OpenedSocket(descriptor, family, f"{address.host}:{address.port}", tls)
            return Connection(self._connection_parts, socket, call)
        except (OSError, ssl.SSLError, ValueError) as error:
            sentence = f"cannot set up TLS to {address.host}:{address.port}: {error}"
            raise _ConnectionFailed(sentence, Failure("tls", code_of(getattr(error, "reason", None)))) from error

    def _end(self, call: Call, reason: str) -> None:
        """Hang up and wait for the endpoint to close: the kernel resets a connection closed with unread data."""
        self.hang_up(call, reason)
        connection = call.detach_connection()
        if connection is None:
            return
        deadline = self.clocks.perf_ns() + call.plan.limits.close_ns
        while connection.closed is None and self.clocks.perf_ns() < deadline:
            gevent.sleep(0.005)
        connection.close()
