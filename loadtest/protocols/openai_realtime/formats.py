"""Declarations of audio formats in OpenAI Realtime: GA objects and beta strings."""

from typing import Final

from loadtest.audio import g711
from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ, MEDIA_TYPES, AudioFormat, Encoding
from loadtest.protocols.json_fields import as_object

_GA_TYPES: Final[dict[str, Encoding]] = {name: encoding for encoding, name in MEDIA_TYPES.items()}
_BETA_NAMES: Final[dict[str, Encoding]] = {"pcm16": "pcm16", "g711_ulaw": "pcmu", "g711_alaw": "pcma"}
_BETA_BY_ENCODING: Final = {encoding: name for name, encoding in _BETA_NAMES.items()}


def ga_object(audio: AudioFormat) -> dict[str, object]:
    """Return the object of a GA session; only PCM states its rate."""
    if audio.encoding == "pcm16":
        return {"type": "audio/pcm", "rate": audio.rate_hz}
    return {"type": MEDIA_TYPES[audio.encoding]}


def beta_name(audio: AudioFormat) -> str:
    """Return the name in a beta session, which has no place for a rate."""
    return _BETA_BY_ENCODING[audio.encoding]


def parse_ga(declared: object) -> AudioFormat:
    """Parse a GA format object. Raises ValueError, with a sentence, for an unknown or invalid format."""
    fields = as_object(declared)
    if fields is None:
        raise ValueError(f"an audio format is an object with a type and, for PCM, a rate, not {declared!r}")
    kind, rate = fields.get("type"), fields.get("rate")
    encoding = _GA_TYPES.get(kind) if isinstance(kind, str) else None
    if encoding is None:
        raise ValueError(f"unknown audio format type {kind!r}; known: {', '.join(_GA_TYPES)}")
    if rate is None:
        return AudioFormat.of(encoding)
    if isinstance(rate, bool) or not isinstance(rate, int) or not LOWEST_RATE_HZ <= rate <= HIGHEST_RATE_HZ:
        raise ValueError(f"the rate {rate!r} of {kind} is not between {LOWEST_RATE_HZ} and {HIGHEST_RATE_HZ} Hz")
    if encoding != "pcm16" and rate != g711.RATE_HZ:
        raise ValueError(f"{kind} always has {g711.RATE_HZ} Hz, not {rate}")
    return AudioFormat(encoding, rate)


def parse_beta(declared: object) -> AudioFormat:
    """Parse a beta format name. Raises ValueError, with a sentence, for an unknown one."""
    encoding = _BETA_NAMES.get(declared) if isinstance(declared, str) else None
    if encoding is None:
        raise ValueError(f"unknown audio format {declared!r}; known: {', '.join(_BETA_NAMES)}")
    return AudioFormat.of(encoding)
