"""One call: connects a transport, a protocol and the conversation. Runs on the hub and owns no clock."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import gevent.event
import gevent.queue
from msgspec.structs import replace

from loadtest.conversation.conversation import NO_CHANGE, Conversation
from loadtest.conversation.exchange import Action, BeginTurn, EndTurn, Exchange, HangUp, Interrupt, Played, Say
from loadtest.conversation.plan import CallPlan
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.engine.arrival_evidence import delay_ns, note_arrival, note_late_arrival
from loadtest.engine.audio_track import AudioTrack, FrameStream, SpeechMark
from loadtest.engine.hub_sender import HubStream
from loadtest.engine.transports.base import Transport, TransportCallbacks, TransportItem
from loadtest.protocols.advice import Attempt, advice
from loadtest.protocols.base import CallerProtocol, EventKind, Outgoing, VoiceEvent
from loadtest.protocols.error_objects import closed_connection, refused_upgrade
from loadtest.protocols.failure import Failure, retry_after_of_headers
from loadtest.protocols.headers import kept_headers
from loadtest.protocols.transports.framing import Closed, Opened, Rejected, Violation
from telemetry.model.foreign_text import one_line

if TYPE_CHECKING:
    from loadtest.engine.engine import Engine

# The most that may wait for one endpoint, however many answers it provokes: beyond it, the caller hangs up.
MAX_WAITING_BYTES: Final = 16 * 2**20
# What a transport passes on that is no message for the call's protocol.
_NO_MESSAGES: Final = (Opened, Rejected, Closed, Violation)


class Call(TransportCallbacks):
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
        "exchanges",
        "failure",
        "is_open",
        "lost_by",
        "plan",
        "playout",
        "prior_request_ns",
        "protocol",
        "ready",
        "receive_stamp",
        "track",
        "transport",
        "url",
    )

    def __init__(
        self,
        engine: "Engine",
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
        self.playout = PlayoutBuffer(onset_preset)
        self.conversation = Conversation(plan, self.playout, WireTraits.of(protocol.capabilities))
        self.track = AudioTrack()
        self.exchanges: gevent.queue.SimpleQueue[Exchange | None] = gevent.queue.SimpleQueue()
        self.receive_stamp = "user"  # the source of receive timestamps; stays valid after the transport is gone
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

    # Outgoing audio.

    def begin_audio(self, stream: FrameStream, now_perf_ns: int) -> None:
        """Begin to send the background; the conversation is not begun yet."""
        self.track.begin(stream, self.plan.background, self._frame_ns, now_perf_ns)

    def on_sent(self, now_perf_ns: int) -> None:
        """Account for what has been sent, and advance the conversation if its deadline has passed."""
        transport, track = self.transport, self.track
        if transport is None or self.ended:
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
        self._check_unread(now_perf_ns)
        self._follow()

    def _take_marks(self, until_perf_ns: int) -> bool:
        """Account for the speech that had been sent by a moment; return whether there was any."""
        track, transport = self.track, self.transport
        if transport is None or not track.awaits_marks or self.ended:
            return False
        marks = track.take_marks(until_perf_ns)
        for mark in marks:
            exchange = self.conversation.exchange
            if mark.is_start:
                if exchange is not None:
                    exchange.evidence.pacing.begin(mark.frame.due_perf_ns, self._frame_ns)
                    track.count(exchange.evidence, mark.frame.number)
                self._mark_start(transport, mark)
            else:
                track.give_evidence(mark.frame.number + 1)
                self._mark_end(transport, mark)
        return bool(marks)

    def _mark_start(self, transport: Transport, mark: SpeechMark) -> None:
        clip, frame = mark.clip, mark.frame
        later_ns = frame.gone_perf_ns - frame.offered_perf_ns + transport.hand_over_ns
        moment = clip.moment_perf_ns(clip.rendered.speech_start_sample, clip.speech_start_frame, frame.offered_perf_ns)
        self.perform(self.conversation.on_speech_start(moment, later_ns))

    def _mark_end(self, transport: Transport, mark: SpeechMark) -> None:
        clip, frame, rendered = mark.clip, mark.frame, mark.clip.rendered
        later_ns = frame.gone_perf_ns - frame.offered_perf_ns + transport.hand_over_ns
        moment = clip.moment_perf_ns(rendered.speech_end_sample, clip.speech_end_frame, frame.offered_perf_ns)
        sample = self.track.clip_started_frame * clip.frame_samples + rendered.speech_end_sample
        position_ns = sample * 1_000_000_000 // rendered.rate_hz
        if frame.unsent_bytes is not None:
            self.engine.health.note_unsent(frame.unsent_bytes)
        exchange = self.conversation.exchange
        if exchange is not None:
            exchange.evidence.frame_bytes_at_speech_end = frame.frame_bytes
        self.perform(self.conversation.on_speech_end(moment, position_ns, later_ns, frame.unsent_bytes))
        if exchange is not None and self.plan.manual_turns:
            # The endpoint answers when it learns that the caller has finished.
            exchange.evidence.pacing.reactions_ns += self.engine.clocks.perf_ns() - frame.gone_perf_ns

    def _check_unread(self, now_perf_ns: int) -> None:
        """End the call if the endpoint does not read for too long."""
        since_perf_ns, stream = self.waiting_since_perf_ns, self.track.stream
        if stream is None or since_perf_ns is None:
            return
        waited_ns = now_perf_ns - since_perf_ns
        if waited_ns > self.plan.limits.unread_ns or stream.waiting_bytes > MAX_WAITING_BYTES:
            reason = f"the endpoint did not read the caller's audio for {waited_ns / 1e9:.0f} s"
            self.lost(reason, now_perf_ns, Failure("timeout", "not_read"))

    @property
    def waiting_since_perf_ns(self) -> int | None:
        """The time at which the first frame that the socket has not accepted was offered; None if it accepted all."""
        return None if self.track.stream is None else self.track.stream.waits_since_perf_ns

    def _follow(self) -> None:
        """Take over the conversation's deadline and what the frames count for."""
        conversation, stream = self.conversation, self.track.stream
        exchange = conversation.exchange
        counts = exchange is not None and (conversation.state is State.WAITING or self.track.in_speech)
        self.track.count(exchange.evidence if exchange is not None and counts else None)
        if stream is not None:
            stream.set_deadline(conversation.deadline_perf_ns)

    def settle(self) -> None:
        """Record how long the frames waited that the socket has accepted by now."""
        if isinstance(self.track.stream, HubStream):
            self.track.stream.settle(self.engine.clocks.perf_ns())

    # Incoming data.

    def open(self, timeout_s: float) -> None:
        """Open the transport and begin its handshakes. Raises ConnectionFailed and Exhausted."""
        transport = self.transport
        if transport is None:
            return
        transport.open(self, timeout_s)
        self.receive_stamp = transport.stamp_kind
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
        moved = self.track.awaits_marks and self._take_marks(stamp_perf_ns)
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
        if not self.ended:
            self._answer(exchange, stamp_perf_ns)
        if moved:
            self._follow()

    def _answer(self, exchange: Exchange | None, asked_perf_ns: int) -> None:
        """Send what the endpoint asked for; before it answers the caller, it waits for as long as that took."""
        if self._send_all(self.protocol.pending) and exchange is not None and self.conversation.state is State.WAITING:
            exchange.evidence.pacing.reactions_ns += self.engine.clocks.perf_ns() - asked_perf_ns

    def sent_late(self, late_ns: int) -> None:
        """Record that a frame was sent late although it was handed over in time."""
        self.engine.health.note_lateness(late_ns)
        exchange = self.conversation.exchange
        if exchange is not None and (self.conversation.state is State.WAITING or self.track.in_speech):
            exchange.evidence.pacing.note_elsewhere(late_ns)

    def detach_transport(self) -> Transport | None:
        """Detach the transport and return it.

        The transport refers to this call. Without detaching, the reference cycle would keep a finished call until a
        full garbage collection, which pauses every caller.
        """
        transport, self.transport = self.transport, None
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
            self._send_all(self.protocol.opened)
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
                self.track.say(action.clip, self.engine.clocks.perf_ns())
            elif isinstance(action, BeginTurn):
                self.track.mute()
                self._send_all(partial(self.protocol.begin_turn, action.words))
            elif isinstance(action, EndTurn):
                self.track.mute()
                self._send_all(self.protocol.end_turn)
            elif isinstance(action, Interrupt):
                self._send_all(partial(self.protocol.interrupt, action.played_ms))
            elif isinstance(action, Played):
                self._send_all(partial(self.protocol.played, action.mark))
            elif isinstance(action, HangUp):
                self.engine.hang_up(self, action.reason)
            else:
                self._finished(action)

    def _finished(self, exchange: Exchange) -> None:
        now_perf_ns = self.engine.clocks.perf_ns()
        if self.track.counts_for(exchange.evidence):
            self.track.give_evidence(now_perf_ns=now_perf_ns)
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

    def _send_all(self, make: Callable[[], Sequence[Outgoing]]) -> bool:
        """Send the messages that `make` returns; return whether there were any."""
        if self.transport is None:
            return False
        numbered = self.track.numbered
        if numbered is None:
            return self._send_made(self.transport, make())
        with numbered:
            return self._send_made(self.transport, make())

    def _send_made(self, transport: Transport, messages: Sequence[Outgoing]) -> bool:
        for message in messages:
            transport.send(message)
        return bool(messages)

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
