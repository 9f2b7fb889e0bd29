"""One call: the glue between a connection, a protocol and the conversation. Runs on the hub and owns no clock."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import gevent.event
import gevent.queue
from msgspec.structs import replace

from loadtest.conversation.conversation import NO_CHANGE, Conversation
from loadtest.conversation.exchange import Action, EndTurn, Exchange, HangUp, Interrupt, Say
from loadtest.conversation.plan import CallPlan
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.state import State
from loadtest.engine.audio_track import AudioTrack
from loadtest.engine.clock import Clocks
from loadtest.engine.connection import Connection
from loadtest.engine.health import EngineHealth
from loadtest.engine.timing_wheel import WheelEntry
from loadtest.protocols.base import CallerProtocol, EventKind, Message, VoiceEvent
from loadtest.protocols.failure import Failure, retry_after_of_headers
from loadtest.protocols.websocket import Closed, Opened, Rejected, WebSocketClient
from telemetry.model.foreign_text import one_line

# More than this never waits for one endpoint, however fast it makes us answer it: the caller then hangs up.
MOST_WAITING_BYTES: Final = 16 * 2**20


class CallHost(Protocol):
    """What a call asks of the engine that moves it."""

    clocks: Clocks
    health: EngineHealth

    def hang_up(self, call: "Call", reason: str) -> None:
        """End a call."""
        ...

    def our_fault(self, call: "Call", fault: Exception) -> None:
        """End a call for a fault of ours."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that the socket has not taken: since when, and of which exchange it is evidence."""

    offered_perf_ns: int
    exchange: Exchange | None  # None: it can move no figure
    until_bytes: int  # it is with the kernel when the outbox has drained this many


