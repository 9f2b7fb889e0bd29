"""A file's header at the beginning of a reply's raw audio: it is no sound, and no onset is taken from it. Pure.

Endpoints send a whole file where raw PCM or G.711 was agreed. The header of a WAV file, and chunks after its samples,
are heard as clicks: they count as silence here, and the samples of a WAV file in the agreed format as what they are.
Samples in another format, and all of a compressed file, are noise, so that nothing of the reply counts as audible.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from loadtest.audio import g711
from loadtest.audio.containers import container_of, may_become_container
from loadtest.audio.wav_stream import PCM, WavStream

_ALAW, _ULAW = 6, 7
_LOOKED_AT: Final = 16_384  # bytes, more than two frames of MP3 or AAC
_Octets = Callable[[bytes], bytes]


def _from_ulaw(pcm: bytes) -> bytes:
    return g711.ulaw_encode(np.frombuffer(pcm, "<i2"))


def _from_alaw(pcm: bytes) -> bytes:
    return g711.alaw_encode(np.frombuffer(pcm, "<i2"))


# What the wire carried, PCM or G.711, is not known here. Of each: its bytes, the code of such samples in a WAV header,
# and the bytes of a sample.
_AS_PCM: Final[tuple[_Octets, int, int]] = (lambda pcm: pcm, PCM, 2)
_AS_G711: Final[tuple[tuple[_Octets, int, int], ...]] = ((_from_ulaw, _ULAW, 1), (_from_alaw, _ALAW, 1))


class ReplyOpening:
    """The audio of one reply from its first byte on, PCM s16le at the declared rate."""

    __slots__ = ("_bytes_of", "_half", "_held", "_kind", "_rate_hz", "_sample_bytes", "_wav", "container", "fault")

    def __init__(self, rate_hz: int) -> None:
        self.container: str | None = None  # the file that the reply begins as
        self.fault: str | None = None  # why its samples are not those that were agreed
        self._rate_hz = rate_hz
        self._held = b""  # not yet known to be sound or not
        self._half = b""  # of a sample, behind a header of an odd number of bytes
        self._wav: WavStream | None = None
        self._bytes_of, self._kind, self._sample_bytes = _AS_PCM

    @property
    def is_settled(self) -> bool:
        """Whether it is known that the reply begins with samples: nothing of it need be looked at any more."""
        return self.container is None and not self._held

    def feed(self, audio: bytes) -> bytes:
        """Return the audio with silence for what is no sound; bytes that cannot be classified yet are held back."""
        if self.container is not None:
            return self._sounding(audio)
        audio, self._held = self._held + audio, b""
        for form in (_AS_PCM, *(_AS_G711 if self._rate_hz == g711.RATE_HZ else ())):
            start = form[0](audio[:_LOOKED_AT])
            self.container = container_of(start, by_frames=form is _AS_PCM)
            if self.container is not None:
                self._bytes_of, self._kind, self._sample_bytes = form
                if self.container == "WAV":
                    self._wav = WavStream()
                else:
                    self.fault = f"a file of {self.container}"
                return self._sounding(audio)
            if may_become_container(start, by_frames=form is _AS_PCM):
                self._held = audio
                return b""
        return audio

    @property
    def header(self) -> str | None:
        """The header that the audio begins with, for people; None where it begins with samples."""
        if self.container is None:
            return None
        stated = None if self._wav is None else self._wav.format
        other_rate = stated is not None and stated.rate_hz != self._rate_hz
        rates = f" (of {stated.rate_hz} Hz, where {self._rate_hz} Hz were agreed)" if stated and other_rate else ""
        return f"a {self.container} header{rates}"

    def _sounding(self, audio: bytes) -> bytes:
        wav = self._wav
        if wav is None or self.fault is not None:
            return bytes(len(audio))
        self._held += audio
        sounding = bytearray(self._half)
        for is_samples, run in wav.feed(self._bytes_of(audio)):
            size = len(run) * 2 // self._sample_bytes
            self._judge(wav)
            sounding += self._held[:size] if is_samples and self.fault is None else bytes(size)
            self._held = self._held[size:]
        self.fault = wav.fault or self.fault
        whole = len(sounding) - len(sounding) % 2
        self._half = bytes(sounding[whole:])
        return bytes(sounding[:whole])

    def _judge(self, wav: WavStream) -> None:
        stated = wav.format
        if stated is None or self.fault is not None:
            return
        if (stated.kind, stated.channels, stated.bits) != (self._kind, 1, 8 * self._sample_bytes):
            self.fault = f"{stated}, which is not the agreed format"
