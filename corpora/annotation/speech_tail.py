"""Classification of the last part of a clip: speech, breath after it, or a soft hum.

Level alone cannot distinguish them. A vowel is periodic and has formants; a nasal is a longer murmur without formants;
strong friction is nearly as loud above 1 kHz as the loudest sound of the clip. Any other sound may be the end of the
word or breath after it. A soft sound without formants is the low-frequency decay after the last glottal pulse.

The constants were tuned against 299 hand labels; test_annotation_labels has those of the bundled clips.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from corpora.annotation.speech_edges import refined_end
from corpora.annotation.speech_levels import HOP_S, REFERENCE_HZ, ClipSamples, Floats, Level, Levels, hops_in, mean_db

_LONGEST_TAIL_S: Final = 0.100  # the longest tail that is examined
_FORMANTS_UNDER_LOUD_DB: Final = 42.0  # above 1 kHz
_FORMANTS_OVER_FLOOR_DB: Final = 6.0
_MURMUR_UNDER_LOUD_DB: Final = 36.0
# A shorter murmur is just as likely the decay after a vowel.
_MURMUR_S: Final = 0.040
_STRONG_UNDER_LOUD_DB: Final = 20.0  # above 1 kHz: friction or a burst, not breath
# Windows of breath or friction hardly ever correlate this much with the signal one pitch period earlier.
_PERIODIC: Final = 0.7
_PITCH_PERIODS_S: Final = (0.0025, 0.016)
_CORRELATED_S: Final = 0.010
_PITCH_RATE_HZ: Final = 16_000  # enough to measure pitch: clips at higher rates are decimated to about this rate


@dataclass(frozen=True, slots=True)
class Tail:
    """The range of hops in which speech ends, as its last part indicates.

    Everything up to `certain` is speech, and nothing after `latest` is; the part between them is disputed.
    """

    certain: int
    end: int
    latest: int

    @property
    def disputed_s(self) -> float:
        """The largest distance from `end` to a limit of the disputed part, in seconds."""
        return max(self.end - self.certain, self.latest - self.end) * HOP_S


def classify_tail(levels: Levels, latest: int) -> Tail:
    """Classify the sound before `latest`, the hop at which the energy ends."""
    level = levels.speech[REFERENCE_HZ]
    formants_end = _formants_end(levels.voiceless, latest)
    end = latest
    if formants_end < latest:
        soft = mean_db(level.wide[formants_end:latest]) < level.loud_db - _MURMUR_UNDER_LOUD_DB
        if not soft and latest - formants_end >= hops_in(_MURMUR_S):
            return Tail(latest, latest, latest)
        end = formants_end if soft else latest
    return Tail(_last_certain(levels, formants_end), end, latest)


def _formants_end(upper: Level, latest: int) -> int:
    """The hop at which sound above 1 kHz ends; `latest` if there is no such sound near it."""
    threshold_db = max(upper.loud_db - _FORMANTS_UNDER_LOUD_DB, upper.floor_db + _FORMANTS_OVER_FLOOR_DB)
    begin = max(0, latest - hops_in(_LONGEST_TAIL_S))
    reached = np.flatnonzero(upper.wide[begin:latest] >= threshold_db)
    return refined_end(upper, begin + int(reached[-1]) + 1, threshold_db) if len(reached) else latest


def _last_certain(levels: Levels, end: int) -> int:
    """The hop at which the last periodic or strong sound ends, which cannot be breath."""
    begin = max(0, end - hops_in(_LONGEST_TAIL_S))
    strong_db = levels.voiceless.loud_db - _STRONG_UNDER_LOUD_DB
    strong = np.flatnonzero(levels.voiceless.wide[begin:end] >= strong_db)
    after = begin + (int(strong[-1]) + 1 if len(strong) else 0)
    periodic = np.flatnonzero(periodicity(levels.clip, after, end) >= _PERIODIC)
    return after + (int(periodic[-1]) + 1 if len(periodic) else 0)


def periodicity(clip: ClipSamples, begin: int, end: int) -> Floats:
    """The periodicity of the 10 ms up to the end of each hop from `begin` to `end`, shape (hops,).

    It is the highest normalized correlation with the signal one pitch period earlier, over all pitch periods of a
    voice; 1 for an exact repetition.
    """
    step = max(1, clip.rate_hz // _PITCH_RATE_HZ)
    samples, rate_hz = clip.samples[::step], clip.rate_hz / step
    longest = round(_PITCH_PERIODS_S[1] * rate_hz)
    window = round(_CORRELATED_S * rate_hz)
    stops = np.rint((np.arange(begin, end) + 1) * HOP_S * rate_hz).astype(np.int64)
    if not len(stops):
        return np.zeros(0)
    # Pad with silence before the first sample, so that there is a signal one pitch period before every window.
    first = int(stops[0]) - window - longest
    part = np.concatenate((np.zeros(max(0, -first)), samples[max(0, first) : int(stops[-1])]))
    stops = np.minimum(stops - first, len(part))  # the last hop may reach beyond the file
    energy = _cumulative_sum(np.square(part))
    own = energy[stops] - energy[stops - window]
    best = np.zeros(len(stops))
    for lag in range(round(_PITCH_PERIODS_S[0] * rate_hz), longest + 1):
        product = _cumulative_sum(part[lag:] * part[:-lag])
        both = product[stops - lag] - product[stops - lag - window]
        past = energy[stops - lag] - energy[stops - lag - window]
        best = np.maximum(best, both / np.sqrt(np.maximum(own * past, 1e-20)))
    return best


def _cumulative_sum(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))
