"""Audio formats of OpenAI Realtime: GA objects, beta strings, and the bytes inside the base64."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from loadtest.audio import g711, pcm
from loadtest.protocols.base import Pcm16
from loadtest.protocols.openai_realtime.fields import as_object

Encoding = Literal["pcm16", "pcmu", "pcma"]

_GA_TYPES: Final[dict[str, Encoding]] = {"audio/pcm": "pcm16", "audio/pcmu": "pcmu", "audio/pcma": "pcma"}
_BETA_NAMES: Final[dict[str, Encoding]] = {"pcm16": "pcm16", "g711_ulaw": "pcmu", "g711_alaw": "pcma"}
_GA_BY_ENCODING: Final = {encoding: name for name, encoding in _GA_TYPES.items()}
_BETA_BY_ENCODING: Final = {encoding: name for name, encoding in _BETA_NAMES.items()}
# OpenAI uses PCM only at 24 kHz; other servers of this dialect declare rates between these limits.
PCM_RATE_HZ: Final = 24_000
LOWEST_RATE_HZ: Final = 8_000
HIGHEST_RATE_HZ: Final = 48_000


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """One direction's encoding and sample rate."""

    encoding: Encoding
    rate_hz: int

    @classmethod
    def of(cls, encoding: Encoding) -> "AudioFormat":
        """Return the format with the encoding's default rate."""
        return cls(encoding, PCM_RATE_HZ if encoding == "pcm16" else g711.RATE_HZ)

    def __str__(self) -> str:
        return f"{_GA_BY_ENCODING[self.encoding]} at {self.rate_hz} Hz"

    def ga(self) -> dict[str, object]:
        """Return the object of a GA session; only PCM states its rate."""
        if self.encoding == "pcm16":
            return {"type": "audio/pcm", "rate": self.rate_hz}
        return {"type": _GA_BY_ENCODING[self.encoding]}

    def beta(self) -> str:
        """The name in a beta session, which has no place for a rate."""
        return _BETA_BY_ENCODING[self.encoding]

    def encode(self, samples: Pcm16) -> bytes:
        """Encode PCM16 at `rate_hz` into the bytes that go into the base64."""
        if self.encoding == "pcmu":
            return g711.ulaw_encode(samples)
        if self.encoding == "pcma":
            return g711.alaw_encode(samples)
        return pcm.to_bytes(samples)

    def decode(self, data: bytes) -> Pcm16:
        """Decode the bytes from the base64 into PCM16 at `rate_hz`. Raises ValueError for PCM with half a sample."""
        if self.encoding == "pcmu":
            return g711.ulaw_decode(data)
        if self.encoding == "pcma":
            return g711.alaw_decode(data)
        return pcm.from_bytes(data).astype(np.int16, copy=False)


PCM: Final = AudioFormat.of("pcm16")


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
