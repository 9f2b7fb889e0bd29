"""When a caller speaks into a reply that plays. Pure."""

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.outcome import judge_complete
from loadtest.conversation.plan import PlannedTurn


def speak_at(exchange: Exchange, following: PlannedTurn | None) -> tuple[int, PlannedTurn | None] | None:
    """When the caller begins to speak, so that the first speech sample falls on the point that was planned, and with
    what: the turn that follows, or (None) a backchannel. None if it does not, or not as things stand."""
    answer = exchange.timeline.answer
    if answer is None:
        return None
    if answer.is_over and judge_complete(exchange)[0] != "ok":
        return None
    backchannel = exchange.planned.backchannel
    if backchannel is not None and exchange.backchannel is None:
        moment = answer.speech_begins_at(backchannel.point)
        if moment is not None:
            return moment - backchannel.clip.lead_ns, None
    if following is None or following.barge_in is None or following.clip is None or exchange.speaks_backchannel:
        return None
    moment = answer.speech_begins_at(following.barge_in)
    return None if moment is None else (moment - following.clip.lead_ns, following)
