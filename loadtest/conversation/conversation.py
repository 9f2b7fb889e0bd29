"""One caller's conversation: when to speak, what to say, when to give up. Pure.

`loadtest.conversation.state` holds its states and the table by which they change. The engine reports what happened,
with the moment, and carries out the actions that it gets in return.
"""

from collections.abc import Sequence
from typing import Final

from loadtest.conversation.earlier_turns import EarlierTurns
from loadtest.conversation.exchange import (
    Action,
    BeginTurn,
    EndTurn,
    Exchange,
    HangUp,
    Say,
    SpokenBackchannel,
    WireNotes,
)
from loadtest.conversation.outcome import Judgment, judge_complete, reason_of_cut
from loadtest.conversation.plan import CallPlan, TurnQueue
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.reception import Hearing
from loadtest.conversation.state import TRANSITIONS, Input, PlanState, State, next_state
from loadtest.conversation.timeline import QUESTION_KINDS, REPLY_KINDS, Reply, Timeline
from loadtest.conversation.waiting import (
    InterruptedExchange,
    SpeechIntoReply,
    Wait,
    give_up,
    goes_on_at,
    note_service_report,
    over_since,
    speech_into_reply,
    wait_of,
)
from loadtest.conversation.wire import EVERY_EVENT, WireTraits
from loadtest.protocols.base import EventKind, Failure, VoiceEvent

NO_CHANGE: Final[tuple[Action, ...]] = ()
REPLY_WAS_OVER = "the reply was over before the caller was to speak into it"
NO_TURN_LEFT = "the caller has no more to say"

# Looking a member up in its Enum costs more than the comparison with it, and every frame of every reply is compared.
_AUDIO: Final = EventKind.AUDIO
_OTHER: Final = EventKind.OTHER
_HEARING: Final = State.HEARING
_WAITING: Final = State.WAITING
_BACKCHANNELING: Final = State.BACKCHANNELING
_OVER: Final = State.OVER


