"""From an utterance and a profile to what leaves the caller's mouth, sample by sample.

Every utterance is brought to the same active speech level, so that one SNR means one noise level, in the mix and on
the line between utterances. The same corpus, profile and seed give the same bytes: randomness is made of integers,
gains are rounded to six digits, and what is added up is settled on a grid, so that the order in which a processor adds
cannot show. An utterance has as many variants as are asked for: the noise, the packets that go missing and the impulse
response of a folder are drawn anew for each.

SNR and level are measured where they are asked for: on the 16-bit samples that enter the channel. Codecs and lost
packets change the wave itself, so that a ratio of powers behind them would no longer tell speech from noise.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

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
_POOL = 48  # babble is made of that many utterances of a corpus at most, so that they can be kept at hand
_MAX_BACKGROUND_S = 600.0
_SNR_TOLERANCE_DB = 0.1
_FORMATS = {".wav": "WAV", ".flac": "FLAC"}


@dataclass(frozen=True, slots=True)
class Obtained:
    """What was obtained of what the profile asks for; None for what it does not ask for."""

    level_dbov: float  # active speech level, entering the channel
    snr_db: float | None = None  # added noise only, over the active speech, entering the channel
    loss_ratio: float | None = None  # packets that never came, of those that carry speech
    late_ratio: float | None = None  # packets too late for the receiver's buffer, of the same
    clipped_ratio: float | None = None  # samples cut off at the end of the chain, over the active speech
    room_response: str | None = None  # the file of the impulse response, where the room is the user's own


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """What the caller says: PCM of shape (samples,), and where the speech is in it (both bounds included)."""

    pcm: Pcm16
    rate_hz: int
    speech_start_sample: int
    speech_end_sample: int
    profile: Profile
    obtained: Obtained
    utterance: Utterance
    variant: int = 0

    def write(self, file: str | Path) -> Path:
        """Write the audio as a 16-bit WAV, or as FLAC where the name ends so. Raises CorpusError."""
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
        """How far the first speech sample may be from where the speech begins; None where the clip does not say."""
        return self._uncertainty_ns(self.utterance.speech_start_uncertainty_ms)

    @property
    def speech_end_uncertainty_ns(self) -> int | None:
        """How far the last speech sample may be from where the speech ends; None where the clip does not say."""
        return self._uncertainty_ns(self.utterance.speech_end_uncertainty_ms)

    def _uncertainty_ns(self, half_width_ms: float | None) -> int | None:
        # Speed stretches what lies between the bounds, pitch what lies outside; a bound may be wrong in both ways.
        slowest = min(self.profile.speed, self.profile.pitch)
        return None if half_width_ms is None else math.ceil(half_width_ms * 1_000_000 / slowest)

    @property
    def snr_asked_db(self) -> float | None:
        """The SNR that the profile asks for."""
        return self.profile.snr_db

    @property
    def snr_obtained_db(self) -> float | None:
        """The SNR that was obtained; None without noise."""
        return self.obtained.snr_db


@dataclass(frozen=True, slots=True, eq=False)
class _Speech:
    """An utterance at the rate and level of the mix, with its bounds and its active part."""

    samples: Samples
    start: int
    end: int
    active: NDArray[np.bool_]


def render(
    corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int, seed: int = 1, *, variant: int = 0
) -> Rendered:
    """Render one utterance of a corpus at a rate. `variant` numbers the drawings: another one, another drawing.

    It is resampled once; the bounds are carried over by their position in time. Raises CorpusError for a rate that
    cannot be rendered, a clip that changed since the corpus was opened, and babble without other utterances.
    """
    _check_rate(rate_hz)
    drawn_for = utterance.id if variant == 0 else f"{utterance.id}#{variant}"
    response = _response(corpus, profile, seed, drawn_for)
    speech = _spoken(corpus, utterance, profile, rate_hz, response)
    snr = None
    if profile.snr_db is None:
        mix = pcm16(speech.samples)
    else:
        length = len(speech.samples)
        asked = _NoiseAsked(rate_hz, length, _seed(corpus, profile, seed, drawn_for))
        noise = _noise(corpus, profile, asked, utterance)
        mix, snr = _mix(speech, noise, profile.snr_db)
    level = level_dbov(pcm16(speech.samples)[speech.active] / FULL_SCALE)
    if level is None:
        raise CorpusError(f"The utterance {utterance.id} is silent at {profile.level_dbov:g} dBov; ask for more.")
    packet_seed = derive_seed("voiceprobe", seed, corpus.name, "packets", drawn_for)
    lost, late, missing = _missing(profile, packets_of(len(mix), rate_hz), packet_seed)
    carried = carry(mix, rate_hz, profile.codecs, missing)
    pcm, cut = _damaged(carried, profile)
    speaking = slice(packets_of(speech.start + 1, rate_hz) - 1, packets_of(speech.end + 1, rate_hz))
    obtained = Obtained(
        level,
        snr,
        None if lost is None else float(np.mean(lost[speaking])),
        None if late is None else float(np.mean(late[speaking])),
        None if cut is None else float(np.mean(cut[speech.active])),
        None if response is None else response.name,
    )
    return Rendered(pcm, rate_hz, speech.start, speech.end, profile, obtained, utterance, variant)


def background(corpus: Corpus, profile: Profile, rate_hz: int, seconds: float, seed: int) -> Pcm16:
    """What the caller's line carries while nobody speaks, shape (samples,).

    It has the profile's noise at the level it has in the mix, or digital silence, after the same channel. Raises
    CorpusError for a rate or a duration that cannot be rendered, and for babble without other utterances.
    """
    _check_rate(rate_hz)
    if not 0.0 < seconds <= _MAX_BACKGROUND_S:
        raise CorpusError(f"A background of {seconds:g} s cannot be rendered; ask for up to {_MAX_BACKGROUND_S:g} s.")
    samples = round(seconds * rate_hz)
    mix = np.zeros(samples, dtype=np.int16)
    if profile.snr_db is not None:
        asked = _NoiseAsked(rate_hz, samples, _seed(corpus, profile, seed, "background"))
        noise = _noise(corpus, profile, asked, None)
        mix = pcm16(noise * _gain(level_dbov(noise), profile.level_dbov - profile.snr_db))
    packet_seed = derive_seed("voiceprobe", seed, corpus.name, "packets", "background")
    _, _, missing = _missing(profile, packets_of(samples, rate_hz), packet_seed)
    return _damaged(carry(mix, rate_hz, profile.codecs, missing), profile)[0]


def forget() -> None:
    """Let go of the utterances kept at hand: they are of no use once everything is rendered."""
    _speech.cache_clear()
    _spoken.cache_clear()


def _missing(profile: Profile, packets: int, seed: int) -> tuple[Flags | None, Flags | None, Flags | None]:
    """Which packets are lost, which are late, and which are either; None where the profile has none of it."""
    lost = None if profile.loss is None else lost_packets(profile.loss, packets, seed)
    late = None if profile.jitter is None else late_packets(profile.jitter, packets, seed)
    if lost is None or late is None:
        return lost, late, late if lost is None else lost
    return lost, late & ~lost, lost | late


def _damaged(pcm: Pcm16, profile: Profile) -> tuple[Pcm16, NDArray[np.bool_] | None]:
    """Gain, clipping and DC; and which samples were cut off, None where the profile asks for nothing of it."""
    if profile.gain_db == 0.0 and profile.clip_dbov is None and profile.dc == 0.0:
        return pcm, None
    louder = pcm / FULL_SCALE * rounded_gain(profile.gain_db)
    limit = 1.0 if profile.clip_dbov is None else rounded_gain(profile.clip_dbov)
    clipped = np.clip(louder, -limit, limit)
    moved = clipped + profile.dc
    return pcm16(moved), (clipped != louder) | (moved > 32_767 / FULL_SCALE) | (moved < -1.0)


def _mix(speech: _Speech, noise: Samples, asked_db: float) -> tuple[Pcm16, float]:
    """Add noise so that the SNR holds over the active part of the speech."""
    speech_dbov = level_dbov(speech.samples[speech.active])
    noise_dbov = level_dbov(noise[speech.active])
    if speech_dbov is None or noise_dbov is None:
        raise CorpusError("The noise or the speech is silent over the active part; use another seed or noise.")
    pcm = pcm16(speech.samples + noise * _gain(noise_dbov, speech_dbov - asked_db))
    obtained_db = snr_db(speech.samples, pcm / FULL_SCALE, speech.active)
    if obtained_db is None or abs(obtained_db - asked_db) > _SNR_TOLERANCE_DB:
        came = "without noise" if obtained_db is None else f"at {obtained_db:.2f} dB"
        raise CorpusError(
            f"The mix came out {came} instead of {asked_db:g} dB because its peaks do not fit into 16 bits; "
            "use a higher SNR, a lower level or a noise with lower peaks."
        )
    return pcm, obtained_db


@dataclass(frozen=True, slots=True)
class _NoiseAsked:
    """How much noise is wanted, at which rate, and what it is drawn from."""

    rate_hz: int
    samples: int
    seed: int


def _noise(corpus: Corpus, profile: Profile, asked: _NoiseAsked, spoken: Utterance | None) -> Samples:
    rate_hz, samples, seed = asked.rate_hz, asked.samples, asked.seed
    match profile.noise:
        case "white":
            return noises.white(samples, seed)
        case "pink":
            return noises.pink(samples, rate_hz, seed)
        case "brown":
            return noises.brown(samples, rate_hz, seed)
        case "hum" | "hum-60":
            # The mains do not begin anew with an utterance: at 50 Hz a frame holds one period, so that the hum under
            # the speech goes on in that of the line.
            mains = derive_seed("voiceprobe", "mains", corpus.name)
            return noises.hum(samples, rate_hz, mains, 60 if profile.noise == "hum-60" else 50)
        case "music":
            return noises.music(samples, rate_hz, seed)
        case str(name) if name.startswith(FILE_PREFIX):
            return noises.of_files(read_sounds(name, rate_hz), samples, seed)
        case _:
            return noises.babble(_talkers(corpus, asked, spoken), samples, seed)


def _talkers(corpus: Corpus, asked: _NoiseAsked, spoken: Utterance | None) -> list[Samples]:
    """Up to eight streams of speech from other utterances, in an order drawn from the seed, pauses at the ends cut."""
    others = [other for other in babble_pool(corpus) if spoken is None or other.id != spoken.id]
    others.sort(key=lambda other: derive_seed(asked.seed, other.id))
    talkers: list[Samples] = []
    for first in range(min(_TALKERS, len(others))):
        pieces: list[Samples] = []
        for other in others[first::_TALKERS]:
            if sum(map(len, pieces)) >= asked.samples:
                break
            speech = _speech(corpus, other, asked.rate_hz)
            pieces.append(speech.samples[speech.start : speech.end + 1])
        talkers.append(np.concatenate(pieces))
    return talkers


@lru_cache(maxsize=4)
def babble_pool(corpus: Corpus) -> tuple[Utterance, ...]:
    """The utterances that babble is made of: all of a small corpus, otherwise some that their names decide."""
    if len(corpus.utterances) <= _POOL:
        return corpus.utterances
    return tuple(sorted(corpus.utterances, key=lambda each: derive_seed("babble", corpus.name, each.id))[:_POOL])


def _response(corpus: Corpus, profile: Profile, seed: int, drawn_for: str) -> Path | None:
    """The impulse response of the user's that is drawn for a rendering; None where there is none."""
    responses = profile.responses
    if len(responses) < 2:
        return responses[0] if responses else None
    return responses[derive_seed("voiceprobe", seed, corpus.name, "room", drawn_for) % len(responses)]


