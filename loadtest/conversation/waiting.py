"""The caller's waits for what is still to come of a turn. Pure: moments are parameters.

A reply ends by an event, or by silence where the wire has no such event. Where the endpoint owes nothing but that
event, or a transcript, the wait is short; where a reply that was heard simply stops, it is as long as for its
beginning. Every wait ends: what is heard has a longest length, and what is not heard yet has to be within the reply
time-out. On a wire without audio, the first piece of text counts as heard, and the rest of it as audio would.

The caller may speak while a reply plays. The endpoint stops it: by an event (the caller's speech started, the response
is canceled), upon which a client that follows the wire plays no more of it, or by sending no more audio. Under manual
turns the client itself stops the reply and reports it. What arrives of the interrupted reply is recognized by its
response id and never answers the turn that interrupted it (`ReplyNames` distinguishes replies without ids).

An exchange is *interrupted* when the caller's next turn begins during its reply. It is *cut* when the load generator
ends it (the outcome `cut`).
"""

from dataclasses import dataclass
from typing import Final

from loadtest.conversation.exchange import Exchange, ServiceReports
from loadtest.conversation.outcome import Judgment, judge_complete, judge_given_up, judge_too_long
from loadtest.conversation.plan import SECOND_NS, Limits, PlannedTurn
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.state import Input
from loadtest.conversation.timeline import Timeline
from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.failure import Failure


@dataclass(frozen=True, slots=True)
class SpeechIntoReply:
    """Speech into a reply: its beginning, its clip, and whether it is the next turn or a backchannel."""

    at_perf_ns: int
    clip: PreparedClip
    interrupts: bool


def speech_into_reply(exchange: Exchange, following: PlannedTurn | None) -> SpeechIntoReply | None:
    """Return what the caller, who hears a reply, says into it next.

    The moment is that of the clip's first frame, chosen so that its first speech sample falls on the planned point.
    None where nothing is planned, where the point is not known yet, and where the reply has ended or failed.
    """
    backchannel = exchange.planned.backchannel if exchange.backchannel is None else None
    if backchannel is None and (following is None or following.barge_in is None):
        return None  # most callers, with every event
    answer = exchange.timeline.answer
    if answer is None:
        return None
    if answer.is_over and judge_complete(exchange)[0] != "ok":
        return None
    if backchannel is not None:
        moment = answer.speech_begins_at(backchannel.point)
        if moment is not None:
            return SpeechIntoReply(moment - backchannel.clip.lead_ns, backchannel.clip, interrupts=False)
    if following is None or following.barge_in is None or following.clip is None:
        return None
    moment = answer.speech_begins_at(following.barge_in)
    return None if moment is None else SpeechIntoReply(moment - following.clip.lead_ns, following.clip, interrupts=True)


class InterruptedExchange:
    """An exchange whose reply the running turn has interrupted, until that turn ends.

    It is finished when nothing more of the reply comes or plays, and at the latest with the running turn. Late events
    about it stay its own also after that.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        exchange.outcome, exchange.reply_interrupted = "ok", True
        self._exchange = exchange

    @property
    def timeline(self) -> Timeline:
        """The events of it so far."""
        return self._exchange.timeline

    @property
    def service(self) -> ServiceReports:
        """The service's statements about it."""
        return self._exchange.service

    @property
    def is_finished(self) -> bool:
        """Whether the exchange has been handed out."""
        return self._exchange.ended_perf_ns is not None

    def owns(self, event: VoiceEvent, *, question_is_open: bool) -> bool:
        """Return whether an event is about this exchange.

        While the question of the running turn is open, a response that begins is the one that a tool call of the
        interrupted reply has announced, if one has.
        """
        announced = question_is_open and event.kind is EventKind.RESPONSE_STARTED
        return self.timeline.owns(event) or (announced and self.timeline.owes_response)

    def is_reported_by(self, event: VoiceEvent, running: Exchange) -> bool:
        """Return whether the service's report on itself is about this exchange: about its reply, or one that no reply
        is named in and that comes before the question of the `running` exchange has ended."""
        if event.response_id is not None:
            return event.response_id in self.timeline.replies
        return not running.timeline.asked and not self.is_finished

    def finish_when_quiet(self, now_perf_ns: int) -> list[Exchange]:
        """The exchange, once, as soon as nothing more of its reply comes or plays."""
        for reply in self.timeline.replies.values():
            if reply.done_perf_ns is None or (reply.playback is not None and reply.playback.is_playing(now_perf_ns)):
                return []
        return self.finish(now_perf_ns)

    def finish(self, now_perf_ns: int) -> list[Exchange]:
        """The exchange, once; empty when it was handed out before."""
        if self.is_finished:
            return []
        self._exchange.ended_perf_ns = now_perf_ns
        return [self._exchange]


def note_service_report(event: VoiceEvent, running: Exchange | None, interrupted: InterruptedExchange | None) -> None:
    """Keep what the service states of itself with the exchange that it is about.

    Until the caller has asked, it is about what was before; what comes after the turn it is about is not kept.
    """
    if running is None:
        return
    if interrupted is not None and interrupted.is_reported_by(event, running):
        interrupted.service.note(event)
    elif running.timeline.asked:
        running.service.note(event)


