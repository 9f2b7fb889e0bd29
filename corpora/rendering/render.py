"""Rendering of utterances with a profile, and of the background between them.

Every utterance is normalized to the same active speech level, so that one SNR means one noise level, both in the mix
and on the line between utterances. The same corpus, profile and seed give the same bytes: randomness comes from
integers, gains are rounded to six digits, and signals are rounded to a grid before they are summed, so that the order
of summation does not matter. An utterance can be rendered in any number of variants, each with its own noise, lost
packets and impulse response (if there is a folder of them).

A corpus with exact edges is faded out after its last certain speech (`exact_end`), and digital silence follows; the
room, the noise and the channel come after that, as they would for a speaker who stops there. Where no speech is
certain, and in a corpus with recorded edges, the recording is rendered to its end.

SNR and level are set and measured on the 16-bit samples that enter the channel. Codecs and lost packets change the
waveform itself, so a ratio of powers after them would not separate speech from noise.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from corpora.annotation.exact_end import fade_samples, find_exact_end
from corpora.annotation.levels import active_mask, level_dbov, snr_db
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus
from corpora.manifest.manifest import RATES_HZ, Utterance
from corpora.rendering import noise as noises
from corpora.rendering.noise import derive_seed
from corpora.rendering.profiles.channels import carry, packets_of
from corpora.rendering.profiles.files import FILE_PREFIX, read_sounds
from corpora.rendering.profiles.grid import FULL_SCALE, Pcm16, Samples, pcm16, rounded_gain
from corpora.rendering.profiles.packets import Flags, late_packets, lost_packets
from corpora.rendering.profiles.profile import SPEECH_LEVEL_DBOV, Profile
from corpora.rendering.profiles.rooms import reverberate
from corpora.rendering.profiles.stretch import stretch

_TALKERS = 8
_POOL = 48  # babble is made from at most this many utterances of a corpus, so that they fit into the memory cache
_MAX_BACKGROUND_S = 600.0
_SNR_TOLERANCE_DB = 0.1
_FORMATS = {".wav": "WAV", ".flac": "FLAC"}


@dataclass(frozen=True, slots=True)
class Obtained:
    """The measured values of what the profile requests; None for what it does not request."""

    level_dbov: float  # active speech level at the input of the channel
    snr_db: float | None = None  # against the added noise, over the active speech, at the input of the channel
    loss_ratio: float | None = None  # share of the packets with speech that never arrive
    late_ratio: float | None = None  # share of the same packets that arrive too late for the receiver's buffer
    clipped_ratio: float | None = None  # share of the active speech samples that are clipped at the end of the chain
    room_response: str | None = None  # the file name of the user's own impulse response


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """A rendered utterance: PCM of shape (samples,), and the first and the last sample of speech in it."""

    pcm: Pcm16
    rate_hz: int
    speech_start_sample: int
    speech_end_sample: int
    profile: Profile
    obtained: Obtained
    utterance: Utterance
    variant: int = 0
    end_is_exact: bool = False  # the speech is faded out from its last sample on

    def write(self, file: str | Path) -> Path:
        """Write the audio as 16-bit WAV or FLAC, depending on the suffix of the file. Raises CorpusError."""
        path = Path(file)
        try:
            soundfile.write(path, self.pcm, self.rate_hz, "PCM_16", format=_FORMATS[path.suffix.lower()])
        except KeyError:
            raise CorpusError(f"{path}: cannot be written; its name must end in {' or '.join(_FORMATS)}.") from None
        except (OSError, ValueError, soundfile.LibsndfileError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CorpusError(f"{path}: cannot be written ({reason}); check folder and permissions.") from error
        return path

    @property
    def speech_start_uncertainty_ns(self) -> int | None:
        """The uncertainty of the first speech sample, as the half-width of a 95 % interval; None if it is unknown."""
        return self._uncertainty_ns(self.utterance.speech_start_uncertainty_ms)

    @property
    def speech_end_uncertainty_ns(self) -> int | None:
        """The uncertainty of the last speech sample: 0 if the speech is faded out there.

        Otherwise it is the half-width of a 95 % interval, or None if it is unknown.
        """
        return 0 if self.end_is_exact else self._uncertainty_ns(self.utterance.speech_end_uncertainty_ms)

    def _uncertainty_ns(self, half_width_ms: float | None) -> int | None:
        # Speed stretches the speech between the bounds and pitch the silence outside; a bound may be off either way.
        slowest = min(self.profile.speed, self.profile.pitch)
        return None if half_width_ms is None else math.ceil(half_width_ms * 1_000_000 / slowest)

    @property
    def snr_asked_db(self) -> float | None:
        """The SNR that the profile requests, in dB; None without noise."""
        return self.profile.snr_db

    @property
    def snr_obtained_db(self) -> float | None:
        """The measured SNR in dB; None without noise."""
        return self.obtained.snr_db


@dataclass(frozen=True, slots=True, eq=False)
class _Speech:
    """An utterance at the sample rate and level of the mix, with its bounds and the mask of its active speech."""

    samples: Samples
    start: int
    end: int
    end_is_exact: bool
    active: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _Clip:
    """An utterance's clip at the sample rate of the mix, with its bounds."""

    samples: Samples
    start: int
    end: int
    end_is_exact: bool


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The first and the last sample of the speech in a clip at its own rate."""

    start: int
    end: int
    end_is_exact: bool

    @property
    def samples(self) -> int:
        """The number of samples from the first to the last."""
        return self.end - self.start + 1


def render(
    corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int, seed: int = 1, *, variant: int = 0
) -> Rendered:
    """Render one utterance of a corpus at a sample rate; each `variant` draws different noise and losses.

    The clip is resampled once, and the bounds keep their position in time. Raises CorpusError for an unsupported rate,
    for a clip that changed since the corpus was opened, and for babble without other utterances.
    """
    _check_rate(rate_hz)
    random_stream = utterance.id if variant == 0 else f"{utterance.id}#{variant}"
    response = _response(corpus, profile, seed, random_stream)
    speech = _at_microphone(corpus, utterance, profile, rate_hz, response)
    snr = None
    if profile.snr_db is None:
        mix = pcm16(speech.samples)
    else:
        length = len(speech.samples)
        requested = _NoiseRequest(rate_hz, length, _seed(corpus, profile, seed, random_stream))
        noise = _noise(corpus, profile, requested, utterance)
        mix, snr = _mix(speech, noise, profile.snr_db)
    level = level_dbov(pcm16(speech.samples)[speech.active] / FULL_SCALE)
    if level is None:
        raise CorpusError(f"The utterance {utterance.id} is silent at {profile.level_dbov:g} dBov; use a higher level.")
    packet_seed = derive_seed("voiceprobe", seed, corpus.name, "packets", random_stream)
    lost, late, missing = _missing(profile, packets_of(len(mix), rate_hz), packet_seed)
    carried = carry(mix, rate_hz, profile.codecs, missing)
    pcm, clipped = _apply_distortion(carried, profile)
    speech_packets = slice(packets_of(speech.start + 1, rate_hz) - 1, packets_of(speech.end + 1, rate_hz))
    obtained = Obtained(
        level,
        snr,
        None if lost is None else float(np.mean(lost[speech_packets])),
        None if late is None else float(np.mean(late[speech_packets])),
        None if clipped is None else float(np.mean(clipped[speech.active])),
        None if response is None else response.name,
    )
    return Rendered(
        pcm,
        rate_hz,
        speech.start,
        speech.end,
        profile,
        obtained,
        utterance,
        variant,
        end_is_exact=speech.end_is_exact,
    )


def background(corpus: Corpus, profile: Profile, rate_hz: int, seconds: float, seed: int) -> Pcm16:
    """Render what the caller's line carries while nobody speaks, shape (samples,).

    This is the profile's noise at its level in the mix, or digital silence, after the same channel. Raises CorpusError
    for an unsupported rate or duration, and for babble without other utterances.
    """
    _check_rate(rate_hz)
    if not 0.0 < seconds <= _MAX_BACKGROUND_S:
        raise CorpusError(f"A background of {seconds:g} s cannot be rendered; use at most {_MAX_BACKGROUND_S:g} s.")
    samples = round(seconds * rate_hz)
    mix = np.zeros(samples, dtype=np.int16)
    if profile.snr_db is not None:
        requested = _NoiseRequest(rate_hz, samples, _seed(corpus, profile, seed, "background"))
        noise = _noise(corpus, profile, requested, None)
        mix = pcm16(noise * _gain(level_dbov(noise), profile.level_dbov - profile.snr_db))
    packet_seed = derive_seed("voiceprobe", seed, corpus.name, "packets", "background")
    _, _, missing = _missing(profile, packets_of(samples, rate_hz), packet_seed)
    return _apply_distortion(carry(mix, rate_hz, profile.codecs, missing), profile)[0]


def clear_memory_cache() -> None:
    """Release the cached utterances; they are not needed once everything is rendered."""
    _speech.cache_clear()
    _at_microphone.cache_clear()


def _missing(profile: Profile, packets: int, seed: int) -> tuple[Flags | None, Flags | None, Flags | None]:
    """Draw which packets are lost, late, and either of both; None if the profile has no such impairment."""
    lost = None if profile.loss is None else lost_packets(profile.loss, packets, seed)
    late = None if profile.jitter is None else late_packets(profile.jitter, packets, seed)
    if lost is None or late is None:
        return lost, late, late if lost is None else lost
    return lost, late & ~lost, lost | late


def _apply_distortion(pcm: Pcm16, profile: Profile) -> tuple[Pcm16, NDArray[np.bool_] | None]:
    """Apply gain, clipping and DC; also return which samples were clipped, None if the profile has none of these."""
    if profile.gain_db == 0.0 and profile.clip_dbov is None and profile.dc == 0.0:
        return pcm, None
    amplified = pcm / FULL_SCALE * rounded_gain(profile.gain_db)
    limit = 1.0 if profile.clip_dbov is None else rounded_gain(profile.clip_dbov)
    clipped = np.clip(amplified, -limit, limit)
    shifted = clipped + profile.dc
    return pcm16(shifted), (clipped != amplified) | (shifted > 32_767 / FULL_SCALE) | (shifted < -1.0)


def _mix(speech: _Speech, noise: Samples, requested_db: float) -> tuple[Pcm16, float]:
    """Add noise at an SNR over the active part of the speech; returns the mix and the measured SNR in dB."""
    speech_dbov = level_dbov(speech.samples[speech.active])
    noise_dbov = level_dbov(noise[speech.active])
    if speech_dbov is None or noise_dbov is None:
        raise CorpusError("The noise or the speech is silent over the active part; use another seed or noise.")
    pcm = pcm16(speech.samples + noise * _gain(noise_dbov, speech_dbov - requested_db))
    obtained_db = snr_db(speech.samples, pcm / FULL_SCALE, speech.active)
    if obtained_db is None or abs(obtained_db - requested_db) > _SNR_TOLERANCE_DB:
        obtained = "no noise" if obtained_db is None else f"an SNR of {obtained_db:.2f} dB"
        raise CorpusError(
            f"The mix has {obtained} instead of {requested_db:g} dB because its peaks do not fit into 16 bits; "
            "use a higher SNR, a lower level or a noise with lower peaks."
        )
    return pcm, obtained_db


@dataclass(frozen=True, slots=True)
class _NoiseRequest:
    """Amount, rate and source of the noise that is wanted."""

    rate_hz: int
    samples: int
    seed: int


def _noise(corpus: Corpus, profile: Profile, requested: _NoiseRequest, spoken: Utterance | None) -> Samples:
    rate_hz, samples, seed = requested.rate_hz, requested.samples, requested.seed
    match profile.noise:
        case "white":
            return noises.white(samples, seed)
        case "pink":
            return noises.pink(samples, rate_hz, seed)
        case "brown":
            return noises.brown(samples, rate_hz, seed)
        case "hum" | "hum-60":
            # The hum has the same phase for every utterance and the background. At 50 Hz a frame is one period, so
            # the hum continues without a break between them.
            mains = derive_seed("voiceprobe", "mains", corpus.name)
            return noises.hum(samples, rate_hz, mains, 60 if profile.noise == "hum-60" else 50)
        case "music":
            return noises.music(samples, rate_hz, seed)
        case str(name) if name.startswith(FILE_PREFIX):
            return noises.from_files(read_sounds(name, rate_hz), samples, seed)
        case _:
            return noises.babble(_talkers(corpus, requested, spoken), samples, seed)


def _talkers(corpus: Corpus, requested: _NoiseRequest, spoken: Utterance | None) -> list[Samples]:
    """Up to eight streams of other utterances, in an order drawn from the seed, without the silence around them."""
    others = [other for other in babble_pool(corpus) if spoken is None or other.id != spoken.id]
    others.sort(key=lambda other: derive_seed(requested.seed, other.id))
    talkers: list[Samples] = []
    for first in range(min(_TALKERS, len(others))):
        pieces: list[Samples] = []
        for other in others[first::_TALKERS]:
            if sum(map(len, pieces)) >= requested.samples:
                break
            speech = _speech(corpus, other, requested.rate_hz)
            pieces.append(speech.samples[speech.start : speech.end + 1])
        talkers.append(np.concatenate(pieces))
    return talkers


@lru_cache(maxsize=4)
def babble_pool(corpus: Corpus) -> tuple[Utterance, ...]:
    """The utterances that babble is made from: all of a small corpus, otherwise a subset determined by their ids."""
    if len(corpus.utterances) <= _POOL:
        return corpus.utterances
    return tuple(
        sorted(corpus.utterances, key=lambda utterance: derive_seed("babble", corpus.name, utterance.id))[:_POOL]
    )


def _response(corpus: Corpus, profile: Profile, seed: int, random_stream: str) -> Path | None:
    """The user's impulse response that is drawn for a rendering; None if the room is not a file."""
    responses = profile.responses
    if len(responses) < 2:
        return responses[0] if responses else None
    return responses[derive_seed("voiceprobe", seed, corpus.name, "room", random_stream) % len(responses)]


