"""Reads what a LiveKit agent reports of itself: latencies of a message, and the usage of the session so far.

A latency of 0 counts as not measured: protobuf does not tell the two apart where a field is not declared optional.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from loadtest.protocols.livekit.messages import chosen

SECOND_NS: Final = 1_000_000_000
LONGEST_S: Final = 86_400.0
LATENCIES: Final = (
    "transcription_delay",
    "end_of_turn_delay",
    "on_user_turn_completed_delay",
    "llm_node_ttft",
    "llm_node_ttfs",
    "tts_node_ttfb",
    "e2e_latency",
)
_TOKENS: Final[Mapping[str, str]] = {
    "input_tokens": "input_tokens",
    "input_cached_tokens": "cached_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "input_cached_audio_tokens": "cached_audio_tokens",
    "output_tokens": "output_tokens",
    "output_audio_tokens": "output_audio_tokens",
}


def seconds_ns(value: float) -> int | None:
    """Return a latency in ns; None for what is no positive number of seconds up to a day."""
    return round(value * SECOND_NS) if math.isfinite(value) and 0 < value <= LONGEST_S else None


def latencies_ns(report: Any) -> dict[str, int]:
    """Return the latencies of a MetricsReport, by LiveKit's names for them."""
    found = {name: seconds_ns(getattr(report, name)) for name in LATENCIES}
    return {name: value_ns for name, value_ns in found.items() if value_ns is not None}


class UsageOfTurns:
    """The usage of each turn, from totals of the session."""

    def __init__(self) -> None:
        self._total: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def begin_turn(self) -> None:
        """Begin the next turn: from now on, reports beyond those so far belong to it."""
        self._before = dict(self._total)

    def update(self, usage: Any) -> dict[str, int]:
        """Return the counts of the turn so far, from the totals of a SessionUsage; {} if nothing was added.

        Tokens from a cache are also given where they are 0, together with other tokens: no cached token is an answer.
        """
        total: dict[str, int] = {}
        for entry in usage.model_usage:
            for name, count in _counts(*chosen(entry)).items():
                total[name] = total.get(name, 0) + count
        if total == self._total:
            return {}
        self._total = total
        turn = {name: count - self._before.get(name, 0) for name, count in total.items()}
        cached = ("cached_tokens",) if turn.get("input_tokens", 0) > 0 else ()
        return {name: count for name, count in turn.items() if count > 0 or (count == 0 and name in cached)}


def _counts(kind: str | None, fields: Any) -> dict[str, int]:
    """Return the counts of one model; audio is in ms."""
    if kind == "llm":
        return {name: getattr(fields, field) for field, name in _TOKENS.items() if getattr(fields, field) >= 0}
    if kind == "tts":
        return {"tts_characters": max(0, fields.characters_count), "tts_audio_ms": _ms(fields.audio_duration)}
    return {"stt_audio_ms": _ms(fields.audio_duration)} if kind == "stt" else {}


def _ms(duration_s: float) -> int:
    return round((seconds_ns(duration_s) or 0) / 1e6)
