"""Arithmetic that comes out the same on every processor.

A sum of floating-point numbers depends on the order of adding, which differs from one processor to the next, in the
last bit. Signals are therefore settled on a grid of 2^-20 of full scale (32 steps to one of a 16-bit sample), and
filters have taps on a grid of 2^-14. A sum of their products is then a whole number of 2^-34, far inside what a double
holds, so that every order of adding gives the same; what a fast Fourier transform leaves beside it is rounded away.
"""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
Pcm16 = NDArray[np.int16]

FULL_SCALE = 32_768.0
_FINE = float(2**20)
_TAP = float(2**14)


def settle(samples: Samples) -> Samples:
    """The samples on the grid of 2^-20 of full scale."""
    return np.rint(samples * _FINE) / _FINE


def settle_taps(taps: Samples) -> Samples:
    """The taps of a filter on the grid of 2^-14."""
    return np.rint(taps * _TAP) / _TAP


def convolve(samples: Samples, taps: Samples) -> Samples:
    """The full convolution of a settled signal with settled taps: exact, then settled; shape (samples + taps - 1,)."""
    size = 1 << (4 * len(taps) - 1).bit_length()
    step = size - len(taps) + 1
    response = np.fft.rfft(taps, size)
    whole = np.zeros(len(samples) + len(taps) - 1)
    unit = _FINE * _TAP
    for start in range(0, len(samples), step):
        rough = np.fft.irfft(np.fft.rfft(samples[start : start + step], size) * response, size)
        stop = min(start + size, len(whole))
        whole[start:stop] += np.rint(rough[: stop - start] * unit) / unit
    return settle(whole)


def pcm16(samples: Samples) -> Pcm16:
    """Samples at full scale ±1.0 as 16-bit PCM, clipped."""
    return np.clip(np.rint(samples * FULL_SCALE), -32_768, 32_767).astype(np.int16)


def rounded_gain(decibels: float) -> float:
    """A factor for decibels, to six digits, so that the last bit of a level or of a power cannot show."""
    return float(f"{10.0 ** (decibels / 20.0):.6g}")
