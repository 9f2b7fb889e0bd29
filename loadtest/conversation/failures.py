"""The cause of a failed exchange, as a value. Pure.

The cause that ended a call is recorded on the exchange, where it happened; the causes of errors that the endpoint
reported are on its timeline, by their sentence. The rest follows from how the exchange ended.
"""

from collections.abc import Mapping
from typing import Final

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.timeline import Timeline
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.message_limit import invalid_reason

# What a turn is invalid for whose failure is the load generator's own, by the code of the failure.
_FAULTS: Final[Mapping[str | None, str]] = {
    "EADDRNOTAVAIL": "out of local ports",
    "EAGAIN": "out of system resources",
    "EMFILE": "out of open files",
    "ENFILE": "out of open files",
    "ENOBUFS": "out of socket buffers",
    "ENOMEM": "out of memory",
    "bad_request": "request not sent",
    "cannot_listen": "cannot listen",
    "not_sent": "utterance not sent",
}
OTHER_FAULT: Final = "generator fault"


def failure_of(exchange: Exchange) -> Failure | None:
    """The cause, None for a turn that ended well, was cut by us, or still runs."""
    outcome = exchange.outcome
    if outcome is None or outcome in ("ok", "cut", "pending"):
        return None
    if exchange.failure is not None:
        return exchange.failure
    timeline = exchange.timeline
    match outcome:
        case "no_reply":
            return Failure("no_reply", code_of(cut_short_by(timeline)) or instead_of_a_reply(timeline))
        case "timeout":
            return Failure("timeout", _unfinished(timeline))
        case "abandoned":
            return Failure("abandoned")
        case "interrupted":
            return Failure("interrupted")
        case "invalid":
            return Failure("generator", "not_sent")
        case "error":
            return timeline.failures.get(exchange.reason or "") or _of_reply(exchange)


def fault_of(failure: Failure | None) -> str | None:
    """Return why a turn that failed so is invalid; None if its failure is not the load generator's own."""
    if failure is None or failure.kind != "generator":
        return None
    return invalid_reason(failure) or _FAULTS.get(failure.code, OTHER_FAULT)


def _unfinished(timeline: Timeline) -> str:
    if timeline.answer_began_perf_ns is None:
        return "reply_not_heard"
    return "reply_endless"


def instead_of_a_reply(timeline: Timeline) -> str | None:
    """Return what came instead of an audible reply; None where nothing did."""
    replies = [reply for reply in timeline.replies.values() if not reply.cancelled]
    if any(reply.playback is not None for reply in replies):
        return "inaudible"
    if any("tool_call" in reply.carried for reply in replies):
        return "only_tool_call"
    if any(reply.text or "text" in reply.carried for reply in replies):
        return "only_text"
    return "empty" if replies else "early" if timeline.early_replies else None


def cut_short_by(timeline: Timeline) -> str | None:
    """Return why the endpoint cut short what was not heard, in its own word; None where it gave none."""
    return next((reply.why for reply in timeline.replies.values() if reply.status == "incomplete" and reply.why), None)


def _of_reply(exchange: Exchange) -> Failure:
    answer = exchange.timeline.answer
    if any(reply.foreign_file is not None for reply in exchange.timeline.replies.values()):
        return Failure("bad_audio", "file_header")
    if any(reply.status == "failed" for reply in exchange.timeline.replies.values()):
        return Failure("endpoint_error", "failed")
    if answer is not None and answer.implausible_rate() is not None:
        return Failure("bad_audio", "sample_rate")
    return Failure("other")
