"""The conversation as a state machine: what to say, when to speak next, when to give up. Pure.

    THINKING --think time over--> SPEAKING --last speech sample sent--> WAITING
    THINKING --think time over, a silent turn--> WAITING
    WAITING --audible--> HEARING --played--> THINKING
    HEARING --the caller is to speak into the reply--> SPEAKING
    any state --patience over, time-out, fatal error, closed--> OVER

The engine feeds it what happened, with the moment, and carries out the actions it returns.

A caller who speaks into a reply. The reply is stopped by the endpoint: by what it says (the caller's speech started,
the response is cancelled), upon which a client that follows the wire plays no more of it, or by its audio no longer
coming. Under manual turns the client itself stops it and says so. What arrives of the old reply is known by its
response id and never answers the new turn (`ReplyNames` says how replies without ids are told apart).
"""

from collections.abc import Sequence
from typing import Final

from loadtest.conversation.exchange import Action, Aside, EndTurn, Exchange, HangUp, Interrupt, Say, WireNotes
from loadtest.conversation.interrupting import speak_at
from loadtest.conversation.outcome import judge_complete, judge_given_up, judge_too_long, reason_of_cut
from loadtest.conversation.plan import CallPlan, PlannedTurn
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.state import State
from loadtest.conversation.strays import Strays
from loadtest.conversation.timeline import Reply, ReplyNames, Timeline
from loadtest.conversation.waiting import Wait, longest_until, patience_ends, wait_of
from loadtest.protocols.base import EventKind, Failure, VoiceEvent
from telemetry.model.semconv import Outcome

UNMOVED: Final[tuple[Action, ...]] = ()
REPLY_WAS_OVER = "the reply was over before the caller was to speak into it"


