"""The caller's behavior in an exchange, as fields of its `Turn`: barge-in, talk-over, backchannel, silence, patience.

An interruption is one only if the caller's *speech* fell into the reply: it counts from the first speech sample, and a
reply that was over by then was not interrupted, whatever had been planned.

Only a reply that the endpoint broke off has a stop, and only where something on the wire shows that. Of all others it
is said how they ended: by themselves while the caller spoke, or not before the caller had spoken. Where the wire shows
neither that a reply is broken off nor its text, nothing is known about one that is over.
"""

from collections.abc import Iterable
from typing import Any, Final

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.timeline import Reply
from telemetry.model.semconv import BargeInEnd, TurnKind

STILL_PLAYING: Final = "the reply was still playing when the turn ended"
SILENT_BY_THEN: Final = "the reply had fallen silent before the caller's first speech sample"
NOT_SPOKEN: Final = "the turn ended before the caller's first speech sample"
ENDED_BY_ITSELF: Final = "the reply ended by itself: nothing shows that the endpoint broke it off"
NEVER_STOPPED: Final = "the reply went on until the caller had spoken"
CANNOT_TELL: Final = "this wire shows neither that a reply is broken off nor its text"
BY_THE_CALLER: Final = "the caller's own client stops the reply under manual turns"


def behavior(exchange: Exchange) -> dict[str, Any]:
    """The fields of telemetry.model.turns.Turn on how the caller behaved, of a finished exchange."""
    planned, timeline = exchange.planned, exchange.timeline
    kind: TurnKind = "silence" if planned.clip is None else "question" if exchange.spoke_into is None else "barge_in"
    fields: dict[str, Any] = {
        "turn_kind": kind,
        "patience_ns": planned.patience_ns,
        "cut_short": exchange.reply_interrupted or None,
        "talk_over_ns": _talk_over_ns(exchange),
        "barge_in_reason": exchange.barge_in_missed,
        "backchannel_stopped": _backchannel_stopped(exchange),
        "conversation": planned.conversation,
        "expected_intent": planned.expected_intent,
    }
    if planned.clip is None:
        fields |= {"silence_ns": planned.silence_ns, "reprompted": timeline.first_audio_perf_ns is not None}
    if exchange.spoke_into is not None:
        fields |= _barge_in(exchange, exchange.spoke_into)
    return fields


def _barge_in(exchange: Exchange, reply: Reply) -> dict[str, Any]:
    start, ended = exchange.timeline.speech_start_perf_ns, exchange.ended_perf_ns
    first = None if reply.playback is None else reply.playback.first_audio_perf_ns
    last = None if reply.playback is None else reply.playback.last_audio_perf_ns
    if start is None or ended is None or first is None or last is None:
        return {"barge_in_reason": NOT_SPOKEN}
    if last < start and not exchange.stopped_by_client:
        return {"barge_in_reason": SILENT_BY_THEN}
    fields: dict[str, Any] = {"barge_in_at_ns": start - first, "barge_in_recovered": exchange.outcome == "ok"}
    if exchange.stopped_by_client:
        return fields | {"barge_in_end": "cannot_tell", "barge_in_reason": BY_THE_CALLER}
    end, reason = _end_of(reply, exchange, last)
    fields |= {"barge_in_end": end, "barge_in_reason": reason}
    return fields | {"barge_in_stop_ns": last - start} if end == "stopped" else fields


def _end_of(reply: Reply, exchange: Exchange, last_perf_ns: int) -> tuple[BargeInEnd, str | None]:
    """Return how the reply ended that the caller interrupted, and why it has no stop; its last audible sample was
    played then.

    What was dropped here unasked would have been heard.
    """
    ended_perf_ns, spoken_perf_ns = exchange.ended_perf_ns or 0, exchange.timeline.speech_end_perf_ns
    if last_perf_ns > ended_perf_ns:
        return "never_stopped", STILL_PLAYING
    if reply.was_cut:
        return "stopped", None
    if not exchange.shows_cuts and not reply.text:
        return "cannot_tell", CANNOT_TELL
    if reply.was_sent_on or max(last_perf_ns, reply.dropped_until_perf_ns) >= (spoken_perf_ns or ended_perf_ns):
        return "never_stopped", NEVER_STOPPED
    return "ended_by_itself", ENDED_BY_ITSELF


def _backchannel_stopped(exchange: Exchange) -> bool | None:
    backchannel, answer = exchange.backchannel, exchange.timeline.answer
    if backchannel is None or backchannel.start_perf_ns is None or answer is None or answer.playback is None:
        return None
    last = answer.playback.last_audio_perf_ns
    if last is None or last < backchannel.start_perf_ns:
        return None
    return True if answer.was_cut else None if not exchange.shows_cuts and not answer.text else False


def _talk_over_ns(exchange: Exchange) -> int | None:
    """Return how long both spoke while this turn was the caller's: the question over any reply, a backchannel over its
    own."""
    timeline, backchannel = exchange.timeline, exchange.backchannel
    begin, end = timeline.speech_start_perf_ns, timeline.speech_end_perf_ns
    if begin is None or end is None:
        return None
    replies = [*timeline.replies.values(), *([] if exchange.spoke_into is None else [exchange.spoke_into])]
    total = _both_spoke_ns(replies, begin, end)
    if backchannel is not None and backchannel.start_perf_ns is not None and backchannel.end_perf_ns is not None:
        total += _both_spoke_ns(replies, backchannel.start_perf_ns, backchannel.end_perf_ns)
    return total


def _both_spoke_ns(replies: Iterable[Reply], begin_perf_ns: int, end_perf_ns: int) -> int:
    total = 0
    for reply in replies:
        if reply.playback is None:
            continue
        first, last = reply.playback.first_audio_perf_ns, reply.playback.last_audio_perf_ns
        if first is not None and last is not None:
            total += max(0, min(end_perf_ns, last) - max(begin_perf_ns, first))
    return total
