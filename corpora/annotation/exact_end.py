"""The exact end of a clip's speech: the point after the last sound that is certainly speech.

Where recorded speech ends can only be estimated. A clip with exact edges is faded out at this point when it is
rendered, so that the speech that is sent ends there by definition, whatever else was recorded after it.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.annotation.levels import MARGIN_DB, active_speech_level_dbov
from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import Utterance

FADE_S: Final = 0.005
# A sound is certainly speech if 10 ms of it are this close to the active speech level of its clip, and this far above
# the noise floor of its clip.
UNDER_ACTIVE_DB: Final = 25.0
OVER_FLOOR_DB: Final = 12.0
_WINDOW_S: Final = 0.010
_FLOOR_PERCENTILE: Final = 5.0
_ENOUGH_OUTSIDE_S: Final = 0.020
_PEAK: Final = 32_767.0

Energies = NDArray[np.int64]


def find_exact_end(samples: NDArray[np.float64], utterance: Utterance) -> int | None:
    """Find the last sample of an utterance that is certainly speech; None if its end must remain the recorded one.

    `samples` is its clip, shape (samples,), full scale ±1.0. The point is the last sample that reaches the threshold
    within the last 10 ms that reach it. The search ends where the speech as annotated may end at the latest, and leaves
    room for the fade within the clip.

    The threshold is 25 dB below the active speech level and 12 dB above the noise floor. If that is above the margin
    with which ITU-T P.56 separates speech from pauses, the noise covers soft speech, the point would come too early,
    and the result is None, as for a clip too short to contain 10 ms of speech and the fade. All sums are of integers,
    so that every machine finds the same sample.
    """
    rate_hz, start = utterance.sample_rate_hz, utterance.speech_start_sample
    window = round(_WINDOW_S * rate_hz)
    later_s = (utterance.speech_end_uncertainty_ms or 0.0) / 1000.0
    latest = utterance.speech_end_sample + round(later_s * rate_hz)
    last_start = min(latest, len(samples) - 1 - fade_samples(rate_hz)) + 1 - window
    if last_start < start:
        return None
    scaled = samples / np.max(np.abs(samples))  # a clip in floating point may be beyond full scale, or very soft
    try:
        active_level_dbov = active_speech_level_dbov(scaled, rate_hz, start, utterance.speech_end_sample)
    except CorpusError:
        return None  # a click: no part of it is active speech
    pcm = np.rint(scaled * _PEAK).astype(np.int64)
    energy = np.concatenate(([0], np.cumsum(np.square(pcm))))
    energies = energy[window:] - energy[:-window]
    active = window * _PEAK**2 * _factor(round(active_level_dbov, 2))
    floor = _noise_floor(energies, pcm, range(start, latest + 1), rate_hz)
    threshold = max(active * _factor(-UNDER_ACTIVE_DB), floor * _factor(OVER_FLOOR_DB))
    if threshold > active * _factor(-MARGIN_DB):
        return None
    certain = np.flatnonzero(energies[start : last_start + 1] >= threshold)
    if not len(certain):
        return None
    begin = start + int(certain[-1])
    end = begin + int(np.flatnonzero(np.square(pcm[begin : begin + window]) * window >= threshold)[-1])
    return end if end > start else None


def fade_samples(rate_hz: int) -> int:
    """The length of the fade in samples."""
    return round(FADE_S * rate_hz)


def _noise_floor(energies: Energies, pcm: Energies, speech: range, rate_hz: int) -> float:
    """The energy of the noise in one window: that of the quiet ones outside the annotated speech.

    Digital silence before and after a recording is padding and not its noise. If a padded recording has nothing
    outside its speech, it has no noise; one without padding is as quiet as its quietest parts.
    """
    window = len(pcm) + 1 - len(energies)
    audible = np.flatnonzero(pcm)
    first, last = int(audible[0]), int(audible[-1]) + 1 - window
    if last < first:
        return 0.0  # the whole recording is shorter than a window
    within = energies[first : last + 1]
    outside = np.concatenate(
        (energies[first : max(first, speech.start - window + 1)], energies[speech.stop : max(speech.stop, last + 1)])
    )
    quietest = float(np.percentile(within, _FLOOR_PERCENTILE, method="lower"))
    if len(outside) >= _ENOUGH_OUTSIDE_S * rate_hz:
        return min(quietest, float(np.percentile(outside, _FLOOR_PERCENTILE, method="lower")))
    return 0.0 if len(within) < len(energies) else quietest


def _factor(decibels: float) -> float:
    return 10.0 ** (decibels / 10.0)
