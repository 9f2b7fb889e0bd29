"""The caller's waits for what is still to come of a turn. Pure: moments are parameters.

A reply ends by an event, or by silence where the wire has no such event. Where the endpoint owes nothing but that
event, or a transcript, the wait is short; where a reply that was heard simply stops, it is as long as for its
beginning. Every wait ends: what is heard has a longest length, and what is not heard yet has to be within the reply
time-out. On a wire without audio, the first piece of text counts as heard, and the rest of it as audio would.
"""

from dataclasses import dataclass
from typing import Final

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.outcome import Judgment, judge_given_up, judge_too_long
from loadtest.conversation.plan import SECOND_NS, Limits
from loadtest.conversation.state import Input
from loadtest.conversation.timeline import Timeline
from loadtest.protocols.failure import Failure

# After a whole answer, how long the caller waits for what the endpoint still owes (a transcript, another reply).
OWED_NS: Final = 2 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Wait:
    """Until when the caller waits, and for how long nothing will have come by then."""

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
