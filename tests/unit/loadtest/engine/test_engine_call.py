"""A call between its connection and its conversation, driven by hand."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from loadtest.conversation.evidence import ValidityLimits
from loadtest.conversation.state import State
from loadtest.engine.call import MOST_WAITING_BYTES, Call
from loadtest.engine.clock import Clocks
from loadtest.engine.health import EngineHealth
from loadtest.engine.timing_wheel import WheelSlot
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.websocket import WebSocketClient
from tests.unit.loadtest.conversation.world import MS, make_plan, reply

FRAME = 20 * MS


class Wire:
    """A connection that takes everything, or nothing, and whose `arrives` happens when it is read."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.takes = True
        self.arrives: Callable[[], object] = lambda: None
        self.outbox = SimpleNamespace(waiting_bytes=0, queued_bytes=0, drained_bytes=0)
        self.closed = None
        self.stamped = False
        self.stamp_kind = "kernel"

    def begin(self) -> None:
        pass

    def write(self, frame: bytes) -> int:
        if not self.takes:
            return 0
        self.sent.append(frame)
        return len(frame)

    def keep(self, frame: bytes, sent: int) -> None:
        self.outbox.waiting_bytes += len(frame) - sent
        self.outbox.queued_bytes += len(frame) - sent

    def drain(self) -> None:
        """It takes all that waits, and everything from now on."""
        self.takes = True
        self.outbox.drained_bytes, self.outbox.waiting_bytes = self.outbox.queued_bytes, 0

    def send(self, data: bytes) -> bool:
        if self.takes:
            self.sent.append(data)
        else:
            self.keep(data, 0)
        return self.takes

    def readable(self) -> None:
        arrives, self.arrives = self.arrives, lambda: None
        arrives()

    def unsent_bytes(self) -> int:
        return 0


class Board:
    """Stands in for the engine."""

    def __init__(self) -> None:
        self.clocks, self.health = Clocks(), EngineHealth()

    def hang_up(self, call: Call, reason: str) -> None:
        call.ended = True

    def our_fault(self, call: Call, fault: Exception) -> None:
        raise fault


class Caller:
    """A call on a slot, with a wire that is seen through."""

    def __init__(self, **plan: Any) -> None:
        protocol = registry.make_caller("openai-realtime", CallerOptions())
        websocket = WebSocketClient(protocol.upgrade("ws://127.0.0.1:1/", None))
        self.call = Call(Board(), make_plan(**plan), protocol, websocket, "rms-10ms")
        self.wire: Any = Wire()
        self.call.opened_socket(self.wire)
        self.slot: WheelSlot[Call] = WheelSlot(1000 * FRAME, FRAME)
        self.slot.add(self.call.entry, self.call, self.slot.due_perf_ns)
        self.call.begin(self.slot.due_perf_ns)

    def rows(self, count: int, late_ns: int = 0) -> list[bytes | None]:
        """Serve rows as the engine does, each of them so late; what was laid out in each."""
        laid = []
        for _ in range(count):
            due = self.slot.due_perf_ns
            for call, write, frame, counted in self.slot.take_row(due + late_ns):
                laid.append(frame)
                if frame is None:
                    call.send_frame(due, due + late_ns)
                elif (sent := write(frame)) != len(frame):
                    call.held_up(frame, sent, counted is not None, due + late_ns)
        return laid

    def speak(self) -> None:
        """Through think time and utterance, until the caller waits."""
        while self.call.conversation.state is not State.WAITING:
            self.rows(1)


def test_the_conversation_is_asked_just_when_it_wants_to_be() -> None:
    caller = Caller(think_ms=500)
    laid = caller.rows(26)
    assert caller.call.conversation.state is State.SPEAKING, "after 500 ms of thinking the caller speaks"
    asked = [number for number, frame in enumerate(laid) if frame is None]
    assert asked[-1] == 25
    assert len(asked) <= 4, "between two looks of 16 frames nobody is asked"


def test_what_has_arrived_counts_before_time_does() -> None:
    caller = Caller(patience_ms=400)
    caller.speak()
    caller.rows(10)
    heard = caller.slot.due_perf_ns
    # The reply lies unread for longer than the caller's patience.
    caller.wire.arrives = lambda: [
        caller.call.perform(caller.call.conversation.on_event(event, heard)) for event in reply(ms=3000)
    ]
    caller.rows(30)
    assert not caller.call.ended
    assert caller.call.conversation.state is State.HEARING


def test_without_anything_that_arrived_patience_ends_the_call() -> None:
    caller = Caller(patience_ms=400)
    caller.speak()
    caller.rows(30)
    assert caller.call.ended
    assert caller.call.exchanges.get_nowait().outcome == "abandoned"


def test_a_deadline_that_moves_forward_is_kept() -> None:
    caller = Caller(think_ms=10_000)
    caller.rows(2)
    assert caller.call.entry.ahead > 0
    caller.call.wind_down()
    assert caller.call.entry.ahead == 0
    caller.rows(1)
    assert caller.call.ended


def test_frames_go_behind_what_the_socket_has_not_taken() -> None:
    caller = Caller(think_ms=10_000)
    caller.rows(2)
    caller.wire.takes = False
    caller.call._transmit(b"a pong")
    assert caller.call.entry.ahead == 0, "none of them may overtake"
    assert caller.rows(3) == [None, None, None]
    assert len(caller.call.held) == 3
    caller.wire.takes, caller.wire.outbox.waiting_bytes = True, 0
    assert caller.rows(3)[1:] != [None, None], "the socket is free again"


