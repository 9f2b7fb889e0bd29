"""The outcome of an exchange that is over. Pure.

A turn whose reply the caller interrupted on purpose was answered, and in time: it is `ok`, and its latencies count. The
interruption itself (when the reply stopped, whether an answer to it followed) is recorded on the turn that
interrupted. `interrupted` is for a reply that the endpoint broke off and did not replace. A silent turn is `ok` whether
the endpoint kept silent too or asked again; it counts neither for nor against the service. A reply that was heard and
never closed is `ok`: the caller has the answer. Its reason says that the endpoint did not close it.

The cause of a failure is a value. What ended a call is recorded on the exchange, where it happened; the causes of
errors that the endpoint reported are on its timeline, by their sentence. The rest follows from how the exchange ended.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.timeline import Reply, Timeline
from loadtest.protocols.base import SUPERSEDED
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.message_limit import invalid_reason
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.semconv import Outcome

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
            return timeline.failures.get(exchange.reason or "") or _reply_failure(exchange)


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


def _reply_failure(exchange: Exchange) -> Failure:
    answer = exchange.timeline.answer
    if any(reply.foreign_file is not None for reply in exchange.timeline.replies.values()):
        return Failure("bad_audio", "file_header")
    if any(reply.status == "failed" for reply in exchange.timeline.replies.values()):
        return Failure("endpoint_error", "failed")
    if answer is not None and answer.implausible_rate() is not None:
        return Failure("bad_audio", "sample_rate")
    return Failure("other")


Judgment = tuple[Outcome, str | None]

ONLY_A_TOOL_CALL = "a response with a tool call came, and no answer after it"
ONLY_TEXT = "the endpoint answered with text alone, and with nothing audible"
NOT_AUDIBLE = "the reply holds no audible audio"
MAX_ID_CHARS: Final = 60
EMPTY = "the endpoint's response holds nothing"
_INSTEAD: Final[Mapping[str | None, str]] = {
    "inaudible": NOT_AUDIBLE,
    "only_tool_call": ONLY_A_TOOL_CALL,
    "only_text": ONLY_TEXT,
    "empty": EMPTY,
}


def judge_complete(exchange: Exchange) -> Judgment:
    """The endpoint has sent all of what it had to say, and it has been played."""
    timeline = exchange.timeline
    answer = timeline.answer
    if answer is None:
        return _unheard(timeline)
    if answer.foreign_file is not None:
        return "error", answer.foreign_file
    if answer.status == "failed":
        return "error", timeline.errors[-1] if timeline.errors else "the endpoint says that its reply failed"
    implausible = answer.implausible_rate()
    if implausible is not None:
        return "error", timeline.errors[0] if timeline.errors else implausible
    return "ok", "; ".join(_notes_on(exchange, answer)) or None


def judge_given_up(exchange: Exchange, waited_ns: int) -> Judgment:
    """Nothing more came for `waited_ns`."""
    timeline = exchange.timeline
    waited_s = waited_ns / 1e9
    answer = timeline.answer
    if timeline.silent and answer is None and not timeline.errors:
        return "ok", None
    if answer is not None:
        return _heard(exchange, answer, waited_s)
    if (foreign := _foreign_file(timeline)) is not None:
        return "error", foreign
    if timeline.replies and all(reply.is_over for reply in timeline.replies.values()):
        return _unheard(timeline)
    if timeline.errors:
        return "error", timeline.errors[-1]
    if timeline.text_began_perf_ns is not None:
        return "timeout", f"the endpoint began to answer and stopped: nothing more of it came for {waited_s:g} s"
    if timeline.replies:
        missing = "was not heard" if timeline.speaks else "sent no text of the answer"
        return "timeout", f"the endpoint began to answer and {missing} within {waited_s:g} s"
    if timeline.early_replies:
        return "no_reply", "the endpoint answered before the question and not after it"
    return "no_reply", f"no answer within {waited_s:g} s"


def judge_too_long(longest_ns: int) -> Judgment:
    """The endpoint was heard and came to no end for `longest_ns`."""
    return "timeout", f"the reply had not ended {longest_ns / 1e9:g} s after it began: the caller hung up"


def reason_of_cut(exchange: Exchange, now_perf_ns: int) -> str:
    """Return the stage of a turn when we ended it before its end."""
    timeline, by = exchange.timeline, exchange.cut_by
    first_audio = timeline.first_audio_perf_ns
    if first_audio is not None and first_audio <= now_perf_ns:
        return f"cut by {by} while the reply was heard"
    if timeline.text_began_perf_ns is not None:
        return f"cut by {by} while the answer arrived"
    if timeline.speech_end_perf_ns is not None:
        waited_s = (now_perf_ns - timeline.speech_end_perf_ns) / 1e9
        return f"cut by {by} after {waited_s:.1f} s of waiting for an answer"
    return f"cut by {by} before the caller had spoken"


def _heard(exchange: Exchange, answer: Reply, waited_s: float) -> Judgment:
    timeline = exchange.timeline
    broke_perf_ns = timeline.last_error_perf_ns
    if not answer.is_over and broke_perf_ns is not None and broke_perf_ns >= answer.first_event_perf_ns:
        return "error", timeline.errors[-1]
    outcome, reason = judge_complete(exchange)
    if outcome != "ok" or reason is not None:
        return outcome, reason
    if not answer.is_over and answer.status is not None:
        return "ok", "the endpoint closed the reply before it sent any of its audio"
    if not answer.is_over:
        return "ok", f"the reply was never closed: nothing of it came for {waited_s:g} s after the last of its audio"
    if timeline.owes_response:
        return "ok", f"a tool call announced another response, which did not come within {waited_s:g} s"
    return "ok", None


def _unheard(timeline: Timeline) -> Judgment:
    """Every response is over, and none was heard: what they were instead of an answer."""
    replies = [reply for reply in timeline.replies.values() if not reply.cancelled]
    if not replies:
        why = next((reply.why for reply in timeline.replies.values() if reply.why), None)
        return "interrupted", f"the endpoint broke off its reply{f' ({why})' if why else ''} and gave no other"
    if any(reply.status == "failed" for reply in replies):
        return "error", timeline.errors[-1] if timeline.errors else "the endpoint says that its reply failed"
    if timeline.errors:
        return "error", timeline.errors[0]
    if (foreign := _foreign_file(timeline)) is not None:
        return "error", foreign
    why = cut_short_by(timeline)
    return "no_reply", f"{_INSTEAD[instead_of_a_reply(timeline)]}{f': it was cut short ({why})' if why else ''}"


def _foreign_file(timeline: Timeline) -> str | None:
    """A sentence when a reply is a file where raw audio was agreed, so that nothing of it was audible."""
    sentences = (reply.foreign_file for reply in timeline.replies.values() if not reply.cancelled)
    return next((sentence for sentence in sentences if sentence is not None), None)


def _notes_on(exchange: Exchange, answer: Reply) -> Iterator[str]:
    """The remarks on an answer that counts: what else the endpoint said of the turn."""
    if answer.status == "incomplete":
        yield f"the endpoint cut its reply short ({answer.why or 'incomplete'})"
    elif answer.status == SUPERSEDED:
        yield "the reply was never closed: another response took its place"
    if answer.file_header is not None:
        yield f"the reply's audio began with {answer.file_header}, which is not counted as sound: send raw samples"
    if answer.id_was_used_before:
        yield f"response id {one_line(answer.id_on_the_wire or '', MAX_ID_CHARS)} was used before"
    if (failure := exchange.timeline.asr_failure) is not None and not exchange.timeline.finals:
        yield f"the endpoint did not transcribe the question: {failure}"
    if errors := exchange.timeline.errors:
        others = f" (and {formatting.count(len(errors) - 1, 'other error')})" if len(errors) > 1 else ""
        yield f"answered despite an error: {errors[0]}{others}"
    if (guardrail := exchange.service.metadata.get("guardrail")) is not None:
        yield f"a guardrail of the agent was triggered ({guardrail})"
