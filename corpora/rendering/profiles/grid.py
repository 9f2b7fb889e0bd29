"""Arithmetic with the same results on every processor.

The last bit of a floating-point sum depends on the order of summation, which differs between processors. So signals are
rounded to a grid of 2^-20 of full scale (32 steps per 16-bit step) and filter taps to a grid of 2^-14. A sum of their
products is then an exact multiple of 2^-34, which a double represents in any order of summation. The error of a fast
Fourier transform is rounded away.
"""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
Pcm16 = NDArray[np.int16]

FULL_SCALE = 32_768.0
_FINE = float(2**20)
_TAP = float(2**14)


def round_samples(samples: Samples) -> Samples:
    """Round samples to the grid of 2^-20 of full scale."""
    return np.rint(samples * _FINE) / _FINE


def round_taps(taps: Samples) -> Samples:
    """Round filter taps to the grid of 2^-14."""
    return np.rint(taps * _TAP) / _TAP


def convolve(samples: Samples, taps: Samples) -> Samples:
    """The full convolution of a signal and taps on their grids, rounded to the grid; shape (samples + taps - 1,)."""
    size = 1 << (4 * len(taps) - 1).bit_length()
    step = size - len(taps) + 1
    response = np.fft.rfft(taps, size)
    whole = np.zeros(len(samples) + len(taps) - 1)
    unit = _FINE * _TAP
    for start in range(0, len(samples), step):
        rough = np.fft.irfft(np.fft.rfft(samples[start : start + step], size) * response, size)
        stop = min(start + size, len(whole))
        whole[start:stop] += np.rint(rough[: stop - start] * unit) / unit
    return round_samples(whole)


def pcm16(samples: Samples) -> Pcm16:
    """Convert samples at full scale ±1.0 to 16-bit PCM, clipped."""
    return np.clip(np.rint(samples * FULL_SCALE), -32_768, 32_767).astype(np.int16)


def rounded_gain(decibels: float) -> float:
    """Convert decibels to a factor with six digits, so that the last bit of a level or power has no effect."""
    return float(f"{10.0 ** (decibels / 20.0):.6g}")
