"""The engine: one per worker process, moving all of its callers' audio in real time on the gevent hub.

Only the engine owns sockets and clocks. The pacer thread sends the frames of the sockets that it can write to
(`pacer`), and a tick of the hub accounts for what it has sent; the frames of the other calls are sent by that tick
itself (`hub_sender`). Incoming data is read and decoded between two ticks; what is still unread when the next tick is
due waits in the kernel, which has timestamped it. A caller's greenlet only waits.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import gevent
from msgspec.structs import replace

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import CallPlan, Limits
from loadtest.engine.audio_track import FrameStream
from loadtest.engine.call import Call
from loadtest.engine.call_audio.keeper import CallAudioKeeper
from loadtest.engine.clock import Clocks
from loadtest.engine.connection import ConnectionParts
from loadtest.engine.health import EngineHealth
from loadtest.engine.hub_sender import HubSender, HubStream
from loadtest.engine.local_limits import Exhausted, LocalLimits
from loadtest.engine.pacer import PacedSocket, Pacer
from loadtest.engine.ticker import Ticker
from loadtest.engine.tls import TlsClient
from loadtest.engine.transports.base import ConnectionFailed, NobodyConnected, Transport, TransportParts
from loadtest.engine.transports.opening import make_transport
from loadtest.engine.transports.prior_request import answer_of
from loadtest.engine.transports.stream import StreamTransport
from loadtest.engine.watch import SocketWatch
from loadtest.engine.webrtc.media_process import LIVEKIT, MediaProcess
from loadtest.errors import InstrumentError, UsageError
from loadtest.protocols.base import CallerProtocol, EventKind, Incoming, OpenRequest, PriorRequest, VoiceEvent
from loadtest.protocols.failure import Failure, OpeningRefused, SessionRefused, retry_after_of_headers
from loadtest.protocols.foreign import sent_instead
from loadtest.protocols.headers import kept_headers
from loadtest.protocols.transports.masked_frames import FIXED


class FirstMessages:
    """A caller's protocol, until it has understood a message. `strange` names one before that of another protocol."""

    def __init__(self, caller: CallerProtocol) -> None:
        self._caller = caller
        self._understood = False
        self.strange: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)

    def receive(self, message: Incoming) -> Sequence[VoiceEvent]:
        """Decode one message."""
        events = self._caller.receive(message)
        if not self._understood and self.strange is None and isinstance(message, str | bytes):
            self._understood = not all(map(_is_strange, events))
            self.strange = None if self._understood else sent_instead(message)
        return events


def _is_strange(event: VoiceEvent) -> bool:
    malformed = event.failure is not None and event.failure.code in ("malformed_message", "stray_binary")
    return event.kind is EventKind.UNKNOWN or (event.kind is EventKind.ERROR and malformed)


_log = logging.getLogger(__name__)