@lru_cache(maxsize=4)  # the variants of an utterance are rendered one after another
def _at_microphone(
    corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int, response: Path | None
) -> _Speech:
    """The utterance at the microphone: after speed, pitch, room, and then the level."""
    plain = profile.speed == 1.0 and profile.pitch == 1.0
    speech = (
        _speech(corpus, utterance, rate_hz) if plain else _with_speed_and_pitch(corpus, utterance, profile, rate_hz)
    )
    if profile.room is None and profile.level_dbov == SPEECH_LEVEL_DBOV:
        return speech
    room = profile.room if response is None else f"{FILE_PREFIX}{response}"
    samples = speech.samples if room is None else reverberate(speech.samples, room, rate_hz)
    return _leveled(_Clip(samples, speech.start, speech.end, speech.end_is_exact), rate_hz, profile.level_dbov)


@lru_cache(maxsize=64)
def _speech(corpus: Corpus, utterance: Utterance, rate_hz: int) -> _Speech:
    samples = corpus.read(utterance)
    clip = _resampled(samples, _bounds(corpus, utterance, samples), utterance.sample_rate_hz, rate_hz)
    return _leveled(_faded_out(clip, rate_hz), rate_hz, SPEECH_LEVEL_DBOV)


def _with_speed_and_pitch(corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int) -> _Speech:
    """Change speed and pitch. The silence around the speech is affected only by the pitch."""
    samples = corpus.read(utterance)
    bounds = _bounds(corpus, utterance, samples)
    # Playing speech at another rate changes pitch and speed together; stretching then sets the requested length.
    clip = _resampled(samples, bounds, utterance.sample_rate_hz * profile.pitch, rate_hz)
    length = max(2, round(bounds.samples / utterance.sample_rate_hz * rate_hz / profile.speed))
    stretched = stretch(clip.samples[clip.start : clip.end + 1], length, rate_hz)
    whole = np.concatenate((clip.samples[: clip.start], stretched, clip.samples[clip.end + 1 :]))
    clip = _Clip(whole, clip.start, clip.start + length - 1, clip.end_is_exact)
    return _leveled(_faded_out(clip, rate_hz), rate_hz, SPEECH_LEVEL_DBOV)


