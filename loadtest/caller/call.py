"""One call: the glue between a connection, a protocol and the conversation. Runs on the hub and owns no clock."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import gevent.event
import gevent.queue

from loadtest.caller.clock import Clocks
from loadtest.caller.connection import Connection
from loadtest.caller.exchange import Action, EndTurn, Exchange, HangUp, Interrupt, Say
from loadtest.caller.health import EngineHealth
from loadtest.caller.line import Line, PreparedClip
from loadtest.caller.pacing import FrameSchedule, Paced
from loadtest.caller.plan import CallPlan
from loadtest.caller.playout import Speaker
from loadtest.caller.session import Session, State
from loadtest.protocols.base import CallerProtocol, EventKind, Message
from loadtest.protocols.websocket import Closed, Item, Opened, Rejected, WebSocketClient


class Switchboard(Protocol):
    """What a call asks of the engine that moves it."""

    clocks: Clocks
    health: EngineHealth

    def hang_up(self, call: "Call", reason: str) -> None:
        """End a call."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that was offered to the socket: what its lateness says, and of which exchange."""

    due_perf_ns: int
    offered_perf_ns: int
    size: int
    exchange: Exchange | None
    clip: PreparedClip | None
    index: int
    counts: bool  # whether its lateness can move a figure of the exchange
    until_bytes: int  # it is with the kernel when the outbox has drained this many