@lru_cache(maxsize=4)  # the variants of an utterance are rendered one after the other
def _spoken(corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int, response: Path | None) -> _Speech:
    """The utterance as the microphone hears it: speed, pitch, room, and then the level."""
    plain = profile.speed == 1.0 and profile.pitch == 1.0
    speech = _speech(corpus, utterance, rate_hz) if plain else _changed(corpus, utterance, profile, rate_hz)
    if profile.room is None and profile.level_dbov == SPEECH_LEVEL_DBOV:
        return speech
    room = profile.room if response is None else f"{FILE_PREFIX}{response}"
    samples = speech.samples if room is None else reverberate(speech.samples, room, rate_hz)
    return _levelled(samples, speech.start, speech.end, rate_hz, profile.level_dbov)


@lru_cache(maxsize=64)
def _speech(corpus: Corpus, utterance: Utterance, rate_hz: int) -> _Speech:
    samples, start, end = _resampled(corpus, utterance, rate_hz, utterance.sample_rate_hz)
    return _levelled(samples, start, end, rate_hz, SPEECH_LEVEL_DBOV)


def _changed(corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int) -> _Speech:
    """Spoken faster or slower, higher or lower. The silence around the speech keeps its length but for the pitch's."""
    # Played at another rate, speech changes pitch and speed together; the stretch then gives it the length asked for.
    samples, start, end = _resampled(corpus, utterance, rate_hz, utterance.sample_rate_hz * profile.pitch)
    length = max(2, round(utterance.speech_s * rate_hz / profile.speed))
    said = stretch(samples[start : end + 1], length, rate_hz)
    samples = np.concatenate((samples[:start], said, samples[end + 1 :]))
    return _levelled(samples, start, start + length - 1, rate_hz, SPEECH_LEVEL_DBOV)