KIND: Final = "thread"
_OFFSET_EVERY_NS: Final = 1_000_000_000
GREETING_NS: Final = 500_000_000


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
        mask: str = FIXED,
        pacer: Pacer | None = None,
    ) -> None:
        """`mask` is that of the calls' prepared frames, of `masked_frames.MASKS`. Without `pacer`, the hub sends."""
        self.clocks = clocks or Clocks()
        self.health = EngineHealth()
        self.keeper: CallAudioKeeper | None = None  # where calls are to be kept
        self._frame_ns = frame_ns
        self._onset_preset = onset_preset
        loop: Any = gevent.get_hub().loop
        base = self.clocks.perf_ns()
        self._offset_at_perf_ns = base + _OFFSET_EVERY_NS
        self._watch = SocketWatch(loop, self.clocks.perf_ns, self._note_looked)
        limits = LocalLimits()
        limits.allow_many_files()
        connections = ConnectionParts(loop, self._watch, self.clocks)
        self._webrtc, self._rooms = MediaProcess(connections), MediaProcess(connections, LIVEKIT)
        self._transport_parts = TransportParts(
            connections, self._webrtc, self._rooms, limits, tls, max_message_bytes, mask
        )
        self._pacer = pacer
        self._rest_ticks = 2 if pacer is None else 4  # from one tick to the next while the hub sends no frames
        self._hub = HubSender(base, self.clocks.perf_ns, self._not_sent)
        self._sending: dict[FrameStream, Call] = {}
        self._calls: set[Call] = set()
        self._winding_down = False
        self.cut_by = "the end of the caller"  # named as the cause when a caller is ended from outside
        self._ticker = Ticker(loop, self._tick, base)
        self._tick_due_perf_ns = self._ticker.next_perf_ns(base)

    @property
    def pacer(self) -> str:
        """The sender of the frames, "thread", "timerfd" or "timer": part of each turn's evidence."""
        return self._ticker.kind if self._pacer is None else KIND

    def pacer_of(self, call: Call) -> str:
        """Likewise, of a call."""
        return KIND if isinstance(call.track.stream, PacedSocket) else self._ticker.kind

    @property
    def calls_in_flight(self) -> int:
        """Number of calls that have begun and not ended."""
        return len(self._calls)

    def wind_down(self) -> None:
        """Begin no further turns; current ones run to their end."""
        self._winding_down = True
        for call in self._calls:
            call.wind_down()

    def break_off_all(self) -> None:
        """End every call: its current turn is cut by `cut_by` and stays in the call's `exchanges` to be recorded."""
        for call in tuple(self._calls):
            call.break_off(self.cut_by, self.clocks.perf_ns())

    def close(self) -> None:
        """Stop ticking, and end the processes of calls over WebRTC and in rooms."""
        self._ticker.close()
        if self._pacer is not None:
            self._pacer.close()
        self._webrtc.close()
        self._rooms.close()
        self._watch.close()

    # On the hub: no greenlet switch may happen here.

    def _tick(self) -> None:
        now = self.clocks.perf_ns()
        if self._calls:  # without calls, a late tick delays nothing
            self.health.note_tick(max(0, now - self._tick_due_perf_ns), now)
        # With nothing to send, a tick only accounts for what the thread has sent, and serves deadlines.
        self._ticker.space(self._hub.spacing_ticks if self._hub.streams else self._rest_ticks, now)
        self._tick_due_perf_ns = self._ticker.next_perf_ns(now)
        self._account(*self._hub.collect(now))
        if self._pacer is not None:
            if self._pacer.has_failed:
                self._end_paced(RuntimeError("the pacer thread has ended"))
            self._account(*self._pacer.collect(now))
        self._watch.tick(self._tick_due_perf_ns)
        if self.keeper is not None:
            self.keeper.send(now)
        if now >= self._offset_at_perf_ns:
            self._offset_at_perf_ns = now + _OFFSET_EVERY_NS
            self.clocks.measure()

    def _account(self, streams: Sequence[FrameStream], lateness_ns: list[int]) -> None:
        """Account for what has been sent, and serve the calls of the streams that have news."""
        self.health.note_frames(lateness_ns)
        for stream in streams:
            call = self._sending.get(stream)
            if call is None:
                continue
            try:
                call.on_sent(self.clocks.perf_ns())
            except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
                self.internal_error(call, error)

    def _note_looked(self, looked_perf_ns: int) -> None:
        self.health.note_looked(looked_perf_ns)

    def _not_sent(self, stream: HubStream, error: Exception) -> None:
        call = self._sending.get(stream)
        if call is not None:
            self.internal_error(call, error)

    def _end_paced(self, error: Exception) -> None:
        for stream, call in tuple(self._sending.items()):
            if not isinstance(stream, HubStream):
                self.internal_error(call, error)

    def _begin_audio(self, call: Call, transport: Transport) -> None:
        """Begin to send a call's background: by the pacer thread where it can, else from the hub."""
        stream: FrameStream | None = None
        if self._pacer is not None and isinstance(transport, StreamTransport):
            stream = transport.pace(self._pacer, self._frame_ns)
        if stream is None:
            stream = self._hub.add(transport, self._frame_ns)
        self._sending[stream] = call
        call.begin_audio(stream, self.clocks.perf_ns())

    def internal_error(self, call: Call, error: Exception) -> None:
        """End one call because of an internal error of the load generator, and log it."""
        _log.error("an internal error of the load generator ended one call", exc_info=error)
        reason = f"the load generator failed: {type(error).__name__}: {error}"
        call.lost(reason, self.clocks.perf_ns(), Failure("generator", "fault"))

    def hang_up(self, call: Call, reason: str) -> None:
        """End a call: nothing more is sent or decoded."""
        if call.ended:
            return
        stream = call.track.stop(self.clocks.perf_ns())
        if stream is not None:
            self._sending.pop(stream, None)
        transport = call.transport
        if transport is not None and transport.is_open:
            for message in call.protocol.goodbye():
                transport.send(message)
        if transport is not None:
            transport.hang_up(reason)
        call.ended = True
        call.exchanges.put(None)
        call.ready.set()

    # In the callers' greenlets.

    def new_call(self, plan: CallPlan, protocol: CallerProtocol, request: OpenRequest) -> Call:
        """Create a call that is not connected yet.

        Raises UsageError for a request that cannot be made, and InstrumentError where what carries it does not start.
        It has no transport where the answer to a request before the connection says which.
        """
        transport = None if request.prior is not None else make_transport(self._transport_parts, protocol, request)
        call = Call(self, plan, protocol, transport, self._onset_preset)
        call.url = request.url
        return call

    def call(
        self,
        plan: CallPlan,
        protocol: CallerProtocol,
        request: OpenRequest,
        began: Callable[[Call], None] = lambda call: None,
    ) -> Iterator[tuple[Call, Exchange]]:
        """Make one call and yield each of its exchanges as it ends. Blocks only the calling greenlet.

        A call that cannot be connected yields one exchange with the outcome `error` and the reason; its record is
        invalid if this machine prevented it. If the greenlet
        ends before the call does, the current turn is cut at once and left in the call's `exchanges`. `began` is called
        with the call before it is connected.
        """
        prevented: InstrumentError | None = None
        try:
            call = self.new_call(plan, protocol, request)
        except InstrumentError as error:
            prevented, call = error, Call(self, plan, protocol, None, self._onset_preset)
        self._calls.add(call)
        if plan.manual_turns:
            self._rest_ticks = 2  # the endpoint learns with a tick that the caller has finished
        began(call)
        if self._winding_down:
            call.wind_down()
        try:
            if prevented is None:
                self._connect(call, request)
            else:
                call.began_perf_ns = self.clocks.perf_ns()
                self._prevent(call, prevented)
            if call.failure is None and call.transport is not None:
                self.health.calls_connected += 1
                self._begin_audio(call, call.transport)
                call.begin(self.clocks.perf_ns())
            else:
                self.health.calls_failed_to_connect += 1
            while (exchange := call.exchanges.get()) is not None:
                yield call, exchange
        finally:
            call.break_off(self.cut_by, self.clocks.perf_ns())
            self._calls.discard(call)
            self._end(call, "the caller left")

    def probe(self, protocol: CallerProtocol, request: OpenRequest, limits: Limits) -> int:
        """Open a session, close it again and return how long it took until the session was ready, in ns.

        A wire on which nothing says that a session is ready is listened to for a moment: an endpoint of another one
        mostly closes the connection, or greets in its own way.

        Raises SessionRefused with the reason and the cause, and InstrumentError if the reason is this machine's own.
        Blocks only the calling greenlet.
        """
        heard = FirstMessages(protocol)
        call = self.new_call(CallPlan("probe", (), (b"",), limits), cast("CallerProtocol", heard), request)
        try:
            self._connect(call, request)
            if call.cause is not None and call.cause.kind == "generator":
                raise InstrumentError(call.failure or "the load generator failed")
            until_perf_ns = self.clocks.perf_ns() + (GREETING_NS if protocol.capabilities.ready_when_open else 0)
            while self.clocks.perf_ns() < until_perf_ns and not call.ended and heard.strange is None:
                gevent.sleep(0.01)
            if call.connect_ns is not None and not call.ended and heard.strange is None:
                return call.connect_ns
            reason = call.failure or call.lost_by or "the endpoint does not speak this protocol"
            instead = "" if heard.strange is None else f"; {heard.strange}"
            raise SessionRefused(f"{reason}{instead}", call.cause)
        finally:
            self._end(call, "the endpoint answers")

    def _connect(self, call: Call, request: OpenRequest) -> None:
        limits = call.plan.limits
        call.began_perf_ns = self.clocks.perf_ns()
        try:
            if request.prior is not None and not self._find_transport(call, request.prior):
                return
            call.connect_began_perf_ns = self.clocks.perf_ns()
            call.open(limits.connect_ns / 1e9)
        except (ConnectionFailed, OpeningRefused) as error:
            if isinstance(error, NobodyConnected) and self.health.calls_connected:
                # An endpoint that connects to its caller takes one call, which is over: no other one was promised.
                call.break_off(f"the wait of {error.wait_s:g} s for another endpoint", self.clocks.perf_ns())
                return
            call.fail_to_connect(str(error), self.clocks.perf_ns(), error.failure)
            return
        except InstrumentError as error:
            self._prevent(call, error)
            return
        if not call.ready.wait(limits.ready_ns / 1e9):
            assert call.transport is not None  # noqa: S101 - opened above, and only `_end` detaches it
            awaited = call.protocol.awaited() if call.is_open else None
            reason, failure = call.transport.no_session_reason(limits.ready_ns / 1e9, awaited)
            call.fail_to_connect(reason, self.clocks.perf_ns(), failure)

    def _prevent(self, call: Call, error: InstrumentError) -> None:
        """End a call that this machine prevented."""
        failure = error.failure if isinstance(error, Exhausted) else Failure("generator", "fault")
        call.fail_to_connect(str(error), self.clocks.perf_ns(), failure)

    def _find_transport(self, call: Call, prior: PriorRequest) -> bool:
        """Make the request that precedes the connection, and give the call the transport that its answer names.

        Returns whether the call goes on. Raises ConnectionFailed, OpeningRefused and InstrumentError.
        """
        began_perf_ns = self.clocks.perf_ns()
        answer = answer_of(self._transport_parts, prior.request, call.plan.limits.ready_ns / 1e9, call.ready)
        if answer is None:
            return False
        ended_perf_ns = self.clocks.perf_ns()
        call.prior_request_ns = ended_perf_ns - began_perf_ns
        call.endpoint_headers |= kept_headers(answer.headers, "prior")
        try:
            request = prior.opening(answer)
            call.url = request.url
            call.transport = make_transport(self._transport_parts, call.protocol, request)
        except OpeningRefused as error:
            wait_ns = retry_after_of_headers(answer.headers, self.clocks.to_unix_ns(ended_perf_ns))
            raise OpeningRefused(str(error), replace(error.failure, retry_after_ns=wait_ns)) from error
        except UsageError as error:
            asked = prior.request.request_id
            sentence = f"the answer to the request {asked!r} names an address that cannot be opened: {error}"
            raise OpeningRefused(sentence, Failure("protocol_violation", "bad_address")) from error
        return True

    def _end(self, call: Call, reason: str) -> None:
        """Hang up and wait for the endpoint to close: the kernel resets a connection closed with unread data."""
        self.hang_up(call, reason)
        transport = call.detach_transport()
        if transport is None:
            return
        deadline = self.clocks.perf_ns() + call.plan.limits.close_ns
        while transport.closed is None and self.clocks.perf_ns() < deadline:
            gevent.sleep(0.005)
        transport.close()
