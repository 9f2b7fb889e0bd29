"""Reads the usage and the metadata that a service states of a response."""

from typing import Final

import orjson

from loadtest.protocols.json_fields import Json, as_object

# The details objects of usage and the prefix of their counts.
_USAGE_PREFIXES: Final = {
    "input_token_details": "input_",
    "output_token_details": "output_",
    "input_tokens_details": "input_",
    "output_tokens_details": "output_",
    "cached_tokens_details": "cached_",
}
_NO_PREFIX: Final = frozenset({"cached_tokens"})


def flat_usage(usage: Json | None) -> dict[str, int]:
    """Flatten usage into one level of counts: output_tokens, cached_tokens, input_audio_tokens, …

    Seconds become duration_ms. Counts that are missing, negative or not whole numbers are left out, never 0.
    """
    counts: dict[str, int] = {}
    _flatten(usage or {}, "", counts)
    seconds = (usage or {}).get("seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1e9:
        counts["duration_ms"] = round(seconds * 1000)
    return counts


def text_pairs(metadata: Json | None) -> dict[str, str]:
    """Return metadata as string pairs; a value of another type, which the specification forbids, becomes its JSON."""
    return {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in (metadata or {}).items()
        if value is not None
    }


def _flatten(usage: Json, prefix: str, counts: dict[str, int]) -> None:
    for key, value in usage.items():
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0 and key.endswith("tokens"):
            counts[key if key in _NO_PREFIX else prefix + key] = value
        inner = as_object(value)
        if inner is not None and key in _USAGE_PREFIXES:
            _flatten(inner, _USAGE_PREFIXES[key], counts)