class Call(Paced):
    """A caller on the line. `exchanges` yields each finished exchange, then None."""

    __slots__ = (
        "connect_began_perf_ns",
        "connect_ns",
        "connection",
        "ended",
        "engine",
        "exchanges",
        "failure",
        "fault",
        "held",
        "line",
        "plan",
        "protocol",
        "queued",
        "ready",
        "session",
        "speaker",
        "tls_opened",
        "websocket",
    )

    def __init__(
        self,
        engine: Switchboard,
        plan: CallPlan,
        protocol: CallerProtocol,
        websocket: WebSocketClient,
        onset_preset: str,
    ) -> None:
        super().__init__(FrameSchedule(0, protocol.capabilities.frame_ms * 1_000_000))
        self.engine = engine
        self.plan = plan
        self.protocol = protocol
        self.websocket = websocket
        self.speaker = Speaker(onset_preset)
        self.session = Session(plan, self.speaker)
        self.line = Line(plan.background)
        self.exchanges: gevent.queue.SimpleQueue[Exchange | None] = gevent.queue.SimpleQueue()
        self.connection: Connection | None = None
        self.held: deque[Frame] = deque()  # frames that the socket has not taken yet
        self.ready = gevent.event.Event()
        self.fault: str | None = None  # what this machine, not the endpoint, failed in
        self.failure: str | None = None  # why the session never became ready
        self.connect_began_perf_ns = 0
        self.connect_ns: int | None = None
        self.ended = False
        self.tls_opened = False
        self.queued = False  # waits for the engine to decode what arrived

    # Outgoing audio.

    def send_frame(self) -> None:
        """Send the frame that is due, and let the conversation go on where its time has come."""
        connection = self.connection
        if connection is None or self.ended:
            return
        now_perf_ns = self.engine.clocks.perf_ns()
        due_perf_ns = self.schedule.due_perf_ns
        frame, clip, index = self.line.take()
        lateness_ns = self.schedule.advance(now_perf_ns)
        taken = connection.send(frame)
        health, session = self.engine.health, self.session
        health.note_frame(lateness_ns)
        exchange = session.exchange
        counts = exchange is not None and (
            session.state is State.WAITING or (clip is not None and index >= clip.speech_start_frame)
        )
        if not taken:
            until = connection.outbox.queued_bytes
            self.held.append(
                Frame(due_perf_ns, now_perf_ns, len(frame), exchange, clip, index, counts, until_bytes=until)
            )
            health.note_held_up(connection.outbox.waiting_bytes)
        elif exchange is not None and counts:
            exchange.evidence.note_frame(lateness_ns)
            if clip is not None and (index == clip.speech_start_frame or index == clip.speech_end_frame):
                self._mark(connection, clip, index, len(frame), now_perf_ns, lateness_ns)
        if now_perf_ns >= session.deadline_perf_ns:
            self.perform(session.on_time(now_perf_ns))

    def settle(self) -> None:
        """The socket has taken more of what it held up: only now were those frames sent."""
        connection = self.connection
        now_perf_ns = self.engine.clocks.perf_ns()
        while connection is not None and self.held and self.held[0].until_bytes <= connection.outbox.drained_bytes:
            frame = self.held.popleft()
            self._account_held(frame, now_perf_ns)
            clip, index = frame.clip, frame.index
            current = frame.exchange is not None and frame.exchange is self.session.exchange and not self.ended
            if current and clip is not None and index in (clip.speech_start_frame, clip.speech_end_frame):
                self._mark(connection, clip, index, frame.size, now_perf_ns, now_perf_ns - frame.due_perf_ns)

    def _account_held(self, frame: Frame, now_perf_ns: int) -> None:
        self.engine.health.note_lateness(now_perf_ns - frame.due_perf_ns)
        if frame.counts and frame.exchange is not None:
            frame.exchange.evidence.note_frame(now_perf_ns - frame.due_perf_ns)
            frame.exchange.evidence.note_held_up(now_perf_ns - frame.offered_perf_ns)

    def _mark(
        self, connection: Connection, clip: PreparedClip, index: int, size: int, sent_perf_ns: int, lateness_ns: int
    ) -> None:
        rendered = clip.rendered
        if index == clip.speech_start_frame:
            moment = clip.moment_perf_ns(rendered.speech_start_sample, index, sent_perf_ns)
            self.perform(self.session.on_speech_start(moment, lateness_ns))
        if index == clip.speech_end_frame:
            moment = clip.moment_perf_ns(rendered.speech_end_sample, index, sent_perf_ns)
            sample = self.line.clip_started_frame * clip.frame_samples + rendered.speech_end_sample
            position_ns = sample * 1_000_000_000 // rendered.rate_hz
            unsent_bytes = connection.unsent_bytes()
            if unsent_bytes is not None:
                self.engine.health.note_unsent(unsent_bytes)
            if self.session.exchange is not None:
                self.session.exchange.evidence.frame_bytes_at_speech_end = size
            self.perform(self.session.on_speech_end(moment, position_ns, lateness_ns, unsent_bytes))

    # Incoming data.

    def opened_socket(self, connection: Connection) -> None:
        """The TCP connection stands: begin the upgrade (after TLS, where there is TLS)."""
        self.connection = connection
        self._start_upgrade()

    def _start_upgrade(self) -> None:
        if self.connection is not None and self.connection.secured and not self.tls_opened:
            self.tls_opened = True
            self.connection.send(self.websocket.start())

    def receive(self) -> None:
        """Decode what the connection has queued."""
        connection = self.connection
        if connection is None:
            return
        self._start_upgrade()
        while connection.chunks and not self.ended:
            stamp, seen, data = connection.chunks.popleft()
            exchange = self.session.exchange
            if exchange is not None:
                if connection.stamp_kind == "kernel":
                    exchange.evidence.note_receive_lag(seen - stamp)
                if connection.clock_fault:
                    exchange.evidence.note_fault("clock step")
                    connection.clock_fault = False
            for item in self.websocket.receive(data):
                self._on_item(item, stamp)
            self._flush()
        if connection.closed is not None and not self.ended and not connection.chunks:
            self.lost(connection.closed, self.engine.clocks.perf_ns())

    def _on_item(self, item: Item, stamp_perf_ns: int) -> None:
        if isinstance(item, Opened):
            self._send_all(self.protocol.opened())
        elif isinstance(item, Rejected):
            status = f"with HTTP {item.status} " if item.status else ""
            detail = f": {item.body_excerpt}" if item.body_excerpt else ""
            self.lost(f"the endpoint refused the connection {status}({item.reason}){detail}", stamp_perf_ns)
        elif isinstance(item, Closed):
            reason = f" {item.reason}" if item.reason else ""
            self.lost(f"the endpoint closed the call ({item.code}{reason})", stamp_perf_ns)
        else:
            self._on_message(item, stamp_perf_ns)

    def _on_message(self, message: Message, stamp_perf_ns: int) -> None:
        for event in self.protocol.receive(message):
            if self.ended:
                return
            if not self.ready.is_set():
                if event.kind is EventKind.READY:
                    self.connect_ns = stamp_perf_ns - self.connect_began_perf_ns
                    self.ready.set()
                elif event.kind is EventKind.ERROR and event.fatal:
                    self.lost(event.message or "the endpoint refused the session", stamp_perf_ns)
                elif event.kind is EventKind.ERROR:
                    self.session.complain(event.message or event.raw_type)
                continue
            self.perform(self.session.on_event(event, stamp_perf_ns))

    def begin(self, now_perf_ns: int) -> None:
        """The session is ready: the line opens."""
        self.perform(self.session.begin(now_perf_ns))

    # Carrying out.

    def perform(self, actions: Iterable[Action]) -> None:
        """Carry out what the conversation decided."""
        for action in actions:
            if isinstance(action, Say):
                exchange = self.session.exchange
                if exchange is not None and exchange.evidence.clock_steps is None:
                    exchange.evidence.clock_steps = self.engine.clocks.steps
                self.line.hush()
                self.line.say(action.clip)
            elif isinstance(action, EndTurn):
                self.line.hush()
                self._send_all(self.protocol.end_turn())
            elif isinstance(action, Interrupt):
                self._send_all(self.protocol.interrupt(action.played_ms))
            elif isinstance(action, HangUp):
                self.engine.hang_up(self, action.reason)
            else:
                self._finished(action)

    def _finished(self, exchange: Exchange) -> None:
        now_perf_ns = self.engine.clocks.perf_ns()
        for frame in self.held:
            if frame.exchange is exchange:
                self._account_held(frame, now_perf_ns)
        since = exchange.timeline.speech_start_perf_ns or exchange.began_perf_ns
        exchange.evidence.loop_lag_worst_ns = self.engine.health.worst_loop_lag_since(since)
        self._check_clock(exchange)
        if self.fault is not None:
            exchange.evidence.note_fault(self.fault)
        self.exchanges.put(exchange)

    def _check_clock(self, exchange: Exchange) -> None:
        """The kernel's stamps are of the wall clock: they say nothing of a turn in which it was set."""
        clocks, connection = self.engine.clocks, self.connection
        clocks.measure()
        stepped = exchange.evidence.clock_steps not in (None, clocks.steps)
        if stepped and connection is not None and connection.stamp_kind == "kernel":
            exchange.evidence.note_fault("clock step")

    def _send_all(self, messages: Iterable[Message]) -> None:
        connection = self.connection
        if connection is not None:
            for message in messages:
                connection.send(self.websocket.send(message))

    def _flush(self) -> None:
        if self.ended:
            return
        self._send_all(self.protocol.pending())
        answer = self.websocket.take_output()
        if answer and self.connection is not None:
            self.connection.send(answer)

    def lost(self, reason: str, now_perf_ns: int) -> None:
        """The conversation cannot go on: the turn under way, or the first, fails by it."""
        if self.ended:
            return
        if not self.ready.is_set():
            self.failure = reason
        self.perform(self.session.on_closed(reason, now_perf_ns))
        self.ready.set()

    def fail_to_connect(self, reason: str, now_perf_ns: int) -> None:
        """There is no session: the caller's first turn ends in an error that says why."""
        self.failure = reason
        self.lost(reason, now_perf_ns)
