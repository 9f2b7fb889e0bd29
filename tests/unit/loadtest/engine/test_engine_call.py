"""A call with its conversation, on a fake connection and a manual schedule."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.http11 import Request
from websockets.server import ServerProtocol

from loadtest.conversation.evidence import ValidityLimits
from loadtest.conversation.state import State
from loadtest.engine.call import MAX_WAITING_BYTES, Call
from loadtest.engine.clock import Clocks
from loadtest.engine.health import EngineHealth
from loadtest.engine.hub_sender import HubSender, HubStream
from loadtest.engine.transports.base import TransportCallbacks
from loadtest.engine.transports.opening import make_transport
from loadtest.engine.transports.stream import StreamTransport
from loadtest.protocols import registry
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import CallerOptions, CallerProtocol, OpenRequest
from loadtest.protocols.failure import Failure
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.websocket import Closed, WebSocketClient
from tests.unit.loadtest.conversation.world import MS, make_plan, reply

FRAME = 20 * MS


class Wire:
    """A fake connection that accepts everything or nothing; reading it calls `arrives`."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.takes = True
        self.arrives: Callable[[], object] = lambda: None
        self.outbox = SimpleNamespace(waiting_bytes=0, queued_bytes=0, drained_bytes=0)
        self.closed = None
        self.stamped, self.has_rest = False, False
        self.stamp_kind = "kernel"

    def begin(self) -> None:
        pass

    def drain(self) -> None:
        """Accept everything that waits, and everything from now on."""
        self.takes = True
        self.outbox.drained_bytes, self.outbox.waiting_bytes = self.outbox.queued_bytes, 0

    def send(self, data: bytes) -> bool:
        if self.takes:
            self.sent.append(data)
        else:
            self.outbox.waiting_bytes += len(data)
            self.outbox.queued_bytes += len(data)
        return self.takes

    def readable(self) -> None:
        arrives, self.arrives = self.arrives, lambda: None
        arrives()

    def unsent_bytes(self) -> int:
        return 0


class FakeEngine:
    """Stands in for the engine."""

    def __init__(self) -> None:
        self.clocks, self.health = Clocks(), EngineHealth()

    def hang_up(self, call: Call, reason: str) -> None:
        call.ended = True

    def internal_error(self, call: Call, error: Exception) -> None:
        raise error


class WiredTransport(StreamTransport):
    """A transport whose connection is a fake one."""

    def __init__(self, wire: Any, engine: FakeEngine, protocol: CallerProtocol) -> None:
        request = protocol.upgrade("ws://127.0.0.1:1/", None)
        parts: Any = SimpleNamespace(connections=SimpleNamespace(clocks=engine.clocks))
        super().__init__(parts, parse_address(request.url), WebSocketClient(request))
        self.wire = wire

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        self.take_over(self.wire, callbacks)


class Caller:
    """A call whose frames are sent from the hub, with a fake connection and a manual clock."""

    def __init__(self, **plan: Any) -> None:
        protocol = registry.make_caller("openai-realtime", CallerOptions())
        engine, self.wire = FakeEngine(), Wire()
        self.transport = WiredTransport(self.wire, engine, protocol)
        self.call = Call(engine, make_plan(**plan), protocol, self.transport, "rms-10ms")
        self.call.open(1.0)
        self.begin_audio(engine, FRAME)
        self.call.begin(self.now_perf_ns)

    def begin_audio(self, engine: FakeEngine, frame_ns: int) -> None:
        self.now_perf_ns, self.hub_tick = 1000 * FRAME, 0
        engine.clocks = Clocks(lambda: self.now_perf_ns, lambda: self.now_perf_ns)
        self.hub = HubSender(0, lambda: self.now_perf_ns, lambda stream, error: engine.internal_error(self.call, error))
        self.stream: HubStream = self.hub.add(self.transport, frame_ns)
        self.call.begin_audio(self.stream, self.now_perf_ns)

    @property
    def due_perf_ns(self) -> int:
        return self.stream.due_perf_ns

    def rows(self, count: int, late_ns: int = 0) -> None:
        """Send frames as the engine does, each `late_ns` late."""
        for _ in range(count):
            if self.call.ended:
                self.now_perf_ns += FRAME
                continue
            self.now_perf_ns = self.due_perf_ns + late_ns
            streams, _ = self.hub.collect(self.now_perf_ns)
            for _ in streams:
                self.call.on_sent(self.now_perf_ns)
            if self.call.ended:
                self.stream.stop()

    def speak(self) -> None:
        """Run think time and utterance, until the caller waits for the reply."""
        while self.call.conversation.state is not State.WAITING:
            self.rows(1)