class Call:
    """A caller on the line. `exchanges` yields each finished exchange, then None."""

    __slots__ = (
        "_frame_ns",
        "connect_began_perf_ns",
        "connect_ns",
        "connection",
        "conversation",
        "ended",
        "engine",
        "entry",
        "exchanges",
        "failure",
        "fault",
        "held",
        "plan",
        "playout",
        "protocol",
        "ready",
        "receive_stamp",
        "track",
        "wake_perf_ns",
        "websocket",
    )

    def __init__(
        self,
        engine: CallHost,
        plan: CallPlan,
        protocol: CallerProtocol,
        websocket: WebSocketClient,
        onset_preset: str,
    ) -> None:
        self.engine = engine
        self.plan = plan
        self.protocol = protocol
        self.websocket = websocket
        self.playout = PlayoutBuffer(onset_preset)
        self.conversation = Conversation(plan, self.playout)
        self.entry: WheelEntry[Call] = WheelEntry(_nowhere)
        self.track = AudioTrack(plan.background, self.entry)
        self.exchanges: gevent.queue.SimpleQueue[Exchange | None] = gevent.queue.SimpleQueue()
        self.connection: Connection | None = None
        self.receive_stamp = "user"  # who says when data arrived; known for as long as the call is
        self.held: deque[Frame] = deque()  # frames that the socket has not taken yet
        self.ready = gevent.event.Event()  # the session stands, or never will
        self.fault: str | None = None  # what this machine, not the endpoint, failed in
        self.failure: str | None = None  # why the session never became ready
        self.connect_began_perf_ns = 0
        self.connect_ns: int | None = None  # how long it took until the session stood; None until it does
        self.ended = False
        self._frame_ns = protocol.capabilities.frame_ms * 1_000_000
        self.wake_perf_ns = 0  # when the conversation wants to be asked

    # Outgoing audio.

    def send_frame(self, due_perf_ns: int, now_perf_ns: int) -> bool:
        """Send the frame that is due, whatever it is, and let the conversation go on where its time has come.

        Whether there was one: what was due before the caller joined is not his.
        """
        connection, conversation = self.connection, self.conversation
        if connection is None or self.ended or due_perf_ns < self.entry.joined_perf_ns:
            return False
        frame, clip, index = self.track.take()
        lateness_ns = now_perf_ns - due_perf_ns
        exchange = conversation.exchange
        counts = exchange is not None and (
            conversation.state is State.WAITING or (clip is not None and index >= clip.speech_start_frame)
        )
        taken = connection.send(frame)
        if exchange is not None and counts:
            exchange.evidence.note_frame(lateness_ns)
        if not taken:
            self._hold(connection, exchange if counts else None, now_perf_ns)
        if counts and clip is not None and (index == clip.speech_start_frame or index == clip.speech_end_frame):
            self._mark(connection, clip, index, len(frame), now_perf_ns, lateness_ns)
        if now_perf_ns >= conversation.deadline_perf_ns:
            connection.readable()  # what has arrived counts before time does
            if not self.ended:
                self.perform(conversation.on_time(now_perf_ns))
        self._follow()
        if not connection.outbox.waiting_bytes:
            # Up to the first frame that is due when the conversation wants to be asked.
            self.track.look_ahead((self.wake_perf_ns - due_perf_ns - 1) // self._frame_ns)
        return True

    def held_up(self, frame: bytes, sent: int, counts: bool, now_perf_ns: int) -> None:
        """The socket took only so much of a frame that was laid out."""
        connection = self.connection
        if connection is None:
            return
        connection.keep(frame, sent)
        self.track.look_no_further()
        self._hold(connection, self.conversation.exchange if counts else None, now_perf_ns)

    def _hold(self, connection: Connection, exchange: Exchange | None, now_perf_ns: int) -> None:
        """The socket has not taken a frame: the endpoint does not read. It is borne for a while."""
        outbox = connection.outbox
        self.held.append(Frame(now_perf_ns, exchange, outbox.queued_bytes))
        self.engine.health.note_held_up(outbox.waiting_bytes)
        waited_ns = now_perf_ns - self.held[0].offered_perf_ns
        if waited_ns > self.plan.limits.unread_ns or outbox.waiting_bytes > MOST_WAITING_BYTES:
            reason = f"the endpoint did not read what the caller said for {waited_ns / 1e9:.0f} s"
            self.lost(reason, now_perf_ns, Failure("timeout", "not_read"))

    def _follow(self) -> None:
        """Know what the conversation wants before it is asked again."""
        conversation = self.conversation
        if conversation.deadline_perf_ns < self.wake_perf_ns:
            self.track.look_no_further()
        self.wake_perf_ns = conversation.deadline_perf_ns
        exchange = conversation.exchange
        counts = exchange is not None and (conversation.state is State.WAITING or self.track.voiced)
        self.entry.count(exchange.evidence if exchange is not None and counts else None)

    def settle(self) -> None:
        """The socket has taken more of what it held up."""
        connection = self.connection
        now_perf_ns = self.engine.clocks.perf_ns()
        while connection is not None and self.held and self.held[0].until_bytes <= connection.outbox.drained_bytes:
            frame = self.held.popleft()
            if frame.exchange is not None:
                frame.exchange.evidence.note_held_up(now_perf_ns - frame.offered_perf_ns)

    def _mark(
        self, connection: Connection, clip: PreparedClip, index: int, size: int, sent_perf_ns: int, lateness_ns: int
    ) -> None:
        rendered = clip.rendered
        if index == clip.speech_start_frame:
            moment = clip.moment_perf_ns(rendered.speech_start_sample, index, sent_perf_ns)
            self.perform(self.conversation.on_speech_start(moment, lateness_ns))
        if index == clip.speech_end_frame:
            moment = clip.moment_perf_ns(rendered.speech_end_sample, index, sent_perf_ns)
            sample = self.track.clip_started_frame * clip.frame_samples + rendered.speech_end_sample
            position_ns = sample * 1_000_000_000 // rendered.rate_hz
            unsent_bytes = connection.unsent_bytes()
            if unsent_bytes is not None:
                self.engine.health.note_unsent(unsent_bytes)
            if self.conversation.exchange is not None:
                self.conversation.exchange.evidence.frame_bytes_at_speech_end = size
            self.perform(self.conversation.on_speech_end(moment, position_ns, lateness_ns, unsent_bytes))

    # Incoming data.

    def opened_socket(self, connection: Connection) -> None:
        """The TCP connection stands."""
        self.connection = connection
        self.receive_stamp = connection.stamp_kind
        self.entry.write = connection.write
        connection.begin()

    def secured(self) -> None:
        """Begin the upgrade."""
        self._transmit(self.websocket.start())

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        """Decode what arrived, and let the conversation go on by it."""
        if self.ended:
            return
        exchange, connection = self.conversation.exchange, self.connection
        if exchange is not None and connection is not None:
            if connection.stamped:
                exchange.evidence.note_receive_lag(seen_perf_ns - stamp_perf_ns)
            else:
                exchange.evidence.note_receive_lag_bound(self.engine.health.longest_unseen_ns(seen_perf_ns))
            if connection.clock_fault:
                exchange.evidence.note_fault("clock step")
                connection.clock_fault = False
        moved = False
        for item in self.websocket.receive(data):
            if isinstance(item, (str, bytes)):
                moved = self._on_message(item, stamp_perf_ns) or moved
            else:
                self._on_item(item, stamp_perf_ns)
        self._flush()
        if moved:
            self._follow()

    def let_go(self) -> Connection | None:
        """Give up the connection, and return it. It knows its owner: if each were to be found by the other, a call that
        is over would wait for the collector, whose full round is a pause for every caller."""
        connection, self.connection, self.entry.write = self.connection, None, _nowhere
        self.websocket.let_go()
        return connection

    def disconnected(self, reason: str, failure: Failure) -> None:
        """The connection is gone: nothing more arrives."""
        if not self.ended:
            self.lost(reason, self.engine.clocks.perf_ns(), failure)

    def failed(self, fault: Exception) -> None:
        """A fault of ours ends this call, and this call alone."""
        self.engine.our_fault(self, fault)

    def _on_item(self, item: Opened | Rejected | Closed, stamp_perf_ns: int) -> None:
        if isinstance(item, Opened):
            self._send_all(self.protocol.opened())
        elif isinstance(item, Rejected):
            status = f"with HTTP {item.status} " if item.status else ""
            detail = f": {item.body_excerpt}" if item.body_excerpt else ""
            retry_after_ns = retry_after_of_headers(item.headers, self.engine.clocks.to_unix_ns(stamp_perf_ns))
            failure = replace(item.failure, retry_after_ns=retry_after_ns)
            self.lost(f"the endpoint refused the connection {status}({item.reason}){detail}", stamp_perf_ns, failure)
        else:
            reason = f" {item.reason}" if item.reason else ""
            self.lost(f"the endpoint closed the call ({item.code}{reason})", stamp_perf_ns, item.failure)

    def _on_message(self, message: Message, stamp_perf_ns: int) -> bool:
        """Whether the conversation wants other things than before."""
        moved = False
        for event in self.protocol.receive(message):
            if self.ended:
                break
            if self.connect_ns is not None:
                actions = self.conversation.on_event(event, stamp_perf_ns)
                if actions is not NO_CHANGE:
                    moved = True
                    self.perform(actions)
            else:
                self._on_first_event(event, stamp_perf_ns)
        return moved

    def _on_first_event(self, event: VoiceEvent, stamp_perf_ns: int) -> None:
        """There is no session yet."""
        if event.kind is EventKind.READY:
            self.connect_ns = stamp_perf_ns - self.connect_began_perf_ns
            self.ready.set()
        elif event.kind is EventKind.ERROR and event.fatal:
            self.lost(event.message or "the endpoint refused the session", stamp_perf_ns, event.failure)
        elif event.kind is EventKind.ERROR:
            self.conversation.note_setup_error(event.message or event.raw_type, event.failure)

    def begin(self, now_perf_ns: int) -> None:
        """The session is ready: the line opens."""
        self.perform(self.conversation.begin(now_perf_ns))
        self._follow()

    def wind_down(self) -> None:
        """Begin no further turn; one that has begun goes on to its end."""
        self.conversation.wind_down()
        self._follow()

    # Carrying out.

    def perform(self, actions: Iterable[Action]) -> None:
        """Carry out what the conversation decided."""
        for action in actions:
            if isinstance(action, Say):
                exchange = self.conversation.exchange
                if exchange is not None and exchange.evidence.clock_steps is None:
                    exchange.evidence.clock_steps = self.engine.clocks.steps
                self.track.mute()
                self.track.say(action.clip)
            elif isinstance(action, EndTurn):
                self.track.mute()
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
                exchange.evidence.note_held_up(now_perf_ns - frame.offered_perf_ns)
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
        if stepped and connection is not None and connection.stamped:
            exchange.evidence.note_fault("clock step")

    def _send_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._transmit(self.websocket.send(message))

    def _transmit(self, data: bytes) -> None:
        if self.connection is not None and not self.connection.send(data):
            self.track.look_no_further()  # frames go behind what waits

    def _flush(self) -> None:
        if self.ended:
            return
        self._send_all(self.protocol.pending())
        if self.websocket.has_output:
            self._transmit(self.websocket.take_output())

    def lost(self, reason: str, now_perf_ns: int, failure: Failure | None) -> None:
        """The conversation cannot go on: the turn under way, or the first, fails by it."""
        if self.ended:
            return
        reason = one_line(reason)  # an endpoint may have written a part of it
        if self.connect_ns is None:
            self.failure = reason
        self.perform(self.conversation.on_closed(reason, now_perf_ns, failure))
        self.ready.set()

    def break_off(self, cut_by: str, now_perf_ns: int) -> None:
        """We end the call, whatever the endpoint owes: its turn under way is over as it stands."""
        if self.ended:
            return
        connecting = self.connect_ns is None
        if connecting:
            self.failure = f"cut by {cut_by}"
        since = self.connect_began_perf_ns if connecting else None
        self.perform(self.conversation.break_off(cut_by, now_perf_ns, connecting_since_perf_ns=since))

    def fail_to_connect(self, reason: str, now_perf_ns: int, failure: Failure) -> None:
        """There is no session: the caller's first turn ends in an error that says why."""
        self.failure = one_line(reason)
        self.lost(reason, now_perf_ns, failure)


def _nowhere(frame: bytes) -> int:
    """Before there is a connection nothing is sent."""
    return len(frame)
