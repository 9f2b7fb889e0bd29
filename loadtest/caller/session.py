"""The conversation as a state machine: what to say, when to speak next, when to give up. Pure.

    THINKING --think time over--> SPEAKING --last voiced sample sent--> WAITING
    WAITING --audible--> HEARING --played--> THINKING
    any state --patience over, time-out, fatal error, closed--> OVER

The engine feeds it what happened, with the moment, and carries out the actions it returns.
"""

from dataclasses import dataclass, field
from enum import Enum

from loadtest.caller.evidence import Evidence
from loadtest.caller.line import PreparedClip
from loadtest.caller.plan import SECOND_NS, CallPlan, PlannedTurn
from loadtest.caller.playout import Speaker
from loadtest.caller.timeline import Reply, Timeline
from loadtest.protocols.base import EventKind, VoiceEvent
from telemetry.semconv import Outcome

# After a whole answer, how long the caller waits for what the endpoint still owes (a transcript, another reply).
OWED_NS = 2 * SECOND_NS


class State(Enum):
    """Where the conversation stands."""

    THINKING = "thinking"
    SPEAKING = "speaking"
    WAITING = "waiting"
    HEARING = "hearing"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Say:
    """Begin an utterance with the next frame."""

    clip: PreparedClip


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Tell the endpoint that the caller has finished (manual turns)."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Tell the endpoint how much of its reply was heard before the caller's speech stopped it."""

    played_ms: int


@dataclass(frozen=True, slots=True)
class HangUp:
    """The call is over."""

    reason: str


@dataclass(slots=True)
class Exchange:
    """One finished or running turn, with all that its record needs."""

    index: int
    planned: PlannedTurn
    timeline: Timeline
    began_perf_ns: int
    evidence: Evidence = field(default_factory=Evidence)
    outcome: Outcome | None = None
    reason: str | None = None
    ended_perf_ns: int | None = None
    hangup_perf_ns: int | None = None


Action = Say | EndTurn | Interrupt | HangUp | Exchange