def test_the_conversation_is_called_at_its_deadline() -> None:
    caller = Caller(think_ms=500)
    caller.rows(24)
    assert caller.call.conversation.state is State.THINKING
    caller.rows(1)
    assert caller.call.conversation.state is State.SPEAKING, "after 500 ms of thinking the caller speaks"


def test_speech_after_pause_is_not_put_into_overdue_frames() -> None:
    caller = Caller()
    call, clip = caller.call, caller.call.plan.turns[0].clip
    while caller.due_perf_ns < call.conversation.deadline_perf_ns:
        caller.rows(1)
    sent = len(caller.wire.sent)
    resumed_perf_ns = caller.due_perf_ns + 190 * MS  # after a pause, in which it was time to speak
    while caller.due_perf_ns <= resumed_perf_ns:
        caller.rows(1, late_ns=resumed_perf_ns - caller.due_perf_ns)
    assert call.conversation.state is State.SPEAKING
    assert not set(caller.wire.sent[sent:]) & set(clip.frames), "silence, until the schedule has been caught up with"
    caller.rows(len(clip.frames))
    assert caller.wire.sent[-len(clip.frames) :] == list(clip.frames)
    assert call.conversation.exchange.evidence.pacing.worst_ns == 0


def test_arrived_events_take_precedence_over_a_deadline() -> None:
    caller = Caller(patience_ms=400)
    caller.speak()
    caller.rows(10)
    arrival = caller.due_perf_ns
    # The reply is unread for longer than the caller's patience.
    caller.wire.arrives = lambda: [
        caller.call.perform(caller.call.conversation.on_event(event, arrival)) for event in reply(ms=3000)
    ]
    caller.rows(30)
    assert not caller.call.ended
    assert caller.call.conversation.state is State.HEARING


def test_without_a_reply_the_callers_patience_ends_the_call() -> None:
    caller = Caller(patience_ms=400)
    caller.speak()
    caller.rows(30)
    assert caller.call.ended
    assert caller.call.exchanges.get_nowait().outcome == "abandoned"


def test_an_earlier_deadline_is_met() -> None:
    caller = Caller(think_ms=10_000)
    caller.rows(2)
    caller.call.wind_down()
    caller.rows(1)
    assert caller.call.ended


def test_frame_that_socket_does_not_accept_waits_and_is_counted() -> None:
    caller = Caller(think_ms=10_000)
    caller.rows(2)
    caller.wire.takes = False
    caller.rows(3)
    assert caller.call.engine.health.frames_held_up == 3
    assert caller.call.waiting_since_perf_ns == caller.due_perf_ns - 3 * FRAME
    caller.wire.drain()
    caller.call.settle()
    assert caller.call.waiting_since_perf_ns is None
    caller.rows(3)
    assert caller.call.engine.health.frames_held_up == 3, "the socket is free again"


def _stalled(**plan: Any) -> tuple[Caller, Caller]:
    """Two callers with the same plan: the second one's endpoint stops reading in the middle of the utterance."""
    callers = Caller(**plan), Caller(**plan)
    for caller in callers:
        while not caller.call.track.in_speech:
            caller.rows(1)
    callers[1].wire.takes = False
    for caller in callers:
        caller.speak()
    return callers


def test_turn_not_read_by_endpoint_is_timed_from_due_speech() -> None:
    read, stalled = (caller.call.conversation.exchange for caller in _stalled())
    assert stalled.timeline.speech_end_perf_ns == read.timeline.speech_end_perf_ns
    assert stalled.timeline.speech_start_perf_ns == read.timeline.speech_start_perf_ns
    assert stalled.evidence.end_later_ns == 0


def test_own_lateness_shifts_timestamps_even_without_reading() -> None:
    caller, stalled = Caller(), Caller()
    stalled.wire.takes = False
    for participant, late_ns in ((caller, 0), (stalled, 7 * MS)):
        while participant.call.conversation.state is not State.WAITING:
            participant.rows(1, late_ns)
    read, unread = (participant.call.conversation.exchange for participant in (caller, stalled))
    assert unread.timeline.speech_end_perf_ns - read.timeline.speech_end_perf_ns == 7 * MS
    assert (unread.evidence.pacing.worst_ns, unread.evidence.pacing.drift_ns) == (7 * MS, 0)


