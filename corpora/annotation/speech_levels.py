"""The level of a clip over time, in the frequency bands in which speech is detected.

All levels of a clip share one grid of half milliseconds at any sample rate, so a prompt at 8 kHz and at 16 kHz is read
at the same times. Filters run forward and backward, so they add no delay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # whose parts are imported when they are first used: a process that measures no clip never waits for them
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HOP_S: Final = 0.0005
WINDOW_S: Final = 0.005
_NARROW_WINDOW_S: Final = 0.002
_FLOOR_WINDOW_S: Final = 0.020
SILENCE_DB: Final = -110.0  # the level of digital silence, which has no logarithm: less than one 16-bit step
# Below these corners are thumps, wind and mains hum. There are three, because the boundary between a hum and a nasal
# murmur depends on the clip.
SPEECH_BANDS_HZ: Final = (70.0, 100.0, 150.0)
REFERENCE_HZ: Final = 100.0
FRICTION_HZ: Final = 1_500.0
_VOICELESS_HZ: Final = 1_000.0
_ORDER: Final = 2
_FLOOR_PERCENTILE: Final = 5.0
_LOUD_PERCENTILE: Final = 99.0
_SMALL_RANGE_DB: Final = 28.0
_FILE_EDGE_S: Final = 0.006


@dataclass(frozen=True, slots=True)
class Level:
    """The level of one band of a clip in dBFS, its loudest parts and its noise floor.

    `wide` and `narrow` are levels in windows of 5 ms and 2 ms around each half millisecond, shape (hops,).
    """

    wide: Floats
    narrow: Floats
    loud_db: float
    floor_db: float

    @property
    def range_db(self) -> float:
        """The range from the noise floor to the loudest parts."""
        return self.loud_db - self.floor_db

    def backward(self) -> "Level":
        """The same level with time reversed."""
        return Level(self.wide[::-1], self.narrow[::-1], self.loud_db, self.floor_db)


@dataclass(frozen=True, slots=True)
class ClipSamples:
    """The samples of a clip, high-passed at 100 Hz."""

    samples: Floats
    rate_hz: int


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a clip in all bands.

    `speech` has the bands in which speech is detected, by their lower corner in Hz; `friction` is above 1.5 kHz and
    `voiceless` above 1 kHz.
    """

    speech: Mapping[float, Level]
    friction: Level
    voiceless: Level
    clip: ClipSamples

    def backward(self) -> "Levels":
        """The same levels with time reversed, so that the end is where the clip starts."""
        reversed_levels = {corner_hz: level.backward() for corner_hz, level in self.speech.items()}
        clip = ClipSamples(self.clip.samples[::-1], self.clip.rate_hz)
        return Levels(reversed_levels, self.friction.backward(), self.voiceless.backward(), clip)


def hops_in(seconds: float) -> int:
    """Convert seconds to a number of hops."""
    return round(seconds / HOP_S)


def measure_levels(samples: Floats, rate_hz: int) -> Levels:
    """Measure the levels of a mono clip, shape (samples,), full scale ±1.0.

    Digital silence around the recording is not part of it: it affects neither the loudness nor the noise floor.
    """
    nonzero = np.flatnonzero(samples)
    first_s, last_s = (nonzero[0] / rate_hz, nonzero[-1] / rate_hz) if len(nonzero) else (0.0, len(samples) / rate_hz)
    recorded = slice(hops_in(first_s), hops_in(last_s) + 1)
    bands = {
        corner_hz: _high_passed(samples, rate_hz, corner_hz)
        for corner_hz in (*SPEECH_BANDS_HZ, FRICTION_HZ, _VOICELESS_HZ)
    }
    level = {corner_hz: _level(band, rate_hz, recorded) for corner_hz, band in bands.items()}
    speech = {corner_hz: level[corner_hz] for corner_hz in SPEECH_BANDS_HZ}
    return Levels(speech, level[FRICTION_HZ], level[_VOICELESS_HZ], ClipSamples(bands[REFERENCE_HZ], rate_hz))


def _high_passed(samples: Floats, rate_hz: int, corner_hz: float) -> Floats:
    filtered = scipy.signal.sosfiltfilt(
        scipy.signal.butter(_ORDER, corner_hz, "highpass", fs=rate_hz, output="sos"), samples
    )
    # Remove the ringing of the filter from digital silence.
    return np.where(samples == 0.0, 0.0, filtered)


def _level(band: Floats, rate_hz: int, recorded: slice) -> Level:
    energy = np.concatenate(([0.0], np.cumsum(np.square(band))))
    wide = _power(energy, rate_hz, WINDOW_S)
    wide_db = decibels(wide)
    smooth_db = decibels(scipy.ndimage.uniform_filter1d(wide, hops_in(_FLOOR_WINDOW_S)))
    floor_db = float(np.percentile(smooth_db[recorded], _FLOOR_PERCENTILE))
    loud_db = float(np.percentile(wide_db[recorded], _LOUD_PERCENTILE))
    if loud_db - floor_db < _SMALL_RANGE_DB:
        # Either the clip is noisy, or it has hardly any pause and its quietest parts are speech too. In the second case
        # the floor is the level at the edges of the file.
        edge = hops_in(_FILE_EDGE_S)
        at_edges = [float(decibels(np.mean(side, keepdims=True))[0]) for side in (wide[:edge], wide[-edge:])]
        floor_db = min(floor_db, *at_edges)
    return Level(wide_db, decibels(_power(energy, rate_hz, _NARROW_WINDOW_S)), loud_db, floor_db)


def _power(energy: Floats, rate_hz: int, window_s: float) -> Floats:
    """Mean power in a window around the middle of each hop; `energy` is the cumulative sum of squared samples."""
    samples = len(energy) - 1
    middles_s = (np.arange(int(samples / rate_hz / HOP_S)) + 0.5) * HOP_S
    bounds = [np.rint((middles_s + side * window_s / 2) * rate_hz).astype(np.int64) for side in (-1, 1)]
    begin, end = (np.clip(bound, 0, samples) for bound in bounds)
    return np.maximum(energy[end] - energy[begin], 0.0) / np.maximum(end - begin, 1)


def mean_db(levels_db: Floats) -> float:
    """Average levels in dB as powers; the result is in dB."""
    return float(10.0 * np.log10(np.mean(np.power(10.0, levels_db / 10.0))))


def decibels(power: Floats) -> Floats:
    """Convert power to dB of full scale; digital silence becomes -110 dB."""
    return 10.0 * np.log10(np.maximum(power, 10.0 ** (SILENCE_DB / 10.0)))
