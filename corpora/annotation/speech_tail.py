"""What the last stretch of a clip is made of: speech, breath after it, or a soft hum that outlasts it.

A level alone does not tell them apart. A vowel is periodic and has formants; a nasal is a murmur without formants that
lasts; strong friction comes near the clip's loudest sound above 1 kHz. What is none of these may be the end of the word
or breath after it. What is soft and has no formants is the decay at low frequency after the last glottal pulse.

The figures here are chosen against 299 hand labels (tests/benchmarks/boundary_labels).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from corpora.annotation.speech_edges import narrowed
from corpora.annotation.speech_levels import HOP_S, REFERENCE_HZ, Floats, Level, Levels, Sound, hops_in, mean_db

_REACH_S: Final = 0.100  # a tail is looked at no farther back than this
_FORMANTS_UNDER_LOUD_DB: Final = 42.0  # above 1 kHz
_FORMANTS_OVER_FLOOR_DB: Final = 6.0
_MURMUR_UNDER_LOUD_DB: Final = 36.0
# A shorter one is as likely the decay after a vowel.
_MURMUR_S: Final = 0.040
_STRONG_UNDER_LOUD_DB: Final = 20.0  # above 1 kHz: friction or a burst, and no breath
# Hardly any window of breath or friction is as similar as this to what came a pitch period before it.
_PERIODIC: Final = 0.7
_PITCH_PERIODS_S: Final = (0.0025, 0.016)
_COMPARED_S: Final = 0.010
_ENOUGH_HZ: Final = 16_000  # a voice repeats far below: of a faster clip each second or third sample will do


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the speech ends when the last stretch is judged by what it is made of, and how far before and after that it
    could be said to end, in hops. From `certain` to `latest` is disputed."""

    certain: int
    end: int
    latest: int

    @property
    def disputed_s(self) -> float:
        """How far the other readings are from the end at most, in seconds."""
        return max(self.end - self.certain, self.latest - self.end) * HOP_S


def judge_tail(levels: Levels, latest: int) -> Tail:
    """Judge what comes before `latest`, the hop before which the energy ends."""
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
    """The hop before which sound above 1 kHz ends; `latest` where there is none near it."""
    threshold_db = max(upper.loud_db - _FORMANTS_UNDER_LOUD_DB, upper.floor_db + _FORMANTS_OVER_FLOOR_DB)
    begin = max(0, latest - hops_in(_REACH_S))
    reached = np.flatnonzero(upper.wide[begin:latest] >= threshold_db)
    return narrowed(upper, begin + int(reached[-1]) + 1, threshold_db) if len(reached) else latest


def _last_certain(levels: Levels, end: int) -> int:
    """The hop before which the last sound ends that is periodic or strong, and so cannot be breath."""
    begin = max(0, end - hops_in(_REACH_S))
    strong_db = levels.voiceless.loud_db - _STRONG_UNDER_LOUD_DB
    strong = np.flatnonzero(levels.voiceless.wide[begin:end] >= strong_db)
    after = begin + (int(strong[-1]) + 1 if len(strong) else 0)
    periodic = np.flatnonzero(periodicity(levels.sound, after, end) >= _PERIODIC)
    return after + (int(periodic[-1]) + 1 if len(periodic) else 0)


def periodicity(sound: Sound, begin: int, end: int) -> Floats:
    """How similar the 10 ms up to the end of each hop from `begin` to `end` are to what came a pitch period before,
    shape (hops,): the highest normalized correlation over all periods of a voice, 1 for what repeats exactly."""
    step = max(1, sound.rate_hz // _ENOUGH_HZ)
    samples, rate_hz = sound.samples[::step], sound.rate_hz / step
    longest = round(_PITCH_PERIODS_S[1] * rate_hz)
    compared = round(_COMPARED_S * rate_hz)
    stops = np.rint((np.arange(begin, end) + 1) * HOP_S * rate_hz).astype(np.int64)
    if not len(stops):
        return np.zeros(0)
    # Silence before the first sample, so that every window has its past.
    first = int(stops[0]) - compared - longest
    part = np.concatenate((np.zeros(max(0, -first)), samples[max(0, first) : int(stops[-1])]))
    stops = np.minimum(stops - first, len(part))  # the last hop may reach beyond the file
    energy = _summed(np.square(part))
    own = energy[stops] - energy[stops - compared]
    best = np.zeros(len(stops))
    for lag in range(round(_PITCH_PERIODS_S[0] * rate_hz), longest + 1):
        product = _summed(part[lag:] * part[:-lag])
        both = product[stops - lag] - product[stops - lag - compared]
        past = energy[stops - lag] - energy[stops - lag - compared]
        best = np.maximum(best, both / np.sqrt(np.maximum(own * past, 1e-20)))
    return best


def _summed(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))
