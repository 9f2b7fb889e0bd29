"""From an utterance and a profile to what leaves the caller's mouth, sample by sample.

Every utterance is brought to the same active speech level, so that one SNR means one noise level, in the mix and on
the line between utterances. The same corpus, profile and seed give the same bytes: randomness is made of integers,
and gains are rounded to six digits so that the order in which a processor adds cannot show.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import soxr
from numpy.typing import NDArray

from corpora.errors import CorpusError
from corpora.levels import active_mask, active_speech_level_dbov, level_dbov, snr_db
from corpora.library import Corpus
from corpora.manifest import RATES_HZ, Utterance
from corpora.noise import KNOWN_NOISES, babble, derive_seed, pink, white

SPEECH_LEVEL_DBOV = -26.0
SNR_RANGE_DB = (-5.0, 50.0)  # beyond, clipping or the 16-bit grid would be part of the noise
_TALKERS = 8
_FULL_SCALE = 32_768.0
_MAX_BACKGROUND_S = 600.0

Samples = NDArray[np.float64]
Pcm16 = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Profile:
    """What is added to the clean speech: one of the known noises at an SNR over the active speech, or nothing.

    Raises CorpusError for a noise that is not known, and when noise and SNR do not come together.
    """

    noise: str | None = None
    snr_db: float | None = None

    def __post_init__(self) -> None:
        if self.noise is None:
            if self.snr_db is not None:
                raise CorpusError(f"An SNR needs a noise; name one of {', '.join(KNOWN_NOISES)}.")
            return
        if self.noise not in KNOWN_NOISES:
            raise CorpusError(f"The noise {self.noise!r} is unknown; use one of {', '.join(KNOWN_NOISES)}.")
        low, high = SNR_RANGE_DB
        if self.snr_db is None:
            raise CorpusError(f"The noise {self.noise} needs an SNR in dB, from {low:g} to {high:g}.")
        if not (math.isfinite(self.snr_db) and low <= self.snr_db <= high):
            raise CorpusError(f"An SNR of {self.snr_db:g} dB cannot be rendered; use {low:g} to {high:g} dB.")

    @property
    def label(self) -> str:
        """A short name for tables and file names: `clean`, `babble-10dB`."""
        return "clean" if self.noise is None else f"{self.noise}-{self.snr_db:g}dB"


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """What the caller says: PCM of shape (samples,), and where the speech is in it (both bounds included)."""

    pcm: Pcm16
    rate_hz: int
    speech_start_sample: int
    speech_end_sample: int
    snr_asked_db: float | None
    snr_obtained_db: float | None  # added noise only, over the active speech, measured on the PCM; None without noise
    utterance: Utterance


@dataclass(frozen=True, slots=True, eq=False)
class _Speech:
    """An utterance at the rate and level of the mix, with its bounds and its active part."""

    samples: Samples
    start: int
    end: int
    active: NDArray[np.bool_]


def render(corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int, seed: int) -> Rendered:
    """Render one utterance of a corpus at a rate.

    It is resampled once; the bounds are carried over by their position in time. Raises CorpusError for a rate that
    cannot be rendered, a clip that changed since the corpus was opened, and babble without other utterances.
    """
    _check_rate(rate_hz)
    speech = _speech(corpus, utterance, rate_hz)
    if profile.snr_db is None:
        pcm, obtained_db = _pcm16(speech.samples), None
    else:
        length = len(speech.samples)
        noise = _noise(corpus, profile, rate_hz, length, _seed(corpus, profile, seed, utterance.id), utterance)
        pcm, obtained_db = _mix(speech, noise, profile.snr_db)
    return Rendered(pcm, rate_hz, speech.start, speech.end, profile.snr_db, obtained_db, utterance)


def background(corpus: Corpus, profile: Profile, rate_hz: int, seconds: float, seed: int) -> Pcm16:
    """What the caller's line carries while nobody speaks, shape (samples,).

    It has the profile's noise at the level it has in the mix, or digital silence. Raises CorpusError for a rate or a
    duration that cannot be rendered, and for babble without other utterances.
    """
    _check_rate(rate_hz)
    if not 0.0 < seconds <= _MAX_BACKGROUND_S:
        raise CorpusError(f"A background of {seconds:g} s cannot be rendered; ask for up to {_MAX_BACKGROUND_S:g} s.")
    samples = round(seconds * rate_hz)
    if profile.snr_db is None:
        return np.zeros(samples, dtype=np.int16)
    noise = _noise(corpus, profile, rate_hz, samples, _seed(corpus, profile, seed, "background"), None)
    return _pcm16(noise * _gain(level_dbov(noise), SPEECH_LEVEL_DBOV - profile.snr_db))


def _mix(speech: _Speech, noise: Samples, asked_db: float) -> tuple[Pcm16, float | None]:
    """Add noise so that the SNR holds over the active part of the speech."""
    speech_dbov = level_dbov(speech.samples[speech.active])
    noise_dbov = level_dbov(noise[speech.active])
    if speech_dbov is None or noise_dbov is None:
        raise CorpusError("The noise or the speech is silent over the active part; use another seed or noise.")
    pcm = _pcm16(speech.samples + noise * _gain(noise_dbov, speech_dbov - asked_db))
    return pcm, snr_db(speech.samples, pcm / _FULL_SCALE, speech.active)


def _noise(
    corpus: Corpus, profile: Profile, rate_hz: int, samples: int, seed: int, spoken: Utterance | None
) -> Samples:
    match profile.noise:
        case "white":
            return white(samples, seed)
        case "pink":
            return pink(samples, rate_hz, seed)
        case _:
            return babble(_talkers(corpus, rate_hz, samples, seed, spoken), samples, seed)


def _talkers(corpus: Corpus, rate_hz: int, samples: int, seed: int, spoken: Utterance | None) -> list[Samples]:
    """Up to eight streams of speech from other utterances, in an order drawn from the seed, pauses at the ends cut."""
    others = [other for other in corpus.utterances if spoken is None or other.id != spoken.id]
    others.sort(key=lambda other: derive_seed(seed, other.id))
    talkers: list[Samples] = []
    for first in range(min(_TALKERS, len(others))):
        pieces: list[Samples] = []
        for other in others[first::_TALKERS]:
            if sum(map(len, pieces)) >= samples:
                break
            speech = _speech(corpus, other, rate_hz)
            pieces.append(speech.samples[speech.start : speech.end + 1])
        talkers.append(np.concatenate(pieces))
    return talkers


@lru_cache(maxsize=64)
def _speech(corpus: Corpus, utterance: Utterance, rate_hz: int) -> _Speech:
    clip = corpus.read(utterance)
    # In double precision and at the highest quality, soxr keeps the timing: its filters have linear phase.
    samples = np.asarray(soxr.resample(clip, utterance.sample_rate_hz, rate_hz, quality="VHQ"), dtype=np.float64)
    start, end = (
        _carried(position, utterance.sample_rate_hz, rate_hz, len(samples))
        for position in (utterance.speech_start_sample, utterance.speech_end_sample)
    )
    level = active_speech_level_dbov(samples, rate_hz, start, end)
    samples *= _gain(level, SPEECH_LEVEL_DBOV)
    samples.flags.writeable = False
    return _Speech(samples, start, end, active_mask(samples, rate_hz, start, end))


def _carried(position: int, from_hz: int, to_hz: int, samples: int) -> int:
    """The sample nearest to the same moment at another rate."""
    return min((2 * position * to_hz + from_hz) // (2 * from_hz), samples - 1)


def _gain(level: float | None, wanted: float) -> float:
    if level is None:
        raise CorpusError("Nothing but silence came out of the noise; use another seed or noise.")
    return float(f"{10.0 ** ((wanted - level) / 20.0):.6g}")


def _pcm16(samples: Samples) -> Pcm16:
    return np.clip(np.rint(samples * _FULL_SCALE), -32_768, 32_767).astype(np.int16)


def _seed(corpus: Corpus, profile: Profile, seed: int, what: str) -> int:
    # The SNR is left out: the same noise at every level lets levels be compared utterance by utterance.
    return derive_seed("voiceprobe", seed, corpus.name, profile.noise, what)


def _check_rate(rate_hz: int) -> None:
    if rate_hz not in RATES_HZ:
        raise CorpusError(f"A rate of {rate_hz} Hz cannot be rendered; use {RATES_HZ[0]} to {RATES_HZ[-1]} Hz.")
