"""G.711: µ-law and A-law to and from 16-bit PCM, by tables that libsndfile fills.

A call of libsndfile for each frame would cost 30 µs; a look-up in its table costs 1 µs. The curve is the same for both
signs: a negative sample exactly on a decision value, where the recommendation leaves the choice, goes outwards.
"""

import io
from typing import Final, Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

from loadtest.audio.pcm import Pcm16

Octets = NDArray[np.uint8]

RATE_HZ: Final = 8000


def ulaw_encode(pcm: Pcm16) -> bytes:
    """One µ-law octet a sample."""
    return _ULAW_ENCODE[pcm.view(np.uint16)].tobytes()


def ulaw_decode(octets: bytes) -> Pcm16:
    """µ-law octets → PCM16; 0xFF and 0x7F are 0."""
    return _ULAW_DECODE.take(np.frombuffer(octets, np.uint8))


def alaw_encode(pcm: Pcm16) -> bytes:
    """One A-law octet a sample."""
    return _ALAW_ENCODE[pcm.view(np.uint16)].tobytes()


def alaw_decode(octets: bytes) -> Pcm16:
    """A-law octets → PCM16; the smallest values are ±8, as A-law has no zero."""
    return _ALAW_DECODE.take(np.frombuffer(octets, np.uint8))


def _encode_table(law: Literal["ULAW", "ALAW"]) -> Octets:
    """The octet of every int16, in the order of its bits read as uint16; shape (65536,)."""
    coded = io.BytesIO()
    every_sample = np.arange(65_536, dtype=np.uint16).view(np.int16)
    soundfile.write(coded, every_sample, RATE_HZ, format="RAW", subtype=law)
    return np.frombuffer(coded.getvalue(), np.uint8)


def _decode_table(law: Literal["ULAW", "ALAW"]) -> Pcm16:
    """The sample of every octet; shape (256,)."""
    every_octet = io.BytesIO(bytes(range(256)))
    samples, _ = soundfile.read(every_octet, samplerate=RATE_HZ, channels=1, format="RAW", subtype=law, dtype="int16")
    return np.asarray(samples, np.int16)


_ULAW_ENCODE: Final = _encode_table("ULAW")
_ULAW_DECODE: Final = _decode_table("ULAW")
_ALAW_ENCODE: Final = _encode_table("ALAW")
_ALAW_DECODE: Final = _decode_table("ALAW")
