"""Reads RTVI `metrics`: the bot's own latencies per processor, and its usage.

Values of 0 count as not measured: the first message of a session holds nothing else, and no latency is 0.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

from loadtest.protocols.json_fields import Json, as_list, as_object

SECOND_NS: Final = 1_000_000_000
LONGEST_S: Final = 86_400.0
# The lists of latencies, and within their entries the fields with seconds. An entry names its processor.
_LATENCIES: Final[Mapping[str, Mapping[str, str]]] = {
    "ttfb": {"value": "ttfb"},
    "ttfa": {"ttfa": "ttfa", "leading_silence": "leading_silence"},
    "ttfat": {"ttfat": "ttfat", "thinking_time": "thinking_time"},
    "processing": {"value": "processing"},
}
_TOKENS: Final[Mapping[str, str]] = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "cache_read_input_tokens": "cached_tokens",
    "cache_creation_input_tokens": "cache_creation_tokens",
    "reasoning_tokens": "output_reasoning_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "output_audio_tokens": "output_audio_tokens",
    "cache_read_input_audio_tokens": "cached_audio_tokens",
}
# Pipecat numbers the processors of one class through the life of the bot's process.
_INSTANCE: Final = re.compile(r"#\d+$")
MAX_NAME_CHARS: Final = 80


def latencies_ns(metrics: Json) -> dict[str, int]:
    """Return latencies by `PROCESSOR.NAME`, the processor's class without its number: ScriptedLLM.ttfb, …

    The largest counts where two processors have one class. What is not a positive number of seconds is left out.
    """
    found: dict[str, int] = {}
    for kind, fields in _LATENCIES.items():
        for entry in _objects(metrics.get(kind)):
            processor = entry.get("processor")
            if not isinstance(processor, str):
                continue
            name = _INSTANCE.sub("", processor)[:MAX_NAME_CHARS]
            for field, latency in fields.items():
                if (value_ns := _seconds_ns(entry.get(field))) is not None:
                    key = f"{name}.{latency}"
                    found[key] = max(value_ns, found.get(key, 0))
    return found


def usage(metrics: Json) -> dict[str, int]:
    """Return counts: tokens of the language model, `tts_characters`, `stt_audio_ms`; several entries are added up.

    Tokens that are 0 are kept where the same entry counts others: no cached token is an answer.
    """
    counts: dict[str, int] = {}
    for entry in _objects(metrics.get("tokens")):
        known = {name: entry[field] for field, name in _TOKENS.items() if field in entry}
        tokens = {name: value for name, value in known.items() if _is_count(value)}
        if any(tokens.values()):
            for name, value in tokens.items():
                _add(counts, name, value)
    for entry in _objects(metrics.get("characters")):
        if _is_count(entry.get("value")) and entry["value"]:
            _add(counts, "tts_characters", entry["value"])
    for entry in _objects(metrics.get("stt_usage")):
        heard_ns = _seconds_ns((as_object(entry.get("value")) or {}).get("audio_seconds"))
        if heard_ns is not None:
            _add(counts, "stt_audio_ms", round(heard_ns / 1e6))
    return counts


def _objects(value: object) -> list[Json]:
    return [entry for each in as_list(value) or () if (entry := as_object(each)) is not None]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _add(counts: dict[str, int], name: str, value: object) -> None:
    if isinstance(value, int):
        counts[name] = counts.get(name, 0) + value


def _seconds_ns(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(value * SECOND_NS) if 0 < value <= LONGEST_S else None
