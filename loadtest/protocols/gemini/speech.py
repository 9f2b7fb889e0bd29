"""Reads the messages that carry speech, of which there are dozens a second, with one decoder for the whole message."""

import re
from functools import lru_cache
from typing import Final

import msgspec

from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ
from loadtest.protocols.json_fields import MalformedError, excerpt

OUTPUT_RATE_HZ: Final = 24_000  # of audio whose type does not say it
_RATE: Final = re.compile(r";\s*rate=(\d{1,7})\s*(?:;|$)")


class _SpeechData(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    mime_type: str
    data: bytes


class _SpeechPart(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    inline_data: _SpeechData


class _SpeechTurn(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    parts: list[_SpeechPart]
    role: str | None = None


class _SpeechContent(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    model_turn: _SpeechTurn


class _SpeechMessage(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    server_content: _SpeechContent


_DECODER: Final = msgspec.json.Decoder(_SpeechMessage)


def speech_of(message: str | bytes) -> list[tuple[str, bytes]] | None:
    """Return the type and the data of each part of a message that carries parts with data and nothing else, else None.

    None is also for whatever is unusual about such a message: other names, other base64, a fault.
    """
    try:
        parts = _DECODER.decode(message).server_content.model_turn.parts
    except (msgspec.DecodeError, UnicodeError):
        return None
    return [(part.inline_data.mime_type, part.inline_data.data) for part in parts] or None


@lru_cache(maxsize=64)
def rate_of(mime_type: str) -> int | None:
    """Return the rate of PCM in Hz, None for what is no audio. Raises MalformedError for audio in another encoding."""
    kind = mime_type.lower()
    if not kind.startswith("audio/"):
        return None
    if kind.partition(";")[0].strip() not in ("audio/pcm", "audio/l16"):
        raise MalformedError(f"audio of the type {excerpt(mime_type)}; only audio/pcm is known")
    rate = _RATE.search(kind)
    rate_hz = OUTPUT_RATE_HZ if rate is None else int(rate[1])
    if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
        raise MalformedError(f"audio at {rate_hz} Hz; {LOWEST_RATE_HZ} to {HIGHEST_RATE_HZ} Hz is possible")
    return rate_hz
