"""One call: connects a transport, a protocol and the conversation. Runs on the hub and owns no clock."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import gevent.event
import gevent.queue
from msgspec.structs import replace

from loadtest.audio.deferred_span import ScanQueue
from loadtest.conversation.conversation import NO_CHANGE, Conversation
from loadtest.conversation.exchange import Action, BeginTurn, EndTurn, Exchange, HangUp, Interrupt, Played, Say
from loadtest.conversation.plan import CallPlan
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.engine.arrival_evidence import delay_ns, note_arrival, note_late_arrival
from loadtest.engine.audio_track import AudioTrack
from loadtest.engine.clock import Clocks
from loadtest.engine.health import EngineHealth
from loadtest.engine.pacer import PacedSocket
from loadtest.engine.pacer_track import PacerTrack
from loadtest.engine.sent_frames import Frame, Sent
from loadtest.engine.timing_wheel import WheelEntry
from loadtest.engine.transports.base import Transport, TransportItem
from loadtest.protocols.advice import Attempt, advice
from loadtest.protocols.base import CallerProtocol, EventKind, Outgoing, VoiceEvent
from loadtest.protocols.endpoint_headers import kept_headers
from loadtest.protocols.failure import Failure, retry_after_of_headers
from loadtest.protocols.refusals import closed_connection, refused_upgrade
from loadtest.protocols.transports.framing import Closed, Opened, Rejected, Violation
from telemetry.model.foreign_text import one_line

# The most that may wait for one endpoint, however many answers it provokes: beyond it, the caller hangs up.
MAX_WAITING_BYTES: Final = 16 * 2**20
# What a transport passes on that is no message for the call's protocol.
_NO_MESSAGES: Final = (Opened, Rejected, Closed, Violation)


class CallHost(Protocol):
    """The interface that a call needs from the engine that runs it."""

    clocks: Clocks
    health: EngineHealth
    scans: ScanQueue  # of the audio that its calls have kept

    def hang_up(self, call: "Call", reason: str) -> None:
        """End a call."""
        ...

    def internal_error(self, call: "Call", error: Exception) -> None:
        """End a call because of an internal error."""
        ...


class Call:
    """One call and everything that belongs to it. `exchanges` yields each finished exchange, then None."""

    __slots__ = (
        "_frame_ns",
        "began_perf_ns",
        "cause",
        "connect_began_perf_ns",
        "connect_earlier_ns",
        "connect_ns",
        "conversation",
        "ended",
        "endpoint_headers",
        "engine",
        "entry",
        "exchanges",
        "failure",
        "held",
        "is_open",
        "lost_by",
        "paced",
        "plan",
        "playout",
        "prior_request_ns",
        "protocol",
        "ready",
        "receive_stamp",
        "track",
        "transport",
        "url",
        "wake_perf_ns",
    )

    def __init__(
        self,
        engine: CallHost,
        plan: CallPlan,
        protocol: CallerProtocol,
        transport: Transport | None,
        onset_preset: str,
    ) -> None:
        """Without a transport, `transport` is set before `open` is called."""
        self.engine = engine
        self.plan = plan
        self.protocol = protocol
        self.transport = transport  # None when the call has let go of it, or has none yet
        self.playout = PlayoutBuffer(onset_preset, engine.scans)
        self.conversation = Conversation(plan, self.playout, WireTraits.of(protocol.capabilities))
        self.entry: WheelEntry[Call] = WheelEntry(_discard)
        self.track: AudioTrack | PacerTrack = AudioTrack(plan.background, self.entry)
        self.paced: PacerTrack | None = None  # the track, where the pacer thread sends its frames
        self.exchanges: gevent.queue.SimpleQueue[Exchange | None] = gevent.queue.SimpleQueue()
        self.receive_stamp = "user"  # the source of receive timestamps; stays valid after the transport is gone
        self.held: deque[Frame] = deque()  # frames that the socket has not accepted yet
        self.ready = gevent.event.Event()  # the session is ready, or has failed
        self.failure: str | None = None  # why the session never became ready
        self.lost_by: str | None = None  # why the call could not go on, and the cause of that
        self.cause: Failure | None = None
        self.is_open = False  # messages can be sent: the connection, and its handshake, are complete
        self.url = ""  # of the request that opens the transport
        self.began_perf_ns = 0  # when the caller began to call
        self.prior_request_ns: int | None = None  # how long the request before the connection took, if there was one
        self.connect_began_perf_ns = 0
        self.connect_ns: int | None = None  # how long it took until the session was ready; None until then
        self.connect_earlier_ns = 0  # how much less it can have taken without our own delays
        self.endpoint_headers: dict[str, str] = {}  # of the responses that led to the connection: those that are kept
        self.ended = False
        self._frame_ns = protocol.capabilities.frame_ms * 1_000_000
        self.wake_perf_ns = 0  # the conversation's next deadline

    # Outgoing audio.

    def send_frame(self, due_perf_ns: int, now_perf_ns: int) -> bool:
        """Send the frame that is due, and advance the conversation if its deadline has passed.

        Returns whether a frame was sent: frames that were due before the caller joined are skipped.
        """
        transport, conversation, track = self.transport, self.conversation, self.track
        if transport is None or self.ended or due_perf_ns < self.entry.joined_perf_ns or isinstance(track, PacerTrack):
            return False
        frame, clip, index = track.take()
        exchange = conversation.exchange
        counts = exchange is not None and (
            conversation.state is State.WAITING or (clip is not None and index >= clip.speech_start_frame)
        )
        at_end = clip is not None and index == clip.speech_end_frame
        taken = transport.send_frame(frame)
        gone_perf_ns = self.engine.clocks.perf_ns()
        if exchange is not None and counts:
            if clip is not None and index == clip.speech_start_frame:
                exchange.evidence.pacing.begin(due_perf_ns, self._frame_ns)
            exchange.evidence.pacing.lateness_ns.append(gone_perf_ns - due_perf_ns)
        if not taken:
            self._hold(transport, exchange if counts else None, now_perf_ns)
        if counts and clip is not None and (at_end or index == clip.speech_start_frame):
            unsent_bytes = transport.unsent_bytes() if at_end else None
            sent = Sent(index, now_perf_ns, gone_perf_ns, unsent_bytes, transport.frame_bytes)
            if index == clip.speech_start_frame:
                self._mark_start(transport, clip, sent)
            if at_end:
                self._mark_end(transport, clip, sent)
        if now_perf_ns >= conversation.deadline_perf_ns:
            transport.readable()  # events that have arrived take precedence over the deadline
            if not self.ended:
                self.perform(conversation.on_time(now_perf_ns))
        self._follow()
        if not transport.outbox.waiting_bytes:
            # Up to the first frame that is due at the conversation's deadline.
            track.schedule_ahead((self.wake_perf_ns - due_perf_ns - 1) // self._frame_ns)
        return True

    def held_up(self, frame: bytes, sent: int, counts: bool, now_perf_ns: int) -> None:
        """Handle a scheduled frame of which the socket accepted only `sent` bytes."""
        transport = self.transport
        if transport is None:
            return
        transport.keep(frame, sent)
        self.track.clear_ahead()
        self._hold(transport, self.conversation.exchange if counts else None, now_perf_ns)

    def _hold(self, transport: Transport, exchange: Exchange | None, now_perf_ns: int) -> None:
        """Record a frame that the socket did not accept; end the call if the endpoint does not read for too long."""
        outbox = transport.outbox
        self.held.append(Frame(now_perf_ns, exchange, outbox.queued_bytes))
        self.engine.health.note_held_up(outbox.waiting_bytes)
        self._check_unread(outbox.waiting_bytes, now_perf_ns)

    def _follow(self) -> None:
        """Take over the conversation's deadline and what the scheduled frames count for."""
        conversation = self.conversation
        if conversation.deadline_perf_ns < self.wake_perf_ns:
            self.track.clear_ahead()
        self.wake_perf_ns = conversation.deadline_perf_ns
        exchange = conversation.exchange
        counts = exchange is not None and (conversation.state is State.WAITING or self.track.in_speech)
        if self.paced is not None:
            self.paced.count(exchange.evidence if exchange is not None and counts else None)
            self.paced.socket.set_deadline(self.wake_perf_ns)
            return
        self.entry.count(exchange.evidence.pacing.lateness_ns if exchange is not None and counts else None)

    def settle(self) -> None:
        """Record how long the frames waited that the socket has accepted by now."""
        transport = self.transport
        now_perf_ns = self.engine.clocks.perf_ns()
        while transport is not None and self.held and self.held[0].until_bytes <= transport.outbox.drained_bytes:
            frame = self.held.popleft()
            if frame.exchange is not None:
                frame.exchange.evidence.note_blocked(now_perf_ns - frame.offered_perf_ns)

    def _mark_start(self, transport: Transport, clip: PreparedClip, sent: Sent) -> None:
        later_ns = sent.gone_perf_ns - sent.sent_perf_ns + transport.hand_over_ns
        moment = clip.moment_perf_ns(clip.rendered.speech_start_sample, sent.index, sent.sent_perf_ns)
        self.perform(self.conversation.on_speech_start(moment, later_ns))

    def _mark_end(self, transport: Transport, clip: PreparedClip, sent: Sent) -> None:
        rendered, unsent_bytes = clip.rendered, sent.unsent_bytes
        later_ns = sent.gone_perf_ns - sent.sent_perf_ns + transport.hand_over_ns
        moment = clip.moment_perf_ns(rendered.speech_end_sample, sent.index, sent.sent_perf_ns)
        sample = self.track.clip_started_frame * clip.frame_samples + rendered.speech_end_sample
        position_ns = sample * 1_000_000_000 // rendered.rate_hz
        if unsent_bytes is not None:
            self.engine.health.note_unsent(unsent_bytes)
        exchange = self.conversation.exchange
        if exchange is not None:
            exchange.evidence.frame_bytes_at_speech_end = sent.frame_bytes
        self.perform(self.conversation.on_speech_end(moment, position_ns, later_ns, unsent_bytes))
        if exchange is not None and self.plan.manual_turns:
            # The endpoint answers when it learns that the caller has finished.
            exchange.evidence.pacing.reactions_ns += self.engine.clocks.perf_ns() - sent.gone_perf_ns

    @property
    def waiting_since_perf_ns(self) -> int | None:
        """When the first of the frames that the socket has not accepted was offered; None if it accepted all."""
        if self.paced is not None:
            return self.paced.socket.waits_since_perf_ns
        return self.held[0].offered_perf_ns if self.held else None

    # Outgoing audio that the pacer thread sends.

    def pace(self, paced: PacedSocket, now_perf_ns: int) -> None:
        """Have the pacer thread send the frames from now on; the call is not begun yet."""
        tap = self.track.tap
        self.track = self.paced = PacerTrack(paced, tap)
        first_due_perf_ns = paced.begin(self.plan.background, self._frame_ns, now_perf_ns)
        if tap is not None:
            tap.began(first_due_perf_ns - self._frame_ns)

    def on_paced(self, now_perf_ns: int) -> None:
        """Account for what the pacer thread has sent, and advance the conversation if its deadline has passed."""
        transport, track = self.transport, self.paced
        if transport is None or track is None or self.ended:
            return
        paced = track.socket
        try:
            paced.raise_broken()
        except OSError as error:
            transport.refused(error)
            return
        is_due = now_perf_ns >= self.conversation.deadline_perf_ns
        if track.awaits_marks or is_due:
            transport.readable()  # what has arrived before comes first
        self._take_marks(now_perf_ns)
        if is_due and not self.ended:
            self.perform(self.conversation.on_time(now_perf_ns))
        if self.ended:
            return
        track.give_evidence()
        track.note_held_up(self.engine.health.note_held_up)
        if paced.waiting_bytes:
            self._check_unread(paced.waiting_bytes, now_perf_ns)
        self._follow()

    def _take_marks(self, until_perf_ns: int) -> bool:
        """Account for the speech that the pacer thread had sent by a moment; return whether there was any."""
        track, transport = self.paced, self.transport
        if track is None or transport is None or not track.awaits_marks or self.ended:
            return False
        marks = track.take_marks(until_perf_ns)
        for mark in marks:
            exchange, frame = self.conversation.exchange, mark.frame
            if mark.is_start:
                if exchange is not None:
                    exchange.evidence.pacing.begin(frame.due_perf_ns, self._frame_ns)
                    track.count(exchange.evidence, frame.number)
                self._mark_start(transport, mark.clip, mark.sent)
            else:
                track.give_evidence(frame.number + 1)
                self._mark_end(transport, mark.clip, mark.sent)
        return bool(marks)

    def _check_unread(self, waiting_bytes: int, now_perf_ns: int) -> None:
        """End the call if the endpoint does not read for too long."""
        since_perf_ns = self.waiting_since_perf_ns
        waited_ns = 0 if since_perf_ns is None else now_perf_ns - since_perf_ns
        if waited_ns > self.plan.limits.unread_ns or waiting_bytes > MAX_WAITING_BYTES:
            reason = f"the endpoint did not read the caller's audio for {waited_ns / 1e9:.0f} s"
            self.lost(reason, now_perf_ns, Failure("timeout", "not_read"))

    # Incoming data.

    def open(self, timeout_s: float) -> None:
        """Open the transport and begin its handshakes. Raises ConnectionFailed and Exhausted."""
        transport = self.transport
        if transport is None:
            return
        transport.open(self, timeout_s)
        self.receive_stamp = transport.stamp_kind
        self.entry.write = transport.write
        transport.begin()

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Sequence[TransportItem]) -> None:
        """Pass the events of what was received to the conversation."""
        if self.ended:
            return
        exchange, transport, moments = self.conversation.exchange, self.transport, (stamp_perf_ns, seen_perf_ns)
        if transport is not None and exchange is not None:
            note_arrival(exchange.evidence, transport, self.engine.health, moments, items)
        elif transport is not None and self.connect_ns is None:
            self.connect_earlier_ns += delay_ns(transport, self.engine.health, moments)
        moved = self._take_marks(stamp_perf_ns) if self.paced is not None and self.paced.awaits_marks else False
        for item in items:
            if type(item) is not str and type(item) is not bytes and isinstance(item, _NO_MESSAGES):
                self.note(item, stamp_perf_ns)
                continue
            for event in self.protocol.receive(item):
                if not self.ended:
                    moved = self._on_event(event, stamp_perf_ns) or moved
        if transport is not None:
            for credited in self.conversation.take_credited():
                note_late_arrival(credited.evidence, transport, self.engine.health, moments, items)
        if not self.ended and (answers := self.protocol.pending()):
            self._answer(answers, exchange, stamp_perf_ns)
        if moved:
            self._follow()

    def _answer(self, answers: Iterable[Outgoing], exchange: Exchange | None, asked_perf_ns: int) -> None:
        """Send what the endpoint asked for; before it answers the caller, it waits for as long as that took."""
        self._send_all(answers)
        if exchange is not None and self.conversation.state is State.WAITING:
            exchange.evidence.pacing.reactions_ns += self.engine.clocks.perf_ns() - asked_perf_ns

    def sent_late(self, late_ns: int) -> None:
        """Record that a frame was sent late although it was handed over in time."""
        self.engine.health.note_lateness(late_ns)
        exchange = self.conversation.exchange
        if exchange is not None and (self.conversation.state is State.WAITING or self.track.in_speech):
            exchange.evidence.pacing.note_elsewhere(late_ns)

    def queued(self) -> None:
        """Schedule no frames ahead: they must go behind what is waiting."""
        self.track.clear_ahead()

    def detach_transport(self) -> Transport | None:
        """Detach the transport and return it.

        The transport refers to this call. Without detaching, the reference cycle would keep a finished call until a
        full garbage collection, which pauses every caller.
        """
        transport, self.transport, self.entry.write = self.transport, None, _discard
        if transport is not None:
            transport.release()
        return transport

    def disconnected(self, reason: str, failure: Failure) -> None:
        """End the call because the transport cannot continue."""
        self.lost(reason, self.engine.clocks.perf_ns(), failure)

    def failed(self, error: Exception) -> None:
        """End this call, and only this call, because of an internal error."""
        self.engine.internal_error(self, error)

    def note(self, item: TransportItem, stamp_perf_ns: int) -> None:
        """Handle the opening, a refusal or the end of the transport."""
        if self.ended:
            return
        if isinstance(item, (Opened, Rejected)):
            self.endpoint_headers |= kept_headers(item.headers, "upgrade")
        if isinstance(item, Opened):
            self.is_open = True
            self._send_all(self.protocol.opened())
            if self.protocol.capabilities.ready_when_open:
                self._on_first_event(VoiceEvent(EventKind.READY, "opened"), stamp_perf_ns)
        elif isinstance(item, Rejected):
            sentence = refused_upgrade(item.status, item.reason, item.body_excerpt, item.headers, self.url)
            retry_after_ns = retry_after_of_headers(item.headers, self.engine.clocks.to_unix_ns(stamp_perf_ns))
            failure = replace(item.failure, retry_after_ns=retry_after_ns)
            self.lost(sentence, stamp_perf_ns, failure)
        elif isinstance(item, Closed):
            self._closed(item, stamp_perf_ns)
        elif isinstance(item, Violation):
            self.lost(f"the endpoint violated the protocol: {item.reason}", stamp_perf_ns, item.failure)

    def _closed(self, item: Closed, stamp_perf_ns: int) -> None:
        failure = (item.clean and self.protocol.close_cause(item.code, item.reason)) or item.failure
        sentence = closed_connection(item.code, item.reason) if item.clean else item.reason
        # Before there is a session, the opener decides what to do, and knows what was asked for.
        is_opening = self.conversation.state is State.CONNECTING
        what_to_do = None if is_opening else advice(failure, item.reason, Attempt())
        self.lost(sentence if what_to_do is None else f"{sentence}; {what_to_do}", stamp_perf_ns, failure)

    def _on_event(self, event: VoiceEvent, stamp_perf_ns: int) -> bool:
        """Pass an event to the conversation; return whether its state changed."""
        if self.connect_ns is None:
            self._on_first_event(event, stamp_perf_ns)
            return False
        actions = self.conversation.on_event(event, stamp_perf_ns)
        if actions is NO_CHANGE:
            return False
        self.perform(actions)
        return True

    def _on_first_event(self, event: VoiceEvent, stamp_perf_ns: int) -> None:
        """Handle an event that arrives before the session is ready."""
        if event.kind is EventKind.READY:
            if self.transport is not None:
                self.receive_stamp = self.transport.stamp_kind  # of all connections that were needed
            self.connect_ns = stamp_perf_ns - self.connect_began_perf_ns
            self.connect_earlier_ns += self.engine.health.worst_loop_lag_since(self.connect_began_perf_ns)
            self.ready.set()
        elif event.kind is EventKind.ERROR and event.fatal:
            self.lost(event.message or "the endpoint refused the session", stamp_perf_ns, event.failure)
        elif event.kind is EventKind.ERROR:
            self.conversation.note_setup_error(event.message or event.raw_type, event.failure)

    def begin(self, now_perf_ns: int) -> None:
        """Begin the conversation, once the session is ready."""
        self.perform(self.conversation.begin(now_perf_ns))
        self._follow()

    def wind_down(self) -> None:
        """Begin no more turns; the current one runs to its end."""
        self.conversation.wind_down()
        self._follow()

    # Actions.

    def perform(self, actions: Iterable[Action]) -> None:
        """Perform the actions that the conversation decided on."""
        for action in actions:
            if isinstance(action, Say):
                exchange = self.conversation.exchange
                if exchange is not None and exchange.evidence.clock_steps is None:
                    exchange.evidence.clock_steps = self.engine.clocks.steps
                self.track.mute()
                overdue = self.entry.overdue if self.paced is None else self.paced.socket.overdue
                self.track.say(action.clip, overdue(self.engine.clocks.perf_ns()))
            elif isinstance(action, BeginTurn):
                self.track.mute()
                self._send_all(self.protocol.begin_turn(action.words))
            elif isinstance(action, EndTurn):
                self.track.mute()
                self._send_all(self.protocol.end_turn())
            elif isinstance(action, Interrupt):
                self._send_all(self.protocol.interrupt(action.played_ms))
            elif isinstance(action, Played):
                self._send_all(self.protocol.played(action.mark))
            elif isinstance(action, HangUp):
                self.engine.hang_up(self, action.reason)
            else:
                self._finished(action)

    def _finished(self, exchange: Exchange) -> None:
        now_perf_ns = self.engine.clocks.perf_ns()
        for frame in self.held:
            if frame.exchange is exchange:
                exchange.evidence.note_blocked(now_perf_ns - frame.offered_perf_ns)
        if self.paced is not None and self.paced.counts_for(exchange.evidence):
            self.paced.give_evidence(now_perf_ns=now_perf_ns)
        since = exchange.timeline.speech_start_perf_ns or exchange.began_perf_ns
        exchange.evidence.loop_lag_worst_ns = self.engine.health.worst_loop_lag_since(since)
        self._check_clock(exchange)
        transport = self.transport
        exchange.evidence.stamp_error_ns = self.engine.clocks.error_ns if transport is None or transport.stamped else 0
        self.exchanges.put(exchange)

    def _check_clock(self, exchange: Exchange) -> None:
        """Note a fault if the wall clock was set: the kernel's timestamps, which use it, are then not valid."""
        clocks, transport = self.engine.clocks, self.transport
        clocks.measure()
        stepped = exchange.evidence.clock_steps not in (None, clocks.steps)
        if stepped and transport is not None and transport.stamped:
            exchange.evidence.note_fault("clock step")

    def _send_all(self, messages: Iterable[Outgoing]) -> None:
        if self.transport is not None:
            for message in messages:
                self.transport.send(message)

    def lost(self, reason: str, now_perf_ns: int, failure: Failure | None) -> None:
        """End the conversation because it cannot continue; the current turn, or the first, fails."""
        if self.ended:
            return
        reason = one_line(reason)  # part of it may come from the endpoint
        self._take_marks(now_perf_ns)
        if self.connect_ns is None:
            self.failure = reason
        self.lost_by, self.cause = reason, failure
        self.perform(self.conversation.on_closed(reason, now_perf_ns, failure))
        self.ready.set()

    def break_off(self, cut_by: str, now_perf_ns: int) -> None:
        """End the call from our side, whatever the endpoint still has to send; the current turn is cut."""
        if self.ended:
            return
        self._take_marks(now_perf_ns)
        connecting = self.connect_ns is None
        if connecting:
            self.failure = f"cut by {cut_by}"
        since = self.began_perf_ns if connecting else None
        self.perform(self.conversation.break_off(cut_by, now_perf_ns, connecting_since_perf_ns=since))

    def fail_to_connect(self, reason: str, now_perf_ns: int, failure: Failure) -> None:
        """End the call before a session exists; the caller's first turn gets an error with the reason.

        That turn is invalid if the failure is this machine's own (`loadtest.conversation.outcome`).
        """
        self.failure, self.cause = one_line(reason), failure
        self.lost(reason, now_perf_ns, failure)


def _discard(frame: bytes) -> int:
    """Discard a frame while there is no connection."""
    return len(frame)
