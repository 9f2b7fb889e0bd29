"""How loud a clip is, moment by moment, in the bands that its speech is looked for in.

All levels of a clip share one grid of half milliseconds, whatever its rate, so that a prompt at 8 and at 16 kHz is
read at the same moments. Filters run forward and backward: they move nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.signal import butter, sosfiltfilt

Floats = NDArray[np.float64]

HOP_S: Final = 0.0005
WINDOW_S: Final = 0.005
_NARROW_WINDOW_S: Final = 0.002
_FLOOR_WINDOW_S: Final = 0.020
SILENCE_DB: Final = -110.0  # stands for digital silence, which has no logarithm: below one step of 16 bits
# What is below is not speech: thumps, wind, mains. Three corners, because it depends on the clip where a hum ends and a
# murmur begins.
SPEECH_BANDS_HZ: Final = (70.0, 100.0, 150.0)
REFERENCE_HZ: Final = 100.0
FRICTION_HZ: Final = 1_500.0
_VOICELESS_HZ: Final = 1_000.0
_ORDER: Final = 2
_FLOOR_PERCENTILE: Final = 5.0
_LOUD_PERCENTILE: Final = 99.0
_LITTLE_RANGE_DB: Final = 28.0
_FILE_EDGE_S: Final = 0.006


@dataclass(frozen=True, slots=True)
class Level:
    """One band of a clip: its level in dBFS in windows of 5 and of 2 ms around each half millisecond, how loud its
    loudest parts are, and its floor."""

    wide: Floats
    narrow: Floats
    loud_db: float
    floor_db: float

    @property
    def range_db(self) -> float:
        """From the floor to the loudest parts."""
        return self.loud_db - self.floor_db

    def backward(self) -> "Level":
        """The same with the time running backward."""
        return Level(self.wide[::-1], self.narrow[::-1], self.loud_db, self.floor_db)


@dataclass(frozen=True, slots=True)
class Sound:
    """The samples themselves, above 100 Hz."""

    samples: Floats
    rate_hz: int


@dataclass(frozen=True, slots=True)
class Levels:
    """The bands of a clip: those that speech is looked for in by their lower corner in Hz, what is above 1.5 kHz, and
    what is above 1 kHz."""

    speech: Mapping[float, Level]
    friction: Level
    voiceless: Level
    sound: Sound

    def backward(self) -> "Levels":
        """The same with the time running backward: then its end is where the clip starts."""
        turned = {corner_hz: level.backward() for corner_hz, level in self.speech.items()}
        sound = Sound(self.sound.samples[::-1], self.sound.rate_hz)
        return Levels(turned, self.friction.backward(), self.voiceless.backward(), sound)


def hops_in(seconds: float) -> int:
    """How many hops so many seconds are."""
    return round(seconds / HOP_S)


def measure_levels(samples: Floats, rate_hz: int) -> Levels:
    """Measure the levels of a mono clip, shape (samples,), full scale ±1.0.

    Digital silence around the recording is left out of how loud it is and of its floor: it tells nothing about either.
    """
    sounding = np.flatnonzero(samples)
    first_s, last_s = (
        (sounding[0] / rate_hz, sounding[-1] / rate_hz) if len(sounding) else (0.0, len(samples) / rate_hz)
    )
    recorded = slice(hops_in(first_s), hops_in(last_s) + 1)
    bands = {
        corner_hz: _above(samples, rate_hz, corner_hz) for corner_hz in (*SPEECH_BANDS_HZ, FRICTION_HZ, _VOICELESS_HZ)
    }
    level = {corner_hz: _level(band, rate_hz, recorded) for corner_hz, band in bands.items()}
    speech = {corner_hz: level[corner_hz] for corner_hz in SPEECH_BANDS_HZ}
    return Levels(speech, level[FRICTION_HZ], level[_VOICELESS_HZ], Sound(bands[REFERENCE_HZ], rate_hz))


def _above(samples: Floats, rate_hz: int, corner_hz: float) -> Floats:
    filtered = sosfiltfilt(butter(_ORDER, corner_hz, "highpass", fs=rate_hz, output="sos"), samples)
    # A filter rings into digital silence; there is nothing in it.
    return np.where(samples == 0.0, 0.0, filtered)


def _level(band: Floats, rate_hz: int, recorded: slice) -> Level:
    energy = np.concatenate(([0.0], np.cumsum(np.square(band))))
    wide = _power(energy, rate_hz, WINDOW_S)
    wide_db = decibels(wide)
    smooth_db = decibels(uniform_filter1d(wide, hops_in(_FLOOR_WINDOW_S)))
    floor_db = float(np.percentile(smooth_db[recorded], _FLOOR_PERCENTILE))
    loud_db = float(np.percentile(wide_db[recorded], _LOUD_PERCENTILE))
    if loud_db - floor_db < _LITTLE_RANGE_DB:
        # Either the clip is noisy or it holds next to no pause, and its quietest parts are speech too: what is at the
        # very edges of the file decides.
        edge = hops_in(_FILE_EDGE_S)
        at_edges = [float(decibels(np.mean(side, keepdims=True))[0]) for side in (wide[:edge], wide[-edge:])]
        floor_db = min(floor_db, *at_edges)
    return Level(wide_db, decibels(_power(energy, rate_hz, _NARROW_WINDOW_S)), loud_db, floor_db)


def _power(energy: Floats, rate_hz: int, window_s: float) -> Floats:
    """Mean power in a window around the middle of each hop; `energy` is summed up from the first sample."""
    samples = len(energy) - 1
    middles_s = (np.arange(int(samples / rate_hz / HOP_S)) + 0.5) * HOP_S
    bounds = [np.rint((middles_s + side * window_s / 2) * rate_hz).astype(np.int64) for side in (-1, 1)]
    begin, end = (np.clip(bound, 0, samples) for bound in bounds)
    return np.maximum(energy[end] - energy[begin], 0.0) / np.maximum(end - begin, 1)


def mean_db(levels_db: Floats) -> float:
    """The mean power of levels in dB, in dB."""
    return float(10.0 * np.log10(np.mean(np.power(10.0, levels_db / 10.0))))


def decibels(power: Floats) -> Floats:
    """Power in dB of full scale, digital silence as -110 dB."""
    return 10.0 * np.log10(np.maximum(power, 10.0 ** (SILENCE_DB / 10.0)))