# After a whole answer, how long the caller waits for what the endpoint still owes (a transcript, another reply).
OWED_NS: Final = 2 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Wait:
    """The time until which the caller waits, and the length of the silence by then."""

    until_perf_ns: int
    length_ns: int


def wait_of(exchange: Exchange, limits: Limits, quiet_since_perf_ns: int) -> Wait:
    """Return when the caller gives up waiting. Nothing of this turn has come or played since `quiet_since_perf_ns`."""
    timeline = exchange.timeline
    if timeline.silent and not timeline.replies:
        return Wait(exchange.began_perf_ns + exchange.planned.silence_ns, exchange.planned.silence_ns)
    owed_ns = min(OWED_NS, limits.reply_ns)
    answer = timeline.answer
    if answer is not None:
        closed = answer.is_over or answer.audio_done or answer.status is not None
        length_ns = owed_ns if closed and not timeline.owes_response else limits.reply_ns
        return Wait(quiet_since_perf_ns + length_ns, length_ns)
    replies = timeline.replies.values()
    if any(reply.status == "failed" for reply in replies) and all(reply.is_over for reply in replies):
        return Wait(quiet_since_perf_ns + owed_ns, owed_ns)  # who failed may try again
    if timeline.text_began_perf_ns is not None:
        quiet_since_perf_ns = max([quiet_since_perf_ns, *timeline.partials_perf_ns[-1:]])
        return Wait(quiet_since_perf_ns + limits.reply_ns, limits.reply_ns)
    asked = timeline.speech_end_perf_ns
    if asked is None:
        asked = min((reply.first_event_perf_ns for reply in replies), default=quiet_since_perf_ns)
    return Wait(asked + limits.reply_ns, limits.reply_ns)


def longest_until(exchange: Exchange, limits: Limits) -> int | None:
    """Return when what the caller hears has gone on for as long as any reply may; None while nothing is heard."""
    first = exchange.timeline.answer_began_perf_ns
    return None if first is None else first + limits.longest_reply_ns


def patience_ends(exchange: Exchange) -> int | None:
    """Return when the caller hangs up for having heard nothing; None for one who never does, has not spoken yet, or
    reads."""
    patience_ns, since = exchange.planned.patience_ns, exchange.silent_since_perf_ns
    if patience_ns is None or since is None or exchange.timeline.text_began_perf_ns is not None:
        return None
    return since + patience_ns


def goes_on_at(exchange: Exchange, limits: Limits, wait: Wait, *, waiting: bool) -> int:
    """Return when a caller who waits goes on by itself: to give up, or (`waiting`) because it hears the answer begin.

    `waiting` is whether nothing has been heard yet.
    """
    until_perf_ns, first = wait.until_perf_ns, exchange.timeline.answer_began_perf_ns
    if first is not None:
        hears = not waiting or not exchange.timeline.speaks
        until_perf_ns = min(until_perf_ns, first + limits.longest_reply_ns if hears else first)
    ends = patience_ends(exchange) if waiting else None
    return until_perf_ns if ends is None else min(until_perf_ns, ends)


def give_up(
    exchange: Exchange, limits: Limits, wait: Wait, now_perf_ns: int, *, waiting: bool
) -> tuple[Judgment, Input] | None:
    """Return how the turn ends for a caller who waits no longer, and why; None while it waits on.

    `waiting` is whether nothing has been heard yet: then patience may run out.
    """
    ends, since = patience_ends(exchange), exchange.silent_since_perf_ns
    if waiting and ends is not None and since is not None and now_perf_ns >= ends:
        exchange.hangup_perf_ns = now_perf_ns
        reason = f"the caller hung up after {(now_perf_ns - since) / 1e9:.1f} s of silence"
        return ("abandoned", reason), Input.PATIENCE_OVER
    longest = longest_until(exchange, limits)
    if longest is not None and now_perf_ns >= longest:
        return judge_too_long(limits.longest_reply_ns), Input.TIME_OUT
    if now_perf_ns >= wait.until_perf_ns:
        judgment = judge_given_up(exchange, wait.length_ns)
        if judgment[0] == "timeout" and exchange.timeline.text_began_perf_ns is not None:
            exchange.failure = Failure("timeout", "reply_stalled")
        return judgment, Input.TIME_OUT
    return None


def over_since(timeline: Timeline, now_perf_ns: int) -> int:
    """Since when a turn that is found complete now has been over for the caller, who thinks from then on.

    A caller who waited for a reply to go on has heard the end of it before.
    """
    replies = timeline.replies.values()
    if not any(reply.ended_by_silence for reply in replies):
        return now_perf_ns
    quiet_since = [reply.quiet_since_perf_ns for reply in replies]
    return min(now_perf_ns, max(quiet_since + [arrival_perf_ns for _, _, arrival_perf_ns in timeline.finals]))
