"""What a turn can say where messages came together: the kernel keeps one stamp for all that is read at once. Pure.

A message that is not the last of what was read came up to `doubt` before its stamp: as long as the program had not
looked, which is about a millisecond where it is on time. Beyond the limit of user space stamps its moment is unknown,
and where the answer's first audible sample hangs on it, the turn is invalid.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from loadtest.conversation.evidence import RECEIVE_LAG
from telemetry.model.semconv import ARRIVAL_NOT_KNOWN
from telemetry.model.turns import Turn

# The metrics that hang on a moment of arrival.
_HANG_ON: Final[Mapping[str, tuple[str, ...]]] = {
    "endpoint_perf_ns": ("endpointing",),
    "asr_first_partial_perf_ns": ("asr_partial_latency",),
    "asr_final_perf_ns": ("asr_final_latency", "llm_ttft", "tokens_per_s_wall"),
    "llm_first_token_perf_ns": ("llm_first_token_latency", "llm_ttft", "tts_first_chunk_latency", "tokens_per_s"),
    "llm_first_sentence_perf_ns": ("time_to_first_sentence",),
    "llm_last_token_perf_ns": ("tokens_per_s", "tokens_per_s_wall"),
    "tts_last_chunk_perf_ns": ("audio_rtfx",),
}
_UNDERRUNS: Final = ("underrun_worst", "underrun_total", "underrun_count")
_STARVED: Final = ("underrun_worst_ns", "underrun_total_ns", "underrun_count", "reply_end_perf_ns")


def without_doubtful_moments(turn: Turn, unsure_ns: Mapping[int, int], limit_ns: int) -> Turn:
    """The turn with moments that may be wrong by more than the limit left out, the metrics that hang on them withheld,
    and invalid where `first_audio` is one of them. `unsure_ns` is by stamp."""
    doubtful = {stamp for stamp, doubt_ns in unsure_ns.items() if doubt_ns > limit_ns}
    if not doubtful:
        return turn
    changes: dict[str, Any] = {}
    withheld: list[str] = []
    for name, metrics in _HANG_ON.items():
        if getattr(turn, name) in doubtful:
            changes[name] = None
            withheld += metrics
    if _any_within(doubtful, turn.llm_first_token_perf_ns, turn.llm_last_token_perf_ns):
        changes["llm_chunk_gaps_ns"] = ()
        withheld.append("itl")
    if turn.underrun_total_ns and _any_within(doubtful, turn.tts_first_chunk_perf_ns, turn.tts_last_chunk_perf_ns):
        # A chunk that seems late seems to starve the player, which then plays all that follows later.
        changes |= dict.fromkeys(_STARVED)
        withheld += _UNDERRUNS
    if _any_within(doubtful, turn.tts_first_chunk_perf_ns, turn.first_audio_perf_ns):
        changes["outcome"] = "invalid"
        if RECEIVE_LAG not in turn.invalid_reasons:
            changes["invalid_reasons"] = (*turn.invalid_reasons, RECEIVE_LAG)
    fresh = [name for name in dict.fromkeys(withheld) if name not in turn.withheld_metrics]
    if fresh:
        changes["withheld_metrics"] = (*turn.withheld_metrics, *fresh)
        changes["withheld_reasons"] = (*turn.withheld_reasons, *(ARRIVAL_NOT_KNOWN for _ in fresh))
    return msgspec.structs.replace(turn, **changes)


def _any_within(stamps: set[int], begin: int | None, end: int | None) -> bool:
    return begin is not None and end is not None and any(begin <= stamp <= end for stamp in stamps)