def test_frame_sent_late_is_own_lateness_if_it_can_move_figure() -> None:
    caller = Caller()
    caller.call.sent_late(30 * MS)  # the background before the caller speaks
    while caller.call.conversation.state is not State.WAITING:
        caller.rows(1)
    evidence = caller.call.conversation.exchange.evidence
    assert evidence.reasons(ValidityLimits()) == ()
    caller.call.sent_late(61 * MS)
    assert evidence.pacing.worst_ns == 61 * MS
    assert evidence.reasons(ValidityLimits()) == ("frame lateness",)
    assert caller.call.engine.health.take_lateness_worst_ns() == 61 * MS


def test_frames_accepted_late_count_as_held_up_not_as_late() -> None:
    _, stalled = _stalled()
    stalled.rows(300)
    evidence = stalled.call.conversation.exchange.evidence
    assert evidence.blocked_worst_ns == 0, "not known yet"
    assert stalled.stream.held_up > 300
    oldest = stalled.call.waiting_since_perf_ns
    assert oldest is not None
    stalled.wire.drain()
    stalled.now_perf_ns = oldest + 6_000 * MS
    stalled.call.settle()
    assert stalled.call.waiting_since_perf_ns is None
    stalled.call.on_sent(stalled.now_perf_ns)
    assert evidence.blocked_worst_ns == 6_000 * MS
    assert evidence.pacing.worst_ns == 0
    assert evidence.reasons(ValidityLimits()) == ()
    assert evidence.endpoint_did_not_read(ValidityLimits())


def test_turn_that_ends_with_waiting_frames_records_their_wait() -> None:
    _, stalled = _stalled(reply_ms=10_000)
    oldest = stalled.call.waiting_since_perf_ns
    stalled.rows(600)
    assert stalled.call.ended
    exchange = stalled.call.exchanges.get_nowait()
    assert exchange.outcome == "no_reply"
    assert exchange.ended_perf_ns - exchange.timeline.speech_end_perf_ns < 10_100 * MS, "as if it had been read"
    assert exchange.evidence.blocked_worst_ns == exchange.ended_perf_ns - oldest


