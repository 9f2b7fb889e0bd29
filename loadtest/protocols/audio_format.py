"""The encodings and sample rates of audio on a wire, and the bytes of each."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from loadtest.audio import g711, pcm
from loadtest.audio.pcm import Pcm16

Encoding = Literal["pcm16", "pcmu", "pcma"]

MEDIA_TYPES: Final[dict[Encoding, str]] = {"pcm16": "audio/pcm", "pcmu": "audio/pcmu", "pcma": "audio/pcma"}
# Where a wire does not state another rate for PCM, and the limits of what it may state.
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
        return f"{MEDIA_TYPES[self.encoding]} at {self.rate_hz} Hz"

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


class SampleStream:
    """Audio as it arrives, decoded to PCM16; a sample that two pieces share is put together."""

    def __init__(self, declared: AudioFormat) -> None:
        self.format = declared
        self.half = b""  # of a sample: the last piece ended inside it

    def feed(self, data: bytes) -> bytes:
        """Return the whole samples of a piece."""
        if self.format.encoding != "pcm16":
            return pcm.to_bytes(self.format.decode(data))
        data = self.half + data
        whole = len(data) // 2 * 2
        self.half = data[whole:]
        return data[:whole]


ODD_AUDIO: Final = "the audio ended inside a sample: an odd number of bytes of 16-bit PCM"
# How audio begins that is a file: a caller would play its header as noise.
FILE_HEADERS: Final = (b"RIFF", b"OggS", b"ID3", b"fLaC")
