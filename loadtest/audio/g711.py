"""G.711: µ-law and A-law to and from 16-bit PCM, by tables built from the recommendation's segments.

The magnitude is taken first and then cut to 13 bits (µ-law) or 11 bits (A-law), so that the curve is the same for both
signs. A negative sample exactly on a decision value, where the recommendation leaves the choice, goes outwards.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.audio.pcm import Pcm16

Octets = NDArray[np.uint8]

ULAW_SILENCE: Final = 0xFF
ALAW_SILENCE: Final = 0xD5
RATE_HZ: Final = 8000

_ULAW_BIAS: Final = 33  # on the 14-bit scale: makes every segment begin at a power of two
_ULAW_CLIP: Final = 8158
_ALAW_TOGGLE: Final = 0x55  # even bits are inverted on the line


def ulaw_encode(pcm: Pcm16) -> bytes:
    """One µ-law octet a sample."""
    return _ULAW_ENCODE[pcm.view(np.uint16)].tobytes()


def ulaw_decode(octets: bytes) -> Pcm16:
    """µ-law octets → PCM16; 0xFF and 0x7F are 0."""
    return _ULAW_DECODE[np.frombuffer(octets, np.uint8)]


def alaw_encode(pcm: Pcm16) -> bytes:
    """One A-law octet a sample."""
    return _ALAW_ENCODE[pcm.view(np.uint16)].tobytes()


def alaw_decode(octets: bytes) -> Pcm16:
    """A-law octets → PCM16; the smallest values are ±8, as A-law has no zero."""
    return _ALAW_DECODE[np.frombuffer(octets, np.uint8)]


def _all_samples() -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(magnitudes, negative?) of every int16, in the order of its bits read as uint16."""
    samples = np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int64)
    return np.abs(samples), samples < 0


def _segment(value: NDArray[np.int64], lowest_power: int) -> NDArray[np.int64]:
    """Which power-of-two segment a magnitude lies in: 0 below 2**lowest_power, 7 at most."""
    bounds = 2 ** np.arange(lowest_power, lowest_power + 7)
    return np.searchsorted(bounds, value, side="right").astype(np.int64)


def _ulaw_encode_table() -> Octets:
    magnitude, negative = _all_samples()
    biased = np.minimum(magnitude >> 2, _ULAW_CLIP) + _ULAW_BIAS
    segment = _segment(biased, 6)
    step = (biased >> (segment + 1)) & 0x0F
    code = (segment << 4) | step
    return (~np.where(negative, code | 0x80, code) & 0xFF).astype(np.uint8)


def _ulaw_decode_table() -> Pcm16:
    code = ~np.arange(256, dtype=np.int64) & 0xFF
    segment, step = (code >> 4) & 7, code & 0x0F
    magnitude = ((2 * step + _ULAW_BIAS) << segment) - _ULAW_BIAS
    return (np.where(code & 0x80, -magnitude, magnitude) * 4).astype(np.int16)


def _alaw_encode_table() -> Octets:
    magnitude, negative = _all_samples()
    value = np.minimum(magnitude >> 4, 2047)
    segment = _segment(value, 4)
    step = (value >> np.maximum(segment - 1, 0)) & 0x0F
    code = (segment << 4) | step
    return (np.where(negative, code, code | 0x80) ^ _ALAW_TOGGLE).astype(np.uint8)


def _alaw_decode_table() -> Pcm16:
    code = np.arange(256, dtype=np.int64) ^ _ALAW_TOGGLE
    segment, step = (code >> 4) & 7, code & 0x0F
    low = (2 * step + 1) << 3
    magnitude = np.where(segment == 0, low, (low + 256) << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


_ULAW_ENCODE: Final = _ulaw_encode_table()
_ULAW_DECODE: Final = _ulaw_decode_table()
_ALAW_ENCODE: Final = _alaw_encode_table()
_ALAW_DECODE: Final = _alaw_decode_table()