def test_endpoint_that_never_reads_ends_call_after_bounded_time() -> None:
    caller = Caller(think_ms=10_000_000)
    caller.rows(2)
    caller.wire.takes = False
    caller.rows(1 + 60_000 // 20)
    assert not caller.call.ended
    caller.rows(2)
    assert caller.call.ended
    exchange = caller.call.exchanges.get_nowait()
    assert exchange.outcome == "error"
    assert exchange.reason == "the endpoint did not read the caller's audio for 60 s"


def test_answers_that_an_endpoint_does_not_read_are_bounded() -> None:
    caller = Caller(think_ms=10_000_000)
    caller.rows(2)
    caller.wire.takes = False
    caller.transport._transmit(bytes(MAX_WAITING_BYTES))
    caller.rows(1)
    assert caller.call.ended


def test_loop_lateness_bounds_receive_lag_without_kernel_stamps() -> None:
    caller = Caller()
    caller.speak()
    call, evidence = caller.call, caller.call.conversation.exchange.evidence
    call.engine.health.note_tick(30 * MS, 5000 * MS)
    caller.wire.stamped = False
    caller.transport.receive(5002 * MS, 5002 * MS, b"")
    assert (evidence.receive_lag_worst_ns, evidence.receive_lag_bound_ns) == (None, 32 * MS)
    caller.transport._stamped = True
    caller.transport.receive(5001 * MS, 5004 * MS, b"")
    assert (evidence.receive_lag_worst_ns, evidence.receive_lag_bound_ns) == (3 * MS, 32 * MS)


@pytest.mark.parametrize(
    ("received", "reason"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\nno room", "the endpoint refused the connection with HTTP 503 (Busy): no room"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "the endpoint refused the connection with HTTP 503 (Busy)"),
        (b"HTTP/1.1 503 No", "the connection is gone"),
        (b"HTTP/1.1 503 Busy\r\nRetry-", "the connection is gone"),
        (b"", "the connection is gone"),
    ],
)
def test_end_of_connection_completes_refusal_without_length(received: bytes, reason: str) -> None:
    caller = Caller()
    caller.transport.secured()
    caller.transport.receive(0, 0, received)
    assert caller.call.failure is None
    caller.transport.disconnected("the connection is gone", Failure("tcp", "EOF"))
    assert caller.call.failure == reason


@pytest.mark.parametrize("ready_when_open", [True, False])
def test_session_without_ready_message_is_ready_when_open(ready_when_open: bool) -> None:
    protocol = registry.make_caller("openai-realtime", CallerOptions())
    protocol.capabilities = replace(protocol.capabilities, ready_when_open=ready_when_open)
    engine, wire = FakeEngine(), Wire()
    transport = WiredTransport(wire, engine, protocol)
    call = Call(engine, make_plan(), protocol, transport, "rms-10ms")
    call.open(1.0)
    transport.secured()
    server = ServerProtocol()
    server.receive_data(b"".join(wire.sent))
    (request,) = server.events_received()
    assert isinstance(request, Request)
    server.send_response(server.accept(request))
    transport.receive(7 * MS, 7 * MS, b"".join(server.data_to_send()))
    assert call.ready.is_set() is ready_when_open
    assert call.connect_ns == (7 * MS if ready_when_open else None)


@pytest.mark.parametrize(
    ("closed", "failure", "reason"),
    [
        (Closed(1011, "full", clean=True), Failure("endpoint_error", "full"), "(code 1011, internal error): full"),
        (
            Closed(1011, "broken", clean=True),
            Failure("close_code", "1011"),
            "(code 1011, internal error): broken; it failed by itself: see its log",
        ),
        (Closed(1005, "", clean=True), Failure("close_code", "1005"), "(code 1005)"),
        (Closed(1006, "full", clean=False), Failure("tcp", "EOF"), None),
    ],
)
def test_close_frame_reason_may_name_the_cause(closed: Closed, failure: Failure, reason: str | None) -> None:
    caller = Caller()
    caller.call.protocol.close_cause = lambda code, reason: (
        Failure("endpoint_error", reason) if (code, reason) in ((1011, "full"), (1006, "full")) else None
    )
    caller.speak()
    caller.call.note(closed, caller.due_perf_ns)
    exchange = caller.call.exchanges.get_nowait()
    assert exchange.failure == failure
    expected = "full; check the path and --protocol" if reason is None else f"the endpoint closed the call {reason}"
    assert exchange.reason is not None
    assert exchange.reason.startswith(expected)


class LinesCaller(OpenAIRealtimeCaller):
    """A protocol over TCP: what it says and hears is noted."""

    def __init__(self, framing: str) -> None:
        super().__init__(CallerOptions())
        kind = {"transport": "tcp", "framing": framing, "ready_when_open": True}
        self.capabilities = replace(self.capabilities, **kind)  # type: ignore[arg-type]  # fields of it
        self.heard: list[Any] = []

    def opened(self) -> list[bytes]:
        return [b'{"type":"describe"}\n']

    def receive(self, message: Any) -> list[Any]:
        self.heard.append(message)
        return []


def connected(framing: str = "event_lines") -> tuple[LinesCaller, Call, StreamTransport, Any]:
    protocol, engine, wire = LinesCaller(framing), FakeEngine(), Wire()
    parts: Any = type("Parts", (), {"connections": engine, "max_message_bytes": 1000, "mask": "fixed"})
    transport = make_transport(parts, protocol, OpenRequest("tcp://127.0.0.1:10300"))
    assert isinstance(transport, StreamTransport)
    call = Call(engine, make_plan(), protocol, transport, "rms-10ms")
    transport.take_over(wire, call)  # type: ignore[arg-type]  # a fake connection
    transport.secured()
    return protocol, call, transport, wire


def test_the_call_is_open_with_the_connection() -> None:
    protocol, call, transport, wire = connected()
    assert wire.sent == [b'{"type":"describe"}\n']
    assert call.ready.is_set()
    transport.receive(MS, MS, b'{"type":"info","payload_length":3}\nab')
    assert protocol.heard == []
    transport.receive(MS, MS, b'c{"type":')
    assert protocol.heard == [b'{"type":"info","payload_length":3}\nabc']


def test_unreadable_framing_ends_the_call() -> None:
    _, call, transport, _ = connected("length_prefixed")
    transport.receive(MS, MS, (1001).to_bytes(4, "big"))
    assert call.ended
    exchange = call.exchanges.get_nowait()
    assert exchange is not None
    assert exchange.reason == ("a message of 1001 bytes is longer than voiceprobe takes: its own limit is 1000 bytes")