def _stalled(**plan: Any) -> tuple[Caller, Caller]:
    """Two callers of the same plan: one whose endpoint reads, and one whose endpoint reads no more from the middle of
    the utterance on."""
    callers = Caller(**plan), Caller(**plan)
    for caller in callers:
        while not caller.call.track.voiced:
            caller.rows(1)
    callers[1].wire.takes = False
    for caller in callers:
        caller.speak()
    return callers


def test_a_turn_whose_endpoint_does_not_read_is_timed_from_when_its_speech_was_due() -> None:
    read, stalled = (caller.call.conversation.exchange for caller in _stalled())
    assert stalled.timeline.speech_end_perf_ns == read.timeline.speech_end_perf_ns
    assert stalled.timeline.speech_start_perf_ns == read.timeline.speech_start_perf_ns
    assert stalled.evidence.end_lateness_ns == 0


def test_our_own_lateness_moves_the_points_of_a_turn_also_where_the_endpoint_does_not_read() -> None:
    caller, stalled = Caller(), Caller()
    stalled.wire.takes = False
    for each, late_ns in ((caller, 0), (stalled, 7 * MS)):
        while each.call.conversation.state is not State.WAITING:
            each.rows(1, late_ns)
    read, unread = (each.call.conversation.exchange for each in (caller, stalled))
    assert unread.timeline.speech_end_perf_ns - read.timeline.speech_end_perf_ns == 7 * MS
    assert (unread.evidence.frame_lateness_worst_ns, unread.evidence.drift_ns) == (7 * MS, 0)


def test_what_the_socket_did_not_take_is_evidence_when_it_does_and_makes_nothing_late() -> None:
    _, stalled = _stalled()
    stalled.rows(300)
    evidence = stalled.call.conversation.exchange.evidence
    assert evidence.held_up_worst_ns == 0, "not known yet"
    assert len(stalled.call.held) > 300
    oldest = stalled.call.held[0].offered_perf_ns
    stalled.wire.drain()
    stalled.call.engine.clocks.perf_ns = lambda: oldest + 6_000 * MS
    stalled.call.settle()
    assert not stalled.call.held
    assert evidence.held_up_worst_ns == 6_000 * MS
    assert evidence.frame_lateness_worst_ns == 0
    assert evidence.reasons(ValidityLimits()) == ()
    assert evidence.endpoint_did_not_read(ValidityLimits())


def test_a_turn_that_ends_while_its_frames_wait_says_how_long_they_did() -> None:
    _, stalled = _stalled(reply_ms=10_000)
    oldest = stalled.call.held[0].offered_perf_ns
    stalled.call.engine.clocks.perf_ns = lambda: stalled.slot.due_perf_ns
    stalled.rows(600)
    assert stalled.call.ended
    exchange = stalled.call.exchanges.get_nowait()
    assert exchange.outcome == "no_reply"
    assert exchange.ended_perf_ns - exchange.timeline.speech_end_perf_ns < 10_100 * MS, "as if it had been read"
    assert exchange.evidence.held_up_worst_ns == exchange.ended_perf_ns + FRAME - oldest


def test_an_endpoint_that_goes_on_answering_and_never_reads_is_borne_for_a_bounded_time() -> None:
    caller = Caller(think_ms=10_000_000)
    caller.rows(2)
    caller.wire.takes = False
    caller.rows(1 + 60_000 // 20)
    assert not caller.call.ended
    caller.rows(2)
    assert caller.call.ended
    exchange = caller.call.exchanges.get_nowait()
    assert exchange.outcome == "error"
    assert exchange.reason == "the endpoint did not read what the caller said for 60 s"


def test_what_an_endpoint_makes_us_answer_without_reading_it_is_bounded() -> None:
    caller = Caller(think_ms=10_000_000)
    caller.rows(2)
    caller.wire.takes = False
    caller.call._transmit(bytes(MOST_WAITING_BYTES))
    caller.rows(1)
    assert caller.call.ended


def test_a_frame_due_before_the_caller_joined_is_not_his() -> None:
    caller = Caller()
    seat = caller.call.entry
    seat.joined_perf_ns = caller.slot.due_perf_ns + 1
    assert not caller.call.send_frame(caller.slot.due_perf_ns, caller.slot.due_perf_ns + 5)
    assert caller.wire.sent == []


def test_where_the_kernel_does_not_stamp_what_arrives_the_loops_own_lateness_bounds_its_lag() -> None:
    caller = Caller()
    caller.speak()
    call, evidence = caller.call, caller.call.conversation.exchange.evidence
    call.engine.health.note_tick(30 * MS, 5000 * MS)
    caller.wire.stamped, caller.wire.clock_fault = False, False
    call.receive(5002 * MS, 5002 * MS, b"")
    assert (evidence.receive_lag_worst_ns, evidence.receive_lag_bound_ns) == (None, 32 * MS)
    caller.wire.stamped = True
    call.receive(5001 * MS, 5004 * MS, b"")
    assert (evidence.receive_lag_worst_ns, evidence.receive_lag_bound_ns) == (3 * MS, 32 * MS)
