"""Noise that is the same on every machine for the same seed; pure functions on arrays.

The randomness is the raw integer stream of PCG64, which NumPy promises never to change (it makes no such promise for
its normal distribution). The normal distribution is the sum of twelve 16-bit integers, which is exact on every
processor. All noise except the user's own sound files has unit power in the long run; the mixer sets its level.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from corpora.manifest.errors import CorpusError

_WORDS_PER_SAMPLE = 3
_LANES_PER_WORD = 4
_MEAN = _WORDS_PER_SAMPLE * _LANES_PER_WORD * 65_535 // 2
_EVEN_LANES = np.uint64(0x0000_FFFF_0000_FFFF)
_LOWEST_HZ = 20.0
_HUM_HARMONICS = 20
_PROGRESSION = (0, 5, -3, 7)  # semitones from A
_CHORD = (0, 4, 7, 12)
_PARTIALS = 5
_ATTACK_S = 0.005

Samples = NDArray[np.float64]


def derive_seed(*parts: object) -> int:
    """Derive a 64-bit seed from values whose string form is the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def white(samples: int, seed: int) -> Samples:
    """White noise with a nearly Gaussian distribution (peaks end at 6 sigma), shape (samples,), unit power."""
    raw = np.asarray(np.random.PCG64(seed).random_raw(samples * _WORDS_PER_SAMPLE), dtype=np.uint64)
    # Each word has four lanes of 16 bits; pairs of them are added in lanes of 32 bits, which cannot overflow.
    pairs = (raw & _EVEN_LANES) + ((raw >> np.uint64(16)) & _EVEN_LANES)
    sums = pairs[0::3] + pairs[1::3] + pairs[2::3]
    total = (sums & np.uint64(0xFFFF_FFFF)) + (sums >> np.uint64(32))
    return (total.astype(np.int64) - _MEAN) / 65_536.0


def pink(samples: int, rate_hz: int, seed: int) -> Samples:
    """Noise whose power falls by 3 dB per octave from 20 Hz up, shape (samples,), unit power in the long run.

    White noise of a power of two of samples is shaped in the frequency domain and cut to length.
    """
    return _shaped(samples, rate_hz, seed, 0.5)


def brown(samples: int, rate_hz: int, seed: int) -> Samples:
    """Noise whose power falls by 6 dB per octave from 20 Hz up, like distant traffic; otherwise like `pink`."""
    return _shaped(samples, rate_hz, seed, 1.0)


def hum(samples: int, rate_hz: int, seed: int, mains_hz: int) -> Samples:
    """Mains hum with harmonics up to the 20th, the even ones stronger, as from rectifiers; unit power."""
    phase = mains_hz * np.arange(samples, dtype=np.int64)
    mixed = np.zeros(samples, dtype=np.float64)
    for harmonic in range(1, _HUM_HARMONICS + 1):
        if 2 * harmonic * mains_hz >= rate_hz:
            break
        strength = (1.0 if harmonic % 2 == 0 or harmonic == 1 else 0.4) / harmonic
        start = derive_seed(seed, "hum", harmonic) % rate_hz
        mixed += strength * _sine((harmonic * phase + start) % rate_hz, rate_hz)
    return mixed / _rms(mixed)


def music(samples: int, rate_hz: int, seed: int) -> Samples:
    """A simple kind of music: plucked chords with a bass, two per second, repeating a progression; unit power."""
    step, ring = rate_hz // 2, 2 * rate_hz
    before = ring // step  # the first notes are left out because no earlier notes overlap them
    notes = before + -(-samples // step)
    mixed = np.zeros(notes * step + ring, dtype=np.float64)
    first_chord = derive_seed(seed, "begin")
    for note in range(notes):
        root = _PROGRESSION[(first_chord + note // 4) % len(_PROGRESSION)]
        upper = (root + _CHORD[derive_seed(seed, note, voice) % len(_CHORD)] for voice in range(2))
        for semitone in (root - 12, *upper):
            mixed[note * step : note * step + ring] += _plucked(semitone, rate_hz)
    kept = mixed[before * step :][:samples]
    return kept / _rms(kept)


def from_files(sounds: Samples, samples: int, seed: int) -> Samples:
    """A part of the user's own noise, from an offset drawn from the seed; noise that is too short is repeated."""
    offset = derive_seed(seed, "offset") % len(sounds)
    return np.resize(np.roll(sounds, -offset), samples) if samples > len(sounds) - offset else sounds[offset:][:samples]


def _shaped(samples: int, rate_hz: int, seed: int, exponent: float) -> Samples:
    """White noise whose amplitude falls with a power of the frequency from 20 Hz up."""
    size = 1 << max(samples - 1, 1).bit_length()
    frequency_hz = np.arange(size // 2 + 1) * (rate_hz / size)
    shape = 1.0 / np.maximum(frequency_hz, _LOWEST_HZ) ** exponent
    shape[0] = 0.0
    shape /= np.sqrt(np.mean(np.square(shape)))
    return np.fft.irfft(np.fft.rfft(white(size, seed)) * shape, size)[:samples]


@lru_cache(maxsize=64)
def _plucked(semitone: int, rate_hz: int) -> Samples:
    """A tone that decays over two seconds, at a whole frequency in Hz, some semitones from A."""
    tone_hz = round(220.0 * 2.0 ** (semitone / 12.0))
    count = np.arange(2 * rate_hz, dtype=np.int64)
    tone = np.zeros(len(count), dtype=np.float64)
    for partial in range(1, _PARTIALS + 1):
        if 2 * partial * tone_hz < rate_hz:
            tone += _sine(partial * tone_hz * count % rate_hz, rate_hz) / partial**2
    rise = np.minimum(count / (_ATTACK_S * rate_hz), 1.0)
    fall = np.minimum((len(count) - count) / (_ATTACK_S * rate_hz), 1.0)
    return tone * rise * fall * np.exp(count * (-3.0 / rate_hz))


def _sine(phase: NDArray[np.int64], rate_hz: int) -> Samples:
    """The sine of integer phases, `rate_hz` of which make a full turn; from a table, so that periods repeat exactly."""
    return _sine_table(rate_hz)[phase]


@lru_cache(maxsize=4)
def _sine_table(rate_hz: int) -> Samples:
    return np.sin(np.arange(rate_hz) * (2.0 * np.pi / rate_hz))


def _rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples)))) or 1.0


def babble(talkers: Sequence[Samples], samples: int, seed: int) -> Samples:
    """Several talkers at once, shape (samples,): each speaks without pause, from an offset drawn from the seed.

    Raises CorpusError if there are no talkers.
    """
    if not talkers:
        raise CorpusError(
            "Babble is made from other utterances of the corpus, but there are none; use a larger corpus or pink noise."
        )
    mixed = np.zeros(samples, dtype=np.float64)
    for number, talker in enumerate(talkers):
        offset = derive_seed(seed, "offset", number) % len(talker)
        mixed += np.resize(np.roll(talker, -offset), samples)
    return mixed