class Conversation:
    """One caller's conversation. Call `on_time` when `deadline_perf_ns` has come; it moves with every other call."""

    def __init__(self, plan: CallPlan, playout: PlayoutBuffer, wire: WireTraits = EVERY_EVENT) -> None:
        self._plan = plan
        self._playout = playout
        self._turns = TurnQueue(plan.turns)
        self._wire = wire
        self._end_by_silence = not wire.closes_replies
        self._hearing = Hearing(playout, plan.limits.silence_ns if self._end_by_silence else None)
        self._earlier = self._hearing.earlier
        self._earlier_turns = EarlierTurns(wire)
        self.take_credited = self._earlier_turns.take_credited
        self._interrupted: InterruptedExchange | None = None
        self._setup_errors: list[tuple[str, Failure | None]] = []
        self._notes = WireNotes()  # of what arrived since the last exchange ended
        self._thinking_since_perf_ns = 0
        self.state: State = State.CONNECTING
        self._step_perf_ns = 0  # when the conversation goes on by itself
        self.exchange: Exchange | None = None  # in SPEAKING, WAITING, HEARING and BACKCHANNELING, and in no other state

    def _move(self, happened: Input) -> None:
        self.state = next_state(TRANSITIONS, self.state, happened)

    @property
    def deadline_perf_ns(self) -> int:
        """The time at which to call `on_time`."""
        due_perf_ns = self._hearing.marks.due_perf_ns
        return self._step_perf_ns if due_perf_ns is None else min(self._step_perf_ns, due_perf_ns)

    def note_setup_error(self, message: str, failure: Failure | None = None) -> None:
        """Keep an error of the time when the session was set up: it may explain why no answer comes."""
        self._setup_errors.append((message, failure))

    def wind_down(self) -> None:
        """Begin no further turn; one that has begun goes on to its end."""
        self._turns.wind_down()
        if self.state is State.THINKING:
            self._step_perf_ns = 0

    def begin(self, now_perf_ns: int) -> list[Action]:
        """Start the first think time: the session is ready. A call that ended before this stays over."""
        if self.state is _OVER:
            return []
        self._move(Input.READY)
        return self._think(now_perf_ns, now_perf_ns)

    def _think(self, now_perf_ns: int, over_since_perf_ns: int) -> list[Action]:
        self.exchange = None
        following = self._turns.following
        if following is None or not self._turns.may_begin:
            self._move(Input.NO_TURN_LEFT)
            return [HangUp(NO_TURN_LEFT)]
        self._thinking_since_perf_ns = now_perf_ns
        # A caller does not speak into what is still playing.
        self._step_perf_ns = max(over_since_perf_ns, self._playout.playing_until_perf_ns) + following.think_ns
        return []

    # What was sent.

    def on_speech_start(self, moment_perf_ns: int, later_ns: int) -> list[Action]:
        """The first speech sample of a clip was sent: at this moment, or up to `later_ns` after it."""
        exchange = self.exchange
        if exchange is None or self.state not in (State.SPEAKING, _BACKCHANNELING):
            return []  # of a backchannel whose turn has ended
        self._move(Input.SPEECH_START)
        if self.state is _BACKCHANNELING:
            if exchange.backchannel is not None:
                exchange.backchannel.start_perf_ns = moment_perf_ns
            return []
        exchange.timeline.speech_start_perf_ns = moment_perf_ns
        exchange.evidence.start_later_ns = later_ns
        if not self._plan.manual_turns:
            return []
        # Under manual turns the endpoint detects no speech: the caller's client stops the reply.
        into = exchange.spoke_into
        exchange.stopped_by_client = into is not None and into.has_more_speech(moment_perf_ns)
        return self._hearing.stop_all(self._replies(), moment_perf_ns)

    def on_speech_end(
        self, moment_perf_ns: int, audio_position_ns: int, later_ns: int, unsent_bytes: int | None
    ) -> list[Action]:
        """The last speech sample of a clip was sent, at this moment or up to `later_ns` after it.

        `audio_position_ns` is its place in the audio of the call.
        """
        exchange = self.exchange
        if exchange is None or self.state not in (State.SPEAKING, _BACKCHANNELING):
            return []  # of a backchannel whose turn has ended
        into_reply = self.state is _BACKCHANNELING
        self._move(Input.SPEECH_END)
        if into_reply:
            if exchange.backchannel is not None:
                exchange.backchannel.end_perf_ns = moment_perf_ns
            return []
        exchange.timeline.speech_end_perf_ns = moment_perf_ns
        self._hearing.names.note_question_end(moment_perf_ns)
        exchange.timeline.speech_end_audio_ns = audio_position_ns
        exchange.evidence.end_later_ns = later_ns
        exchange.evidence.pacing.end_speech()
        exchange.evidence.unsent_bytes_at_speech_end = unsent_bytes
        self._hearing.last_sign_perf_ns = moment_perf_ns
        self._set_deadline(exchange, wait_of(exchange, self._plan.limits, self._hearing.quiet_since_perf_ns))
        return [EndTurn()] if self._plan.manual_turns else []

    # What arrived.

    def on_event(self, event: VoiceEvent, arrival_perf_ns: int) -> Sequence[Action]:
        """Account for an event. Returns NO_CHANGE itself where neither the state nor the deadline can have changed."""
        if self.state is _OVER or event.kind is _OTHER or self._is_more_of_a_reply(event, arrival_perf_ns):
            return NO_CHANGE
        exchange = self.exchange
        if self._end_by_silence and self._hearing.is_silence_over(self._replies(), arrival_perf_ns):
            return [*self._proceed(arrival_perf_ns), *self.on_event(event, arrival_perf_ns)]
        if (self._notes if exchange is None else exchange.notes).note(event):
            return NO_CHANGE
        if event.service_ns or event.kind is EventKind.SERVICE_REPORT:
            note_service_report(event, exchange, self._interrupted)
        if event.kind is EventKind.MARK or event.kind is EventKind.CLEAR:
            speaks = self.state in (State.SPEAKING, _BACKCHANNELING)
            actions = self._hearing.on_control(event, self._replies(), arrival_perf_ns, caller_speaks=speaks)
            return actions + self._proceed(arrival_perf_ns)
        return NO_CHANGE if event.kind is EventKind.SERVICE_REPORT else self._on_spoken(event, arrival_perf_ns)

    def _on_spoken(self, event: VoiceEvent, arrival_perf_ns: int) -> list[Action]:
        """Handle an event of the caller's question or of a reply, or an error."""
        exchange, interrupted = self.exchange, self._interrupted
        event = self._hearing.names.named(event, arrival_perf_ns, caller_broke_in=interrupted is not None)
        if self._is_of_an_earlier_turn(event, arrival_perf_ns):
            return self._proceed(arrival_perf_ns)
        if exchange is None:
            return self._on_event_between_turns(event, arrival_perf_ns)
        question_is_open = self.state is State.SPEAKING and not exchange.timeline.endpoints_perf_ns
        if interrupted is not None and interrupted.owns(event, question_is_open=question_is_open):
            self._earlier.remember((event.response_id or "",))
            return self._note(interrupted.timeline, event, arrival_perf_ns) + self._proceed(arrival_perf_ns)
        actions: list[Action] = []
        if event.kind is EventKind.SPEECH_STARTED:
            actions += self._hearing.stop_all(self._replies(), arrival_perf_ns)
            self._note_asked_stop(arrival_perf_ns)
        for text, came_perf_ns in self._hearing.names.take_before_audio(event.response_id):
            actions += self._note(exchange.timeline, text, came_perf_ns)
        actions += self._note(exchange.timeline, event, arrival_perf_ns)
        if exchange.timeline.fatal_perf_ns is not None:
            judgment: Judgment = "error", exchange.timeline.errors[-1]
            return actions + self._finish(exchange, judgment, arrival_perf_ns, Input.SESSION_ENDED)
        return actions + self._proceed(arrival_perf_ns)

    def _note_asked_stop(self, stopped_perf_ns: int) -> None:
        """Note of the replies that were stopped now that the endpoint asked for it, where its wire says so."""
        for reply in self._replies() if self._wire.speech_stops_replies else ():
            if reply.playback is not None and reply.playback.stopped_perf_ns == stopped_perf_ns:
                reply.speech_stops = True

    def _is_of_an_earlier_turn(self, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        """Return whether an event is about a turn that is over, or interrupted; if so, it is accounted for there."""
        if event.kind in QUESTION_KINDS:
            return self._earlier_turns.note_question(event, self.exchange, arrival_perf_ns)
        if event.kind is _AUDIO or event.kind not in REPLY_KINDS or event.response_id not in self._earlier.known:
            return False
        return self._earlier_turns.note_text(event, arrival_perf_ns)

    def _is_more_of_a_reply(self, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        """Return whether this is only more audio of a reply that is heard; if so, it is accounted for.

        It can move the deadline to later, never to earlier: when the one that is set comes, it is set again.
        """
        if event.kind is not _AUDIO or (self.state is not _HEARING and self.state is not _BACKCHANNELING):
            return False
        exchange = self.exchange
        if exchange is None or event.metadata or self._interrupted is not None:
            return False
        return self._hearing.hear_continued(exchange.timeline, event, arrival_perf_ns)

    def _note(self, timeline: Timeline, event: VoiceEvent, arrival_perf_ns: int) -> list[Action]:
        reply = timeline.note(event, arrival_perf_ns)
        if reply is None:
            self._hear_unasked(event, arrival_perf_ns)
            return []
        self._hearing.note_sign(arrival_perf_ns)
        if event.kind is EventKind.AUDIO:
            reply.hear(self._playout, event, arrival_perf_ns)
        elif event.kind is EventKind.RESPONSE_DONE and reply.status == "cancelled":
            return self._hearing.stop([reply], arrival_perf_ns)
        return []

    def _hear_unasked(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Play a piece of audio that answers no question."""
        if event.kind is EventKind.AUDIO:
            self._earlier.hear(event, arrival_perf_ns)
            self._hearing.names.note_unasked(event.response_id or "", arrival_perf_ns)

    def _replies(self) -> list[Reply]:
        """The replies of the turn under way, and of the one that it has interrupted."""
        exchange, interrupted = self.exchange, self._interrupted
        running = () if exchange is None else exchange.timeline.replies.values()
        return [*running] if interrupted is None else [*interrupted.timeline.replies.values(), *running]

    def _on_event_between_turns(self, event: VoiceEvent, arrival_perf_ns: int) -> list[Action]:
        if event.response_id is not None:
            self._earlier.remember((event.response_id,))
        self._hear_unasked(event, arrival_perf_ns)
        if event.kind is EventKind.ERROR and event.fatal:
            return self.on_closed(event.message or "the endpoint ended the session", arrival_perf_ns, event.failure)
        return []

    def on_closed(self, reason: str, now_perf_ns: int, failure: Failure | None = None) -> list[Action]:
        """The connection is gone. It fails the turn under way, or else the turn that was to come."""
        if self.state is _OVER:
            return []
        exchange = self.exchange
        if exchange is None and self._turns.following is not None:
            exchange = self._open_exchange(now_perf_ns)
        if exchange is None:
            self._move(Input.SESSION_ENDED)
            return [HangUp(reason)]
        exchange.failure = failure
        return self._finish(exchange, ("error", reason), now_perf_ns, Input.SESSION_ENDED)

    def break_off(self, cut_by: str, now_perf_ns: int, *, connecting_since_perf_ns: int | None = None) -> list[Action]:
        """End the call, whatever is still to come: a turn that has begun ends in its state, and no other begins.

        A caller who is still connecting is in its first turn, since `connecting_since_perf_ns`. `cut_by` names what in
        the load generator ended the call.
        """
        if self.state is _OVER:
            return []
        exchange = self.exchange
        if exchange is None and connecting_since_perf_ns is not None and self._turns.following is not None:
            exchange = self._open_exchange(connecting_since_perf_ns)
        self._turns.wind_down()
        if exchange is None:
            self._move(Input.CUT)
            return [HangUp(NO_TURN_LEFT)]
        if exchange.timeline.complete and self.state is not _BACKCHANNELING:
            # Only the end of its reply was still to be played.
            return self._finish(exchange, judge_complete(exchange), now_perf_ns, Input.REPLY_FAILED)
        exchange.cut_by, exchange.hangup_perf_ns = cut_by, now_perf_ns
        return self._finish(exchange, ("cut", reason_of_cut(exchange, now_perf_ns)), now_perf_ns, Input.CUT)

    # Time.

    def on_time(self, now_perf_ns: int) -> list[Action]:
        """The deadline has passed."""
        if self.state in (State.CONNECTING, _OVER):
            return []
        played = self._hearing.played(now_perf_ns)
        if now_perf_ns < self._step_perf_ns:
            return played
        if self.state is not State.THINKING:
            return played + self._proceed(now_perf_ns)
        if self._turns.may_begin:
            return played + self._begin_when_quiet(now_perf_ns)
        return played + self._think(now_perf_ns, now_perf_ns)

    def _begin_when_quiet(self, now_perf_ns: int) -> list[Action]:
        """Begin the turn when what has arrived since the last one is heard to its end, as far as any reply may go."""
        longest_until_perf_ns = self._thinking_since_perf_ns + self._plan.limits.longest_reply_ns
        heard_out = min(self._earlier.heard_until(now_perf_ns), longest_until_perf_ns)
        if heard_out > now_perf_ns:
            self._step_perf_ns = heard_out
            return []
        exchange = self._open_exchange(now_perf_ns)
        if exchange.planned.clip is not None:
            return self._begin_turn(exchange.planned.clip, Input.SAY, now_perf_ns)
        exchange.timeline.silent = True
        self._move(Input.KEEP_SILENT)
        self._hearing.last_sign_perf_ns = now_perf_ns
        self._set_deadline(exchange, wait_of(exchange, self._plan.limits, self._hearing.quiet_since_perf_ns))
        return []

    def _begin_turn(self, clip: PreparedClip, why: Input, now_perf_ns: int) -> list[Action]:
        self._move(why)
        # The clip takes as long as it takes; the deadline only guards against one that cannot be sent.
        self._step_perf_ns = now_perf_ns + self._plan.limits.reply_ns + clip.duration_ns
        return [BeginTurn(clip.words), Say(clip)]

    def _open_exchange(self, now_perf_ns: int) -> Exchange:
        index, planned = self._turns.begin()
        timeline = Timeline(self._earlier.known, closes_questions=self._wire.closes_questions, speaks=self._wire.speaks)
        timeline.note_errors(*self._setup_errors)
        exchange = self.exchange = Exchange(index, planned, timeline, now_perf_ns, notes=self._notes)
        exchange.shows_cuts = self._wire.shows_cuts
        self._notes = WireNotes()
        if planned.barge_in is not None:
            exchange.barge_in_missed = REPLY_WAS_OVER
        return exchange

    def _proceed(self, now_perf_ns: int) -> list[Action]:
        """Go as far as what has arrived, and the time, allow."""
        if self._end_by_silence:
            self._hearing.end_silent(self._replies(), now_perf_ns)
        interrupted, exchange = self._interrupted, self.exchange
        actions: list[Action] = [] if interrupted is None else self._ended(interrupted.finish_when_quiet(now_perf_ns))
        if exchange is None:
            return actions
        if self.state is State.SPEAKING:
            if now_perf_ns < self._step_perf_ns:
                return actions
            not_sent: Judgment = "invalid", "the utterance could not be sent"
            return actions + self._finish(exchange, not_sent, now_perf_ns, Input.TIME_OUT)
        first_audio = exchange.timeline.first_audio_perf_ns
        if self.state is State.WAITING and first_audio is not None and first_audio <= now_perf_ns:
            self._move(Input.REPLY_AUDIBLE)
        if self.state is _HEARING:
            actions += self._speak_into_reply(exchange, now_perf_ns)
            if self.exchange is not exchange:
                return actions
        is_heard = self._playout.playing_until_perf_ns <= now_perf_ns
        if not self._plan.limits.hears_out:
            is_heard = is_heard or self.state is _HEARING
        if is_heard and self._is_complete(exchange) and self.state is not _BACKCHANNELING:
            return actions + self._finish(exchange, judge_complete(exchange), now_perf_ns, Input.REPLY_FAILED)
        return actions + self._wait_on(exchange, now_perf_ns)

    def _is_complete(self, exchange: Exchange) -> bool:
        """Return whether the endpoint owes nothing that the caller waits for."""
        return exchange.timeline.complete and not self._waits_for_transcript(exchange.timeline)

    def _waits_for_transcript(self, timeline: Timeline) -> bool:
        """Return whether the caller goes on only when the transcript has come, or has not come for long enough.

        Nobody waits for one that is known by its name whenever it comes, except where the call would end before.
        """
        if timeline.finals or timeline.asr_failure is not None or timeline.speech_end_perf_ns is None:
            return False
        is_last = self._turns.following is None or not self._turns.may_begin
        if timeline.partials_perf_ns:
            return is_last or not (self._wire.names_questions and timeline.names_transcripts)
        return is_last and self._earlier_turns.transcribed

    def _ended(self, exchanges: list[Exchange]) -> list[Action]:
        for exchange in exchanges:
            self._earlier_turns.ended(exchange)
        return [*exchanges]

    def _wait_on(self, exchange: Exchange, now_perf_ns: int) -> list[Action]:
        wait, limits = wait_of(exchange, self._plan.limits, self._hearing.quiet_since_perf_ns), self._plan.limits
        given_up = give_up(exchange, limits, wait, now_perf_ns, waiting=self.state is State.WAITING)
        if given_up is not None:
            judgment, why = given_up
            return self._finish(exchange, judgment, now_perf_ns, why)
        self._set_deadline(exchange, wait)
        return []

    def _speech_into_reply(self, exchange: Exchange) -> SpeechIntoReply | None:
        if self.state is not _HEARING or self._turns.state is PlanState.WINDING_DOWN:
            return None
        return speech_into_reply(exchange, self._turns.following)

    def _speak_into_reply(self, exchange: Exchange, now_perf_ns: int) -> list[Action]:
        planned, answer = self._speech_into_reply(exchange), exchange.timeline.answer
        if planned is None or answer is None or now_perf_ns < planned.at_perf_ns:
            return []
        answer.spoken_into = True
        exchange.timeline.overlapped = True
        if not planned.interrupts:
            self._move(Input.BACKCHANNEL_POINT)
            exchange.backchannel = SpokenBackchannel()
            return [Say(planned.clip)]
        finished = self._finish_interrupted(now_perf_ns)
        self._interrupted = InterruptedExchange(exchange)
        self._earlier_turns.interrupted(exchange)
        self._earlier.remember(exchange.timeline.replies)
        interrupting = self._open_exchange(now_perf_ns)
        interrupting.spoke_into, interrupting.barge_in_missed = answer, None
        return [*finished, *self._begin_turn(planned.clip, Input.BARGE_IN_POINT, now_perf_ns)]

    def _finish_interrupted(self, now_perf_ns: int) -> list[Action]:
        interrupted, self._interrupted = self._interrupted, None
        return [] if interrupted is None else self._ended(interrupted.finish(now_perf_ns))

    def _set_deadline(self, exchange: Exchange, wait: Wait) -> None:
        goes_on_perf_ns = goes_on_at(exchange, self._plan.limits, wait, waiting=self.state is _WAITING)
        planned = self._speech_into_reply(exchange)
        silence_over = self._hearing.silence_over_perf_ns(self._replies()) if self._end_by_silence else None
        deadlines = [goes_on_perf_ns, None if planned is None else planned.at_perf_ns, silence_over]
        if self._is_complete(exchange) or (self._interrupted is not None and not self._interrupted.is_finished):
            deadlines.append(self._playout.playing_until_perf_ns)
        self._step_perf_ns = min([deadline for deadline in deadlines if deadline is not None])

    def _finish(self, exchange: Exchange, judgment: Judgment, now_perf_ns: int, failed_by: Input) -> list[Action]:
        """End the exchange. One that ended well is TURN_DONE, any other is `failed_by`, and ends the call."""
        finished = self._finish_interrupted(now_perf_ns)
        exchange.outcome, exchange.reason = judgment
        exchange.ended_perf_ns = now_perf_ns
        finished += self._ended([exchange])
        self._earlier.remember(exchange.timeline.replies)
        for name in exchange.timeline.replies:
            self._hearing.names.note_over(name, now_perf_ns)
        if exchange.outcome == "ok":
            self._move(Input.TURN_DONE)
            return [*finished, *self._think(now_perf_ns, over_since(exchange.timeline, now_perf_ns))]
        # After a failed turn the call ends: a late answer could be taken for that of the next question.
        self._move(failed_by)
        self.exchange = None
        return [*finished, HangUp(exchange.reason or exchange.outcome)]