def _bounds(corpus: Corpus, utterance: Utterance, samples: Samples) -> _Bounds:
    """The bounds of an utterance's speech according to the edges of its corpus."""
    exact_end = find_exact_end(samples, utterance) if corpus.edges == "exact" else None
    end = utterance.speech_end_sample if exact_end is None else exact_end
    return _Bounds(utterance.speech_start_sample, end, exact_end is not None)


def _resampled(samples: Samples, bounds: _Bounds, from_hz: float, rate_hz: int) -> _Clip:
    """Resample a clip from the rate `from_hz`, which need not be its own, and convert its bounds."""
    # At the highest quality soxr's filters have linear phase, so the timing is kept; in double precision.
    resampled = np.asarray(soxr.resample(samples, from_hz, rate_hz, quality="VHQ"), dtype=np.float64)
    start, end = (
        min(_convert_position(position, from_hz, rate_hz), len(resampled) - 1)
        for position in (bounds.start, bounds.end)
    )
    return _Clip(resampled, start, end, bounds.end_is_exact)


def _faded_out(clip: _Clip, rate_hz: int) -> _Clip:
    """Fade a clip with an exact end out from there to digital silence, linearly: the same on every machine."""
    if not clip.end_is_exact:
        return clip
    after = np.zeros(len(clip.samples) - clip.end - 1)
    fade = min(fade_samples(rate_hz), len(after))
    after[:fade] = clip.samples[clip.end + 1 :][:fade] * (np.arange(fade - 1, -1, -1) / max(1, fade))
    return _Clip(np.concatenate((clip.samples[: clip.end + 1], after)), clip.start, clip.end, True)


