"""The level of a clip over time, for choosing the views of pictures; no boundary depends on it."""

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.boundary_labels.sources import Pcm

_LOWEST_DB = -96.0


def level_db(pcm: Pcm | NDArray[np.float64], rate_hz: int, window_ms: float) -> NDArray[np.float64]:
    """RMS in dBFS (full-scale amplitude is 0 dB) of a centered window, one value for each millisecond from 0."""
    scale = 32_768.0 if pcm.dtype == np.int16 else 1.0
    square = np.concatenate(([0.0], np.cumsum((pcm.astype(np.float64) / scale) ** 2)))
    centers = np.arange(len(pcm) * 1000 // rate_hz + 1) * rate_hz / 1000
    half = window_ms * rate_hz / 2000
    begin = np.clip(np.rint(centers - half), 0, len(pcm)).astype(int)
    end = np.clip(np.rint(centers + half), 0, len(pcm)).astype(int)
    mean = (square[end] - square[begin]) / np.maximum(end - begin, 1)
    return np.maximum(10 * np.log10(np.maximum(mean, 1e-12)), _LOWEST_DB)