class Conversation:
    """One caller's conversation. `deadline_perf_ns` is when `on_time` wants to be called next."""

    def __init__(self, plan: CallPlan, playout: PlayoutBuffer) -> None:
        self._plan = plan
        self._playout = playout
        self._next = 0
        self._known_replies: frozenset[str] = frozenset()
        self._strays = Strays(playout)
        self._last_sign_perf_ns = 0
        self.state = State.THINKING
        self.deadline_perf_ns = 0
        self.exchange: Exchange | None = None
        self._winding_down = False
        self._complaints: list[tuple[str, Failure | None]] = []
        self._cut: Exchange | None = None  # the exchange whose reply the running one broke into
        self._cut_told = True
        self._stopped: set[str] = set()  # replies of which nothing more is played
        self._names = ReplyNames()
        self._thinking_since_perf_ns = 0
        self._notes = WireNotes()  # of what arrived since the last exchange ended

    def complain(self, message: str, failure: Failure | None = None) -> None:
        """The endpoint complained while the session was set up: it may be why no answer comes."""
        self._complaints.append((message, failure))

    def wind_down(self) -> None:
        """Begin no further turn; one that has begun goes on to its end."""
        self._winding_down = True
        if self.state is State.THINKING:
            self.deadline_perf_ns = 0

    def begin(self, now_perf_ns: int) -> list[Action]:
        """The endpoint is ready: the first think time starts."""
        return self._think(now_perf_ns)

    def _think(self, now_perf_ns: int) -> list[Action]:
        self.exchange = None
        if self._winding_down or self._next >= len(self._plan.turns):
            self.state = State.OVER
            return [HangUp("the caller has no more to say")]
        self.state = State.THINKING
        self._thinking_since_perf_ns = now_perf_ns
        # A caller does not speak into what is still playing.
        begin = max(now_perf_ns, self._playout.playing_until_perf_ns)
        self.deadline_perf_ns = begin + self._plan.turns[self._next].think_ns
        return []

    # What the engine reports of the outgoing side.

    def on_speech_start(self, moment_perf_ns: int, lateness_ns: int) -> list[Action]:
        """The first speech sample left the caller's mouth."""
        exchange = self.exchange
        if exchange is None:
            return []
        if self.state is not State.SPEAKING:
            if exchange.backchannel is not None:
                exchange.backchannel.start_perf_ns = moment_perf_ns
            return []
        exchange.timeline.speech_start_perf_ns = moment_perf_ns
        exchange.evidence.start_lateness_ns = lateness_ns
        if not self._plan.manual_turns:
            return []
        # Who holds a button to speak stops the reply by it; there is no detector that could.
        into = exchange.spoke_into
        exchange.stopped_by_client = into is not None and into.has_more_to_say(moment_perf_ns)
        return self._yield_floor(moment_perf_ns)

    def on_speech_end(
        self, moment_perf_ns: int, audio_position_ns: int, lateness_ns: int, unsent_bytes: int | None
    ) -> list[Action]:
        """The last speech sample left the caller's mouth; `audio_position_ns` on the audio clock of the call."""
        exchange = self.exchange
        if exchange is None:
            return []
        if self.state is not State.SPEAKING:
            if exchange.backchannel is not None:
                exchange.backchannel.end_perf_ns = moment_perf_ns
            return []
        exchange.timeline.speech_end_perf_ns = moment_perf_ns
        exchange.timeline.speech_end_audio_ns = audio_position_ns
        exchange.evidence.end_lateness_ns = lateness_ns
        exchange.evidence.unsent_bytes_at_speech_end = unsent_bytes
        self.state = State.WAITING
        self._last_sign_perf_ns = moment_perf_ns
        self._set_deadline()
        return [EndTurn()] if self._plan.manual_turns else []

    # What arrived.

    def on_event(self, event: VoiceEvent, arrival_perf_ns: int) -> Sequence[Action]:
        """One event that the kernel received at a moment. UNMOVED if it changes nothing of what the caller wants."""
        if self.state is State.OVER or event.kind is EventKind.OTHER or self._goes_on(event, arrival_perf_ns):
            return UNMOVED
        if (self.exchange.notes if self.exchange is not None else self._notes).note(event):
            return UNMOVED
        event = self._names.named(event, caller_broke_in=self._cut is not None)
        exchange = self.exchange
        if exchange is None:
            return self._on_stray(event, arrival_perf_ns)
        cut = self._cut
        if cut is not None and (cut.timeline.owns(event) or self._is_owed_to(cut, exchange, event)):
            self._known_replies |= {event.response_id or ""}
            return self._on_reply(cut.timeline, event, arrival_perf_ns) + self._proceed(arrival_perf_ns)
        actions: list[Action] = []
        if event.kind is EventKind.SPEECH_STARTED:
            actions += self._yield_floor(arrival_perf_ns)
        actions += self._on_reply(exchange.timeline, event, arrival_perf_ns)
        if exchange.timeline.fatal_perf_ns is not None:
            return actions + self._finish("error", exchange.timeline.errors[-1], arrival_perf_ns)
        return actions + self._proceed(arrival_perf_ns)

    def _is_owed_to(self, cut: Exchange, exchange: Exchange, event: VoiceEvent) -> bool:
        """Whether this begins the response that a tool call of the reply broken into had announced: nobody answers a
        question that is still being asked."""
        asking = self.state is State.SPEAKING and not exchange.timeline.endpoints_perf_ns
        return asking and event.kind is EventKind.RESPONSE_STARTED and cut.timeline.owes_response

    def _goes_on(self, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        """Whether this is only more of a reply that is being heard, and accounted for with that.

        It can put the deadline off and never bring it forward: when the one that is set comes, it is set anew.
        """
        exchange, response_id = self.exchange, event.response_id
        if event.kind is not EventKind.AUDIO or self.state is not State.HEARING or exchange is None:
            return False
        reply = None if response_id is None else exchange.timeline.replies.get(response_id)
        if reply is None or event.metadata or self._cut is not None:
            return False
        reply.item_id = event.item_id or reply.item_id
        self._last_sign_perf_ns = max(self._last_sign_perf_ns, arrival_perf_ns)
        reply.hear(self._playout, event, arrival_perf_ns)
        return True

    def _on_reply(self, timeline: Timeline, event: VoiceEvent, arrival_perf_ns: int) -> list[Action]:
        reply = timeline.note(event, arrival_perf_ns)
        if reply is None:
            if event.kind is EventKind.AUDIO:
                self._hear_stray(event, arrival_perf_ns)
            return []
        self._last_sign_perf_ns = max(self._last_sign_perf_ns, arrival_perf_ns)
        if event.kind is EventKind.AUDIO:
            reply.hear(self._playout, event, arrival_perf_ns)
        elif event.kind is EventKind.RESPONSE_DONE and reply.status == "cancelled":
            return self._stop([reply], arrival_perf_ns)
        return []

    def _yield_floor(self, now_perf_ns: int) -> list[Action]:
        """The caller speaks into what is playing, or starves and would go on: stop it and say how much was heard."""
        cut = () if self._cut is None else self._cut.timeline.replies.values()
        running = () if self.exchange is None else self.exchange.timeline.replies.values()
        return self._stop([*self._strays.replies, *cut, *running], now_perf_ns)

    def _stop(self, replies: list[Reply], now_perf_ns: int) -> list[Action]:
        played_ms: int | None = None
        for reply in replies:
            if reply.playback is not None and reply.goes_on(now_perf_ns):
                played_ms = reply.playback.played_ms(now_perf_ns)
                self._playout.stop(reply.playback, now_perf_ns)
            if reply.playback is not None and reply.stopped:
                self._stopped.add(reply.response_id)
        return [] if played_ms is None else [Interrupt(played_ms)]

    def _on_stray(self, event: VoiceEvent, arrival_perf_ns: int) -> list[Action]:
        if event.response_id is not None:
            self._known_replies |= {event.response_id}
        if event.kind is EventKind.AUDIO:
            self._hear_stray(event, arrival_perf_ns)
        if event.kind is EventKind.ERROR and event.fatal:
            return self.on_closed(event.message or "the endpoint ended the session", arrival_perf_ns, event.failure)
        return []

    def _hear_stray(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Audio that answers nothing still occupies the speaker, unless it is the rest of a reply that was stopped."""
        key = event.response_id or ""
        self._known_replies |= {key}
        if key not in self._stopped:
            self._strays.hear(key, event, arrival_perf_ns)

    def on_closed(self, reason: str, now_perf_ns: int, failure: Failure | None = None) -> list[Action]:
        """The connection is gone. A turn under way, or still to come, failed by it."""
        if self.state is State.OVER:
            return []
        if self.exchange is None and self._next < len(self._plan.turns):
            self._open_exchange(now_perf_ns)
        if self.exchange is None:
            self.state = State.OVER
            return [HangUp(reason)]
        self.exchange.failure = failure
        return self._finish("error", reason, now_perf_ns)

    def break_off(self, cut_by: str, now_perf_ns: int, *, connecting_since_perf_ns: int | None = None) -> list[Action]:
        """We stop, whatever the endpoint owes: a turn that has begun ends as it stands, and no other begins. So does
        the first turn of a caller who is still connecting. `cut_by` says what ended it."""
        if self.state is State.OVER:
            return []
        if self.exchange is None and connecting_since_perf_ns is not None and self._plan.turns:
            self._open_exchange(connecting_since_perf_ns)
        exchange, self._winding_down = self.exchange, True
        if exchange is None:
            return self._think(now_perf_ns)
        if exchange.timeline.complete and not exchange.speaks_backchannel:
            return self._finish(*judge_complete(exchange), now_perf_ns)  # only its end was still to be played
        exchange.cut_by, exchange.hangup_perf_ns = cut_by, now_perf_ns
        return self._finish("cut", reason_of_cut(exchange, now_perf_ns), now_perf_ns)

    # Time.

    def on_time(self, now_perf_ns: int) -> list[Action]:
        """The deadline has passed."""
        if self.state is State.OVER or now_perf_ns < self.deadline_perf_ns:
            return []
        if self.state is State.THINKING:
            return self._think(now_perf_ns) if self._winding_down else self._begin_when_quiet(now_perf_ns)
        return self._proceed(now_perf_ns)

    def _begin_when_quiet(self, now_perf_ns: int) -> list[Action]:
        """What was said since the last turn ended is heard out, as far as any reply may go on."""
        heard_out = min(
            self._strays.heard_until(now_perf_ns), self._thinking_since_perf_ns + self._plan.limits.longest_reply_ns
        )
        if heard_out > now_perf_ns:
            self.deadline_perf_ns = heard_out
            return []
        return self._begin_turn(now_perf_ns)

    def _begin_turn(self, now_perf_ns: int) -> list[Action]:
        exchange = self._open_exchange(now_perf_ns)
        clip = exchange.planned.clip
        if clip is None:
            exchange.timeline.silent = True
            self.state = State.WAITING
            self._last_sign_perf_ns = now_perf_ns
            self._set_deadline()
            return []
        self.state = State.SPEAKING
        # Saying it takes as long as it takes; the deadline only guards against a line that was cut.
        self.deadline_perf_ns = now_perf_ns + self._plan.limits.reply_ns + clip.duration_ns
        return [Say(clip)]

    def _open_exchange(self, now_perf_ns: int) -> Exchange:
        planned = self._plan.turns[self._next]
        timeline = Timeline(self._known_replies)
        timeline.complain(*self._complaints)
        self.exchange = Exchange(self._next, planned, timeline, now_perf_ns, notes=self._notes)
        self._notes = WireNotes()
        if planned.barge_in is not None:
            self.exchange.barge_in_missed = REPLY_WAS_OVER
        self._next += 1
        return self.exchange

    def _proceed(self, now_perf_ns: int) -> list[Action]:
        actions = self._tell_cut(now_perf_ns)
        exchange = self.exchange
        if exchange is None or self.state in (State.THINKING, State.OVER):
            return actions
        if self.state is State.SPEAKING:
            late = now_perf_ns >= self.deadline_perf_ns
            over = self._finish("invalid", "the utterance could not be sent", now_perf_ns) if late else []
            return actions + over
        first_audio = exchange.timeline.first_audio_perf_ns
        if self.state is State.WAITING and first_audio is not None and first_audio <= now_perf_ns:
            self.state = State.HEARING
        if self.state is State.HEARING:
            actions += self._speak_into_reply(exchange, now_perf_ns)
            if self.exchange is not exchange:
                return actions
        if (
            exchange.timeline.complete
            and self._playout.playing_until_perf_ns <= now_perf_ns
            and not exchange.speaks_backchannel
        ):
            return actions + self._finish(*judge_complete(exchange), now_perf_ns)
        return actions + self._wait_on(exchange, now_perf_ns)

    def _wait_on(self, exchange: Exchange, now_perf_ns: int) -> list[Action]:
        if self.state is State.WAITING:
            actions = self._lose_patience(exchange, now_perf_ns)
            if actions:
                return actions
        longest = longest_until(exchange, self._plan.limits)
        if longest is not None and now_perf_ns >= longest:
            return self._finish(*judge_too_long(self._plan.limits.longest_reply_ns), now_perf_ns)
        wait = self._wait_of(exchange)
        if now_perf_ns >= wait.until_perf_ns:
            return self._finish(*judge_given_up(exchange, wait.length_ns), now_perf_ns)
        self._set_deadline()
        return []

    def _speak_at(self, exchange: Exchange) -> tuple[int, PlannedTurn | None] | None:
        if self._winding_down:
            return None
        return speak_at(exchange, self._plan.turns[self._next] if self._next < len(self._plan.turns) else None)

    def _speak_into_reply(self, exchange: Exchange, now_perf_ns: int) -> list[Action]:
        planned = self._speak_at(exchange)
        answer = exchange.timeline.answer
        if planned is None or answer is None or now_perf_ns < planned[0]:
            return []
        answer.spoken_into = True
        exchange.timeline.overlapped = True
        backchannel = exchange.planned.backchannel
        if planned[1] is None and backchannel is not None:
            exchange.backchannel = Aside()
            return [Say(backchannel.clip)]
        told = self._tell_cut(now_perf_ns, whatever=True)
        exchange.outcome, exchange.cut_short = "ok", True
        self._cut, self._cut_told = exchange, False
        self._known_replies |= frozenset(exchange.timeline.replies)
        actions = self._begin_turn(now_perf_ns)
        if self.exchange is not None:
            self.exchange.spoke_into, self.exchange.barge_in_missed = answer, None
        return told + actions

    def _tell_cut(self, now_perf_ns: int, *, whatever: bool = False) -> list[Action]:
        """The exchange whose reply was broken into is finished when nothing more of that reply comes or plays."""
        cut = self._cut
        if cut is None or self._cut_told:
            return []
        replies = cut.timeline.replies.values()
        going_on = any(r.done_perf_ns is None or (r.playback and r.playback.is_playing(now_perf_ns)) for r in replies)
        if going_on and not whatever:
            return []
        cut.ended_perf_ns = now_perf_ns
        self._cut_told = True
        return [cut]

    def _lose_patience(self, exchange: Exchange, now_perf_ns: int) -> list[Action]:
        ends, since = patience_ends(exchange), exchange.silent_since_perf_ns
        if ends is None or since is None or now_perf_ns < ends:
            return []
        exchange.hangup_perf_ns = now_perf_ns
        waited_s = (now_perf_ns - since) / 1e9
        return self._finish("abandoned", f"the caller hung up after {waited_s:.1f} s of silence", now_perf_ns)

    def _wait_of(self, exchange: Exchange) -> Wait:
        return wait_of(exchange, self._plan.limits, self._last_sign_perf_ns, self._playout.playing_until_perf_ns)

    def _set_deadline(self) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        deadlines = [self._wait_of(exchange).until_perf_ns, longest_until(exchange, self._plan.limits)]
        if self.state is State.WAITING:
            deadlines += [patience_ends(exchange), exchange.timeline.first_audio_perf_ns]
        elif (planned := self._speak_at(exchange)) is not None:
            deadlines.append(planned[0])
        if exchange.timeline.complete or not self._cut_told:
            deadlines.append(self._playout.playing_until_perf_ns)
        self.deadline_perf_ns = min(each for each in deadlines if each is not None)

    def _finish(self, outcome: Outcome, reason: str | None, now_perf_ns: int) -> list[Action]:
        exchange = self.exchange
        if exchange is None:
            return []
        told = self._tell_cut(now_perf_ns, whatever=True)
        self._cut = None
        exchange.outcome, exchange.reason, exchange.ended_perf_ns = outcome, reason, now_perf_ns
        self._known_replies |= frozenset(exchange.timeline.replies)
        if outcome == "ok":
            return [*told, exchange, *self._think(now_perf_ns)]
        # After a failed turn the call ends: a late answer could be taken for that of the next question.
        self.state = State.OVER
        self.exchange = None
        return [*told, exchange, HangUp(reason or outcome)]
