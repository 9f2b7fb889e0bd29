"""The caller speaks while a reply plays: when it begins, and what becomes of the reply's exchange. Pure.

The endpoint stops the reply: by an event (the caller's speech started, the response is canceled), upon which a client
that follows the wire plays no more of it, or by sending no more audio. Under manual turns the client itself stops the
reply and reports it. What arrives of the interrupted reply is recognized by its response id and never answers the turn
that interrupted it (`ReplyNames` tells replies without ids apart).

An exchange is *interrupted* when the caller's next turn begins during its reply. It is *cut* when the load generator
ends it (the outcome `cut`).
"""

from dataclasses import dataclass

from loadtest.conversation.exchange import Exchange, ServiceReports
from loadtest.conversation.outcome import judge_complete
from loadtest.conversation.plan import PlannedTurn
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.timeline import Timeline
from loadtest.protocols.base import EventKind, VoiceEvent


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
        """What happened in it, and still does."""
        return self._exchange.timeline

    @property
    def service(self) -> ServiceReports:
        """What the service states of it."""
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