class Session:
    """One caller's conversation. `deadline_perf_ns` is when `on_time` wants to be called next."""

    def __init__(self, plan: CallPlan, speaker: Speaker) -> None:
        self._plan = plan
        self._speaker = speaker
        self._next = 0
        self._known_replies: frozenset[str] = frozenset()
        self._stray: dict[str, Reply] = {}
        self._last_sign_perf_ns = 0
        self.state = State.THINKING
        self.deadline_perf_ns = 0
        self.exchange: Exchange | None = None
        self._winding_down = False
        self._complaints: list[str] = []

    def complain(self, message: str) -> None:
        """The endpoint complained while the session was set up: it may be why no answer comes."""
        self._complaints.append(message)

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
        # A caller does not speak into what is still playing.
        begin = max(now_perf_ns, self._speaker.playing_until_perf_ns)
        self.deadline_perf_ns = begin + self._plan.turns[self._next].think_ns
        return []

    # What the engine reports of the outgoing side.

    def on_speech_start(self, moment_perf_ns: int, lateness_ns: int) -> list[Action]:
        """The first voiced sample left the caller's mouth."""
        if self.exchange is not None:
            self.exchange.timeline.speech_start_perf_ns = moment_perf_ns
            self.exchange.evidence.start_lateness_ns = lateness_ns
        return []

    def on_speech_end(
        self, moment_perf_ns: int, audio_position_ns: int, lateness_ns: int, unsent_bytes: int | None
    ) -> list[Action]:
        """The last voiced sample left the caller's mouth; `audio_position_ns` on the audio clock of the call."""
        exchange = self.exchange
        if exchange is None or self.state is not State.SPEAKING:
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

    def on_event(self, event: VoiceEvent, arrival_perf_ns: int) -> list[Action]:
        """One event that the kernel received at a moment."""
        if self.state is State.OVER:
            return []
        exchange = self.exchange
        if exchange is None:
            return self._on_stray(event, arrival_perf_ns)
        actions: list[Action] = []
        timeline = exchange.timeline
        if event.kind is EventKind.SPEECH_STARTED:
            actions += self._yield_floor(timeline, arrival_perf_ns)
        reply = timeline.note(event, arrival_perf_ns)
        if reply is not None:
            self._last_sign_perf_ns = max(self._last_sign_perf_ns, arrival_perf_ns)
            if event.kind is EventKind.AUDIO:
                reply.hear(self._speaker, event, arrival_perf_ns)
            elif event.kind is EventKind.RESPONSE_DONE and reply.cancelled and reply.playback is not None:
                self._speaker.stop(reply.playback, arrival_perf_ns)
        elif event.kind is EventKind.AUDIO:
            self._hear_stray(event, arrival_perf_ns)
        if timeline.fatal_perf_ns is not None:
            return actions + self._finish("error", timeline.errors[-1], arrival_perf_ns)
        return actions + self._proceed(arrival_perf_ns)

    def _yield_floor(self, timeline: Timeline, now_perf_ns: int) -> list[Action]:
        """The endpoint heard the caller speak into its reply: stop playing it and say how much was heard."""
        for reply in timeline.replies.values():
            playback = reply.playback
            if playback is not None and playback.stopped_perf_ns is None and self._playing(now_perf_ns):
                played_ms = playback.played_ms(now_perf_ns)
                self._speaker.stop(playback, now_perf_ns)
                return [Interrupt(played_ms)]
        return []

    def _playing(self, now_perf_ns: int) -> bool:
        return self._speaker.playing_until_perf_ns > now_perf_ns

    def _on_stray(self, event: VoiceEvent, arrival_perf_ns: int) -> list[Action]:
        if event.response_id is not None:
            self._known_replies |= {event.response_id}
        if event.kind is EventKind.AUDIO:
            self._hear_stray(event, arrival_perf_ns)
        if event.kind is EventKind.ERROR and event.fatal:
            return self.on_closed(event.message or "the endpoint ended the session", arrival_perf_ns)
        return []

    def _hear_stray(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Audio that answers nothing still occupies the speaker."""
        key = event.response_id or ""
        self._known_replies |= {key}
        self._stray.setdefault(key, Reply(key, arrival_perf_ns)).hear(self._speaker, event, arrival_perf_ns)

    def on_closed(self, reason: str, now_perf_ns: int) -> list[Action]:
        """The connection is gone. A turn under way, or still to come, failed by it."""
        if self.state is State.OVER:
            return []
        if self.exchange is None and self._next < len(self._plan.turns):
            self._open_exchange(now_perf_ns)
        if self.exchange is None:
            self.state = State.OVER
            return [HangUp(reason)]
        return self._finish("error", reason, now_perf_ns)

    # Time.

    def on_time(self, now_perf_ns: int) -> list[Action]:
        """The deadline has passed."""
        if self.state is State.OVER or now_perf_ns < self.deadline_perf_ns:
            return []
        if self.state is State.THINKING and self._winding_down:
            return self._think(now_perf_ns)
        if self.state is State.THINKING:
            exchange = self._open_exchange(now_perf_ns)
            self.state = State.SPEAKING
            # Saying it takes as long as it takes; the deadline only guards against a line that was cut.
            self.deadline_perf_ns = now_perf_ns + self._plan.limits.reply_ns + _clip_ns(exchange.planned.clip)
            return [Say(exchange.planned.clip)]
        return self._proceed(now_perf_ns)

    def _open_exchange(self, now_perf_ns: int) -> Exchange:
        timeline = Timeline(self._known_replies)
        timeline.errors += self._complaints
        self.exchange = Exchange(self._next, self._plan.turns[self._next], timeline, now_perf_ns)
        self._next += 1
        return self.exchange

    def _proceed(self, now_perf_ns: int) -> list[Action]:
        exchange = self.exchange
        if exchange is None or self.state in (State.THINKING, State.OVER):
            return []
        if self.state is State.SPEAKING:
            late = now_perf_ns >= self.deadline_perf_ns
            return self._finish("invalid", "the utterance could not be sent", now_perf_ns) if late else []
        first_audio = exchange.timeline.first_audio_perf_ns
        if self.state is State.WAITING and first_audio is not None and first_audio <= now_perf_ns:
            self.state = State.HEARING
        if exchange.timeline.complete and not self._playing(now_perf_ns):
            return self._finish(*self._judge_complete(exchange), now_perf_ns)
        if self.state is State.WAITING:
            actions = self._lose_patience(exchange, now_perf_ns)
            if actions:
                return actions
        if now_perf_ns >= self._give_up_at(exchange):
            return self._finish(*self._judge_silent(exchange), now_perf_ns)
        self._set_deadline()
        return []

    def _lose_patience(self, exchange: Exchange, now_perf_ns: int) -> list[Action]:
        patience_ns, end = exchange.planned.patience_ns, exchange.timeline.speech_end_perf_ns
        if patience_ns is None or end is None or now_perf_ns < end + patience_ns:
            return []
        exchange.hangup_perf_ns = now_perf_ns
        waited_s = (now_perf_ns - end) / 1e9
        return self._finish("abandoned", f"the caller hung up after {waited_s:.1f} s of silence", now_perf_ns)

    def _give_up_at(self, exchange: Exchange) -> int:
        begin = max(self._last_sign_perf_ns, self._speaker.playing_until_perf_ns)
        if exchange.timeline.answered:
            return begin + min(OWED_NS, self._plan.limits.reply_ns)
        if self.state is State.WAITING and exchange.timeline.speech_end_perf_ns is not None:
            begin = exchange.timeline.speech_end_perf_ns
        return begin + self._plan.limits.reply_ns

    def _set_deadline(self) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        deadlines = [self._give_up_at(exchange)]
        patience_ns, end = exchange.planned.patience_ns, exchange.timeline.speech_end_perf_ns
        if self.state is State.WAITING:
            if patience_ns is not None and end is not None:
                deadlines.append(end + patience_ns)
            first_audio = exchange.timeline.first_audio_perf_ns
            if first_audio is not None:
                deadlines.append(first_audio)
        if exchange.timeline.complete:
            deadlines.append(self._speaker.playing_until_perf_ns)
        self.deadline_perf_ns = min(deadlines)

    def _judge_complete(self, exchange: Exchange) -> tuple[Outcome, str | None]:
        timeline = exchange.timeline
        answer = timeline.answer
        if answer is None:
            return "interrupted", "the endpoint broke off its reply and gave no other"
        if answer.status == "failed":
            return "error", timeline.errors[-1] if timeline.errors else "the endpoint says that its reply failed"
        if timeline.first_audio_perf_ns is None:
            return (
                ("error", timeline.errors[0]) if timeline.errors else ("no_reply", "the reply holds no audible audio")
            )
        implausible = answer.implausible_rate()
        if implausible is None:
            return "ok", None
        return "error", timeline.errors[0] if timeline.errors else implausible

    def _judge_silent(self, exchange: Exchange) -> tuple[Outcome, str | None]:
        timeline = exchange.timeline
        waited_s = self._plan.limits.reply_ns / 1e9
        if timeline.answered or (timeline.replies and timeline.answer is None):
            return self._judge_complete(exchange)
        if timeline.errors:
            return "error", timeline.errors[-1]
        if timeline.first_audio_perf_ns is not None:
            return "timeout", f"the reply began and nothing of it came for {waited_s:g} s"
        if timeline.replies:
            return "timeout", f"the endpoint began to answer and was not heard within {waited_s:g} s"
        if timeline.early_replies:
            return "no_reply", "the endpoint answered before the question and not after it"
        return "no_reply", f"no answer within {waited_s:g} s"

    def _finish(self, outcome: Outcome, reason: str | None, now_perf_ns: int) -> list[Action]:
        exchange = self.exchange
        if exchange is None:
            return []
        exchange.outcome, exchange.reason, exchange.ended_perf_ns = outcome, reason, now_perf_ns
        self._known_replies |= frozenset(exchange.timeline.replies)
        if outcome == "ok":
            return [exchange, *self._think(now_perf_ns)]
        # After a failed turn the call ends: a late answer could be taken for that of the next question.
        self.state = State.OVER
        self.exchange = None
        return [exchange, HangUp(reason or outcome)]


def _clip_ns(clip: PreparedClip) -> int:
    return len(clip.frames) * clip.frame_samples * 1_000_000_000 // clip.rendered.rate_hz
