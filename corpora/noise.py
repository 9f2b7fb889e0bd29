"""Noise that is the same on every machine for the same seed; pure functions on arrays.

The randomness is the raw integer stream of PCG64, which NumPy promises never to change (it makes no such promise for
its normal distribution), and the bell curve comes from adding twelve 16-bit integers, which no processor rounds.
All noise has unit power in the long run; the mixer sets its level.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corpora.errors import CorpusError

KNOWN_NOISES = ("white", "pink", "babble")

_WORDS_A_SAMPLE = 3
_LANES_A_WORD = 4
_MEAN = _WORDS_A_SAMPLE * _LANES_A_WORD * 65_535 // 2
_LOWEST_HZ = 20.0

Samples = NDArray[np.float64]


def derive_seed(*parts: object) -> int:
    """A seed of 64 bits from anything that prints the same everywhere."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def white(samples: int, seed: int) -> Samples:
    """White noise with a nearly Gaussian distribution (peaks end at 6 sigma), shape (samples,), unit power."""
    raw = np.random.PCG64(seed).random_raw(samples * _WORDS_A_SAMPLE)
    words = np.asarray(raw, dtype=np.uint64).reshape(samples, _WORDS_A_SAMPLE)
    total = np.zeros(samples, dtype=np.int64)
    for lane in range(_LANES_A_WORD):
        lanes = (words >> np.uint64(16 * lane)) & np.uint64(0xFFFF)
        total += np.sum(lanes, axis=1, dtype=np.uint64).astype(np.int64)
    return (total - _MEAN) / 65_536.0


def pink(samples: int, rate_hz: int, seed: int) -> Samples:
    """Noise whose power falls by 3 dB an octave from 20 Hz up, shape (samples,), unit power in the long run.

    White noise is shaped in the frequency domain, over a power of two of samples, and cut to length.
    """
    size = 1 << max(samples - 1, 1).bit_length()
    frequency_hz = np.arange(size // 2 + 1) * (rate_hz / size)
    shape = 1.0 / np.sqrt(np.maximum(frequency_hz, _LOWEST_HZ))
    shape[0] = 0.0
    shape /= np.sqrt(np.mean(np.square(shape)))
    return np.fft.irfft(np.fft.rfft(white(size, seed)) * shape, size)[:samples]


def babble(talkers: Sequence[Samples], samples: int, seed: int) -> Samples:
    """Several talkers at once, shape (samples,): each speaks on and on, beginning at a place drawn from the seed.

    Raises CorpusError when there is nobody to talk.
    """
    if not talkers:
        raise CorpusError(
            "Babble needs other utterances of the corpus to be made of; use a larger corpus or pink noise."
        )
    mixed = np.zeros(samples, dtype=np.float64)
    for number, talker in enumerate(talkers):
        offset = derive_seed(seed, "offset", number) % len(talker)
        mixed += np.resize(np.roll(talker, -offset), samples)
    return mixed
