"""How much earlier what a turn heard may have arrived than it was stamped. Pure.

The kernel stamps what arrives, but has one stamp for all that is read at once: what is not the last of it came up to so
long before, back to the moment when the program last looked. Where user space stamps, data may have waited until then.
"""

from collections.abc import Mapping
from typing import Any, Final

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.timeline import Reply

# The timestamps of a turn that are stamps of something that arrived.
_ARRIVALS: Final = (
    *("endpoint", "asr_first_partial", "asr_final", "llm_first_token", "llm_first_sentence", "llm_last_token"),
    *("tts_first_chunk", "tts_last_chunk"),
)


def bounds(exchange: Exchange, answer: Reply | None, heard: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Turn` that say how far its timestamps may be off, of a finished exchange.

    `heard` has the fields of the turn with what arrived.
    """
    timeline, evidence = exchange.timeline, exchange.evidence
    earlier_of = evidence.doubt_ns
    partial = heard.get("asr_first_partial_perf_ns")
    fields: dict[str, Any] = {
        "speech_start_later_ns": _later(evidence.start_later_ns, evidence.pacing.elsewhere_ns),
        "speech_end_later_ns": _later(evidence.end_later_ns, evidence.pacing.worst_elsewhere_ns),
        "stamp_error_ns": evidence.stamp_error_ns,
    }
    for name in _ARRIVALS:
        if (stamp_perf_ns := heard.get(f"{name}_perf_ns")) is not None:
            fields[f"{name}_earlier_ns"] = earlier_of(stamp_perf_ns)
    if partial is not None:
        fields["held_up_speaking_ns"] = evidence.pacing.held_up_speaking_ns(partial - earlier_of(partial))
    playback = None if answer is None else answer.playback
    until = exchange.ended_perf_ns or 0
    if playback is not None and playback.first_audio_perf_ns is not None:
        earlier_ns = playback.earlier_ns(playback.span.first_sample, earlier_of)
        # If the answer came at a later moment, frames that had not gone by then held it up by no more than that moment
        # is later: the bound is lowest if it came as early as it can have come.
        until = playback.chunk_start_perf_ns(playback.span.first_sample) - earlier_ns
        fields["first_audio_earlier_ns"] = earlier_ns
        fields["reply_end_earlier_ns"] = playback.earlier_ns(playback.span.last_sample, earlier_of)
    if timeline.speech_end_perf_ns is not None:
        fields["held_up_ns"] = evidence.pacing.held_up_ns(until)
    return fields


def _later(later_ns: int | None, elsewhere_ns: int) -> int | None:
    """How much later a frame may have gone, also where another process sends it, which says only how late it was."""
    return None if later_ns is None else later_ns + elsewhere_ns
