"""Reads what session and response objects declare, GA or beta: formats, identity, usage, metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from loadtest.protocols.openai_realtime.fields import Json, as_object
from loadtest.protocols.openai_realtime.formats import AudioFormat, parse_beta, parse_ga

# The details objects of usage and the prefix of their counts.
_USAGE_PREFIXES: Final = {
    "input_token_details": "input_",
    "output_token_details": "output_",
    "input_tokens_details": "input_",
    "output_tokens_details": "output_",
    "cached_tokens_details": "cached_",
}
_NO_PREFIX: Final = frozenset({"cached_tokens"})


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a session object declares; None where it declares nothing.

    `unreadable` contains a sentence for each declaration that is invalid.
    """

    input_format: AudioFormat | None
    output_format: AudioFormat | None
    identity: Mapping[str, str]
    unreadable: tuple[str, ...]


def session_info(session: Json) -> SessionInfo:
    """Read a session object, or the audio formats of a response object."""
    unreadable: list[str] = []
    audio = as_object(session.get("audio")) or {}
    sides: list[AudioFormat | None] = []
    for side in ("input", "output"):
        ga = (as_object(audio.get(side)) or {}).get("format")
        beta = session.get(f"{side}_audio_format")
        try:
            sides.append(parse_ga(ga) if ga is not None else parse_beta(beta) if beta is not None else None)
        except ValueError as error:
            unreadable.append(f"{side} format: {error}")
            sides.append(None)
    identity = {f"session.{key}": value for key in ("id", "model") if isinstance(value := session.get(key), str)}
    return SessionInfo(sides[0], sides[1], identity, tuple(unreadable))


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