def _leveled(clip: _Clip, rate_hz: int, target_dbov: float) -> _Speech:
    active = active_mask(clip.samples, rate_hz, clip.start, clip.end)
    leveled = clip.samples * _gain(level_dbov(clip.samples[active]), target_dbov)
    leveled.flags.writeable = False
    return _Speech(leveled, clip.start, clip.end, clip.end_is_exact, active)


def _convert_position(position: int, from_hz: float, to_hz: int) -> int:
    """The sample nearest to the same time at another rate."""
    if isinstance(from_hz, int):
        return (2 * position * to_hz + from_hz) // (2 * from_hz)
    return round(position * to_hz / from_hz)


def _gain(level: float | None, wanted: float) -> float:
    if level is None:
        raise CorpusError("The noise is silent; use another seed or noise.")
    return rounded_gain(wanted - level)


def _seed(corpus: Corpus, profile: Profile, seed: int, what: str) -> int:
    # The SNR is not part of the seed: with the same noise at every SNR, results can be compared by utterance.
    kind = FILE_PREFIX if profile.noise and profile.noise.startswith(FILE_PREFIX) else profile.noise
    return derive_seed("voiceprobe", seed, corpus.name, kind, what)


def _check_rate(rate_hz: int) -> None:
    if rate_hz not in RATES_HZ:
        raise CorpusError(f"A rate of {rate_hz} Hz cannot be rendered; use {RATES_HZ[0]} to {RATES_HZ[-1]} Hz.")
