"""The messages that carry speech and nothing else, of which there are dozens a second, and the rate of their audio."""

import re
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ
from loadtest.protocols.exact_messages import ExactMessage
from loadtest.protocols.json_fields import MalformedError, excerpt

OUTPUT_RATE_HZ: Final = 24_000  # of audio whose type does not say it
_RATE: Final = re.compile(r";\s*rate=(\d{1,7})\s*(?:;|$)")


class SpeechData(ExactMessage, rename="camel"):
    """The audio, and what it is."""

    mime_type: str
    data: bytes


class SpeechPart(ExactMessage, rename="camel"):
    """One of the parts of a turn."""

    inline_data: SpeechData


class SpeechTurn(ExactMessage, rename="camel"):
    """The parts of a turn."""

    parts: Annotated[list[SpeechPart], msgspec.Meta(min_length=1)]
    role: str | None = None


class SpeechContent(ExactMessage, rename="camel"):
    """What the service generates."""

    model_turn: SpeechTurn


class SpeechMessage(ExactMessage, rename="camel"):
    """The message."""

    server_content: SpeechContent


SPEECH_MESSAGES: Final = msgspec.json.Decoder(SpeechMessage)


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
