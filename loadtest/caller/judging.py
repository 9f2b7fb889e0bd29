"""How a turn ended: the outcome of an exchange that is over. Pure.

A turn whose reply the caller broke into on purpose was answered, and in time: it is `ok`, and its latencies count. What
the interruption itself was like (when the reply stopped, whether an answer to it followed) is told on the turn that
interrupted. `interrupted` is for a reply that the endpoint broke off and did not replace. A silent turn is `ok` whether
the endpoint kept silent too or asked again; it counts neither for nor against the service.
"""

from loadtest.caller.exchange import Exchange
from telemetry.semconv import Outcome

Judgement = tuple[Outcome, str | None]


def judge_complete(exchange: Exchange) -> Judgement:
    """The endpoint has sent all of what it had to say, and it has been played."""
    timeline = exchange.timeline
    answer = timeline.answer
    if answer is None:
        return "interrupted", "the endpoint broke off its reply and gave no other"
    if answer.status == "failed":
        return "error", timeline.errors[-1] if timeline.errors else "the endpoint says that its reply failed"
    if timeline.first_audio_perf_ns is None:
        return ("error", timeline.errors[0]) if timeline.errors else ("no_reply", "the reply holds no audible audio")
    implausible = answer.implausible_rate()
    if implausible is None:
        return "ok", None
    return "error", timeline.errors[0] if timeline.errors else implausible


def judge_given_up(exchange: Exchange, waited_ns: int) -> Judgement:
    """Nothing more came for `waited_ns`."""
    timeline = exchange.timeline
    waited_s = waited_ns / 1e9
    if timeline.silent and not timeline.replies:
        return "ok", None
    if timeline.answered or (timeline.replies and timeline.answer is None):
        return judge_complete(exchange)
    if timeline.errors:
        return "error", timeline.errors[-1]
    if timeline.first_audio_perf_ns is not None:
        return "timeout", f"the reply began and nothing of it came for {waited_s:g} s"
    if timeline.replies:
        return "timeout", f"the endpoint began to answer and was not heard within {waited_s:g} s"
    if timeline.early_replies:
        return "no_reply", "the endpoint answered before the question and not after it"
    return "no_reply", f"no answer within {waited_s:g} s"