def _resampled(corpus: Corpus, utterance: Utterance, rate_hz: int, from_hz: float) -> tuple[Samples, int, int]:
    """A clip, taken to be of a rate, at another one; with its bounds."""
    clip = corpus.read(utterance)
    # In double precision and at the highest quality, soxr keeps the timing: its filters have linear phase.
    samples = np.asarray(soxr.resample(clip, from_hz, rate_hz, quality="VHQ"), dtype=np.float64)
    start, end = (
        min(_carried(position, from_hz, rate_hz), len(samples) - 1)
        for position in (utterance.speech_start_sample, utterance.speech_end_sample)
    )
    return samples, start, end


def _levelled(samples: Samples, start: int, end: int, rate_hz: int, wanted_dbov: float) -> _Speech:
    active = active_mask(samples, rate_hz, start, end)
    levelled = samples * _gain(level_dbov(samples[active]), wanted_dbov)
    levelled.flags.writeable = False
    return _Speech(levelled, start, end, active)


def _carried(position: int, from_hz: float, to_hz: int) -> int:
    """The sample nearest to the same moment at another rate."""
    if isinstance(from_hz, int):
        return (2 * position * to_hz + from_hz) // (2 * from_hz)
    return round(position * to_hz / from_hz)


def _gain(level: float | None, wanted: float) -> float:
    if level is None:
        raise CorpusError("Nothing but silence came out of the noise; use another seed or noise.")
    return rounded_gain(wanted - level)


def _seed(corpus: Corpus, profile: Profile, seed: int, what: str) -> int:
    # The SNR is left out: the same noise at every level lets levels be compared utterance by utterance.
    kind = FILE_PREFIX if profile.noise and profile.noise.startswith(FILE_PREFIX) else profile.noise
    return derive_seed("voiceprobe", seed, corpus.name, kind, what)


def _check_rate(rate_hz: int) -> None:
    if rate_hz not in RATES_HZ:
        raise CorpusError(f"A rate of {rate_hz} Hz cannot be rendered; use {RATES_HZ[0]} to {RATES_HZ[-1]} Hz.")
