"""The active level of speech, and its signal-to-noise ratio.

Levels are in dBov: decibels below the overload point, full scale ±1.0, as RMS (a full-scale square wave is 0 dBov).
The active speech level follows ITU-T P.56 method B: pauses longer than 200 ms do not count, and the threshold between
speech and pause is 15.9 dB below the resulting level.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.manifest.errors import CorpusError

_SMOOTHING_S = 0.06
_HANGOVER_S = 0.2
MARGIN_DB: Final = 15.9  # from the active level down to the threshold between speech and pause
_BISECTIONS = 40

Samples = NDArray[np.float64]


def level_dbov(samples: Samples) -> float | None:
    """RMS level in dBov; None for digital silence or no samples."""
    power = float(np.mean(np.square(samples))) if len(samples) else 0.0
    return 10.0 * float(np.log10(power)) if power > 0.0 else None


def active_mask(samples: Samples, rate_hz: int, start: int, end: int) -> NDArray[np.bool_]:
    """Mark the samples between two bounds (both included) that are active speech; shape (samples,).

    Raises CorpusError when there is only silence between the bounds.
    """
    speech = samples[start : end + 1]
    power = float(np.sum(np.square(speech)))
    if power <= 0.0:
        raise CorpusError("The clip is silent between its speech bounds; annotate it again.")
    envelope = _held_envelope(speech, rate_hz)
    ascending = np.sort(envelope)
    low_db, high_db = -120.0, 0.0
    for _ in range(_BISECTIONS):
        threshold_db = (low_db + high_db) / 2.0
        count = len(ascending) - int(np.searchsorted(ascending, 10.0 ** (threshold_db / 20.0)))
        # Raise the threshold while it is more than the margin below the level it yields.
        if count and 10.0 * float(np.log10(power / count)) - threshold_db > MARGIN_DB:
            low_db = threshold_db
        else:
            high_db = threshold_db
    mask = np.zeros(len(samples), dtype=np.bool_)
    mask[start : end + 1] = envelope >= 10.0 ** (low_db / 20.0)
    return mask


def active_speech_level_dbov(samples: Samples, rate_hz: int, start: int, end: int) -> float:
    """The active speech level in dBov of the speech between two bounds (both included).

    Raises CorpusError when there is only silence between them.
    """
    level = level_dbov(samples[active_mask(samples, rate_hz, start, end)])
    if level is None:
        raise CorpusError("The clip is silent between its speech bounds; annotate it again.")
    return level


def snr_db(speech: Samples, mix: Samples, active: NDArray[np.bool_]) -> float | None:
    """Level of the speech over everything else in the mix, in its active part, in dB; None if nothing was added."""
    signal, noise = level_dbov(speech[active]), level_dbov((mix - speech)[active])
    return None if signal is None or noise is None else signal - noise


def _held_envelope(speech: Samples, rate_hz: int) -> Samples:
    """Mean magnitude over the last 60 ms, its maximum held for 200 ms; shape (samples,)."""
    window, hold = round(rate_hz * _SMOOTHING_S), round(rate_hz * _HANGOVER_S)
    total = np.cumsum(np.concatenate((np.zeros(window), np.abs(speech))))
    smooth = np.maximum(total[window:] - total[: len(speech)], 0.0) / window
    # The maximum of the last `hold` values, from running maxima within blocks in both directions: any window of that
    # length is the end of one block and the beginning of the next.
    blocks = -(-(len(smooth) + hold - 1) // hold)
    padded = np.zeros(blocks * hold)
    padded[hold - 1 : hold - 1 + len(smooth)] = smooth
    table = padded.reshape(blocks, hold)
    forward = np.maximum.accumulate(table, axis=1).reshape(-1)
    backward = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1].reshape(-1)
    return np.maximum(backward[: len(smooth)], forward[hold - 1 : hold - 1 + len(smooth)])
