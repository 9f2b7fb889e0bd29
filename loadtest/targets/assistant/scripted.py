"""The scripted engines: a recognizer of known clips and a hum for a voice, with declared timing.

The recognizer identifies which one of a set of known clips it receives, and recognizes nothing else. Speech is reduced
to the energy in eight bands every 10 ms (cube root, like the ear's compression) and compared with the same features of
each known clip by normalized correlation, at every alignment within the detected speech. This identifies the right clip
at 10 dB SNR; speech that does not resemble any clip closely enough gives an empty transcript.

The voice has the rhythm of speech and is audible from its first sample, but not intelligible. Its length follows from
the text and its onset is sharp, so measured delays can be compared with the injected ones. How long both take is not
decided here but drawn from configured distributions; see `reply`.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.annotation.exact_end import find_exact_end
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import BUNDLED, open_corpus
from loadtest.audio.pcm import from_float
from loadtest.errors import UsageError
from loadtest.targets.assistant.interfaces import AsrEngine, AsrStream, Pcm, TtsEngine

_HOP_MS: Final = 10
_WINDOW_MS: Final = 20
_BAND_EDGES_HZ: Final = (120, 300, 500, 750, 1050, 1450, 1950, 2600, 3400)
_BANDS: Final = len(_BAND_EDGES_HZ) - 1
_ACCEPT: Final = 0.62
_ACCEPT_PARTIAL: Final = 0.7
_MIN_FRAMES: Final = 12
_PARTIAL_FRAMES: Final = 35
_MAX_FRAMES: Final = 1024  # only the first ten seconds of speech count
_MAX_KNOWN_FRAMES: Final = 900  # leaves room to try alignments
_PREFIX_FRAMES: Final = 120
_FFT: Final = 2 * _MAX_FRAMES
_SLACK_FRAMES: Final = 45  # detected speech may be this much longer than the clip, because of padding and noise

_NS_PER_CHARACTER: Final = 62_000_000  # about sixteen characters per second, a typical speaking rate
_MIN_NS: Final = 300_000_000
_LOOP_S: Final = 4
_SYLLABLES_HZ: Final = 4
_PITCH_HZ: Final = 140
_LEVEL: Final = 0.25

Features = NDArray[np.float32]  # (frames, bands)


@dataclass(frozen=True, slots=True)
class KnownClip:
    """One clip. `pcm` is int16 mono at `rate_hz`; speech is [speech_start_sample, speech_end_sample]."""

    text: str
    pcm: Pcm
    rate_hz: int
    speech_start_sample: int
    speech_end_sample: int

    @property
    def speech(self) -> Pcm:
        """The samples of speech."""
        return self.pcm[self.speech_start_sample : self.speech_end_sample + 1]


def known_clips(corpora: str | None) -> list[KnownClip]:
    """Load the clips of corpora (names or folders, separated by commas) for the recognizer.

    None loads the bundled corpus and the callers' default corpus. Raises UsageError if one cannot be opened.
    """
    clips: list[KnownClip] = []
    try:
        if corpora is None:
            chosen = list({corpus.path: corpus for corpus in (open_corpus(BUNDLED), open_corpus())}.values())
        else:
            chosen = [open_corpus(name.strip()) for name in corpora.split(",")]
        for corpus in chosen:
            for utterance in corpus.utterances:
                if utterance.text is None:
                    continue
                samples = corpus.read(utterance)
                exact_end = find_exact_end(samples, utterance) if corpus.edges == "exact" else None
                end = utterance.speech_end_sample if exact_end is None else exact_end
                pcm, start = from_float(samples), utterance.speech_start_sample
                clips.append(KnownClip(utterance.text, pcm, utterance.sample_rate_hz, start, end))
    except CorpusError as error:
        raise UsageError(f"The scripted recognizer cannot load its corpus: {error}") from error
    return clips


def features(pcm: Pcm, rate_hz: int) -> Features:
    """Return the band energies of speech: (frames, 8), every 10 ms, cube-root compressed."""
    hop, window = rate_hz * _HOP_MS // 1000, rate_hz * _WINDOW_MS // 1000
    frames = (len(pcm) - window) // hop + 1
    if frames <= 0:
        return np.zeros((0, _BANDS), np.float32)
    view = np.lib.stride_tricks.sliding_window_view(pcm.astype(np.float32) / 32768.0, window)[::hop][:frames]
    power = np.square(np.abs(np.fft.rfft(view * np.hanning(window).astype(np.float32), axis=1)))
    edges = [round(hz * window / rate_hz) for hz in _BAND_EDGES_HZ]
    bands = [power[:, low : max(high, low + 1)].sum(axis=1) for low, high in itertools.pairwise(edges)]
    return np.cbrt(np.stack(bands, axis=1)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Known:
    clip: KnownClip
    features: Features
    spectrum: NDArray[np.complex64]  # (bands, bins): conjugate spectrum of the mean-free features
    norm: float


class ClipIndex:
    """The known clips' features. Raises ValueError if there are no clips."""

    def __init__(self, clips: Sequence[KnownClip]) -> None:
        if not clips:
            raise ValueError("a closed-set recognizer needs at least one known clip")
        self._known = [_known(clip) for clip in clips]

    def best(self, speech: Features) -> tuple[KnownClip | None, float]:
        """Return the clip that the detected speech resembles most, and the similarity (-1 to 1)."""
        speech = speech[:_MAX_FRAMES]
        if len(speech) < _MIN_FRAMES:
            return None, -1.0
        spectrum = np.fft.rfft(speech.T, _FFT).astype(np.complex64)
        sums = _running(speech)
        squares = _running(np.square(speech).sum(axis=1, keepdims=True))[:, 0]
        best: tuple[KnownClip | None, float] = (None, -1.0)
        for known in self._known:
            length = len(known.features)
            # Speech that a clip does not cover lowers its score: a short clip may occur within a long one.
            spare = 0.5 * max(0, len(speech) - length - _SLACK_FRAMES) / len(speech)
            if not _MIN_FRAMES <= length <= len(speech) + _SLACK_FRAMES // 2 or 1 - spare <= best[1]:
                continue
            score = _best_alignment(spectrum, sums, squares, known, len(speech)) - spare
            if score > best[1]:
                best = (known.clip, score)
        return best

    def best_prefix(self, speech: Features) -> tuple[KnownClip | None, float, float]:
        """Return the clip that seems to be in progress, the similarity, and the share received so far (0 to 1)."""
        best: tuple[KnownClip | None, float, float] = (None, -1.0, 0.0)
        for known in self._known:
            share = min(1.0, max(_MIN_FRAMES, len(speech) - _SLACK_FRAMES // 2) / len(known.features))
            length = min(len(known.features), len(speech) - _SLACK_FRAMES // 2, _PREFIX_FRAMES)
            if length < _MIN_FRAMES:
                continue
            score = _best_start(speech[: length + _SLACK_FRAMES], known.features[:length])
            if score > best[1]:
                best = (known.clip, score, share)
        return best


def _known(clip: KnownClip) -> _Known:
    known = features(clip.speech, clip.rate_hz)[:_MAX_KNOWN_FRAMES]
    template = known - known.mean(axis=0, keepdims=True) if len(known) else known
    spectrum = np.conj(np.fft.rfft(template.T, _FFT)).astype(np.complex64)
    return _Known(clip, known, spectrum, float(np.linalg.norm(template)))


def _running(values: Features) -> Features:
    return np.concatenate((np.zeros((1, values.shape[1]), values.dtype), np.cumsum(values, axis=0)))


def _best_alignment(
    speech: NDArray[np.complex64], sums: Features, squares: NDArray[np.float32], known: _Known, frames: int
) -> float:
    """Return the highest normalized correlation of the known clip at any position in the `frames` frames of speech."""
    length = min(len(known.features), frames)
    offsets = frames - length + 1
    products = np.fft.irfft((speech * known.spectrum).sum(axis=0), _FFT)[:offsets]
    inside = sums[length : length + offsets] - sums[:offsets]
    energies = squares[length : length + offsets] - squares[:offsets] - np.square(inside).sum(axis=1) / length
    scale = np.sqrt(np.maximum(energies, 1e-9)) * max(known.norm, 1e-6)
    return float((products / scale).max())


def recognize(index: ClipIndex, pcm: Pcm, rate_hz: int) -> str:
    """Return the text of the known clip in `pcm` (int16 mono); empty if no clip is similar enough."""
    clip, score = index.best(features(pcm, rate_hz))
    return "" if clip is None or score < _ACCEPT else clip.text


def recognize_prefix(index: ClipIndex, pcm: Pcm, rate_hz: int) -> str:
    """Return the text so far of the clip that seems to be in progress; empty if none fits."""
    speech = features(pcm, rate_hz)
    if len(speech) < _PARTIAL_FRAMES:
        return ""
    clip, score, share = index.best_prefix(speech)
    if clip is None or score < _ACCEPT_PARTIAL:
        return ""
    words = clip.text.split()
    return " ".join(words[: max(1, int(len(words) * share))])


def _best_start(speech: Features, known: Features) -> float:
    """Return the highest normalized correlation of the beginning of a clip with the beginning of the speech."""
    length = len(known)
    windows = np.lib.stride_tricks.sliding_window_view(speech, length, axis=0)[::2]  # (offsets, bands, frames)
    template = known.T - known.T.mean(axis=1, keepdims=True)
    products = np.tensordot(windows, template, axes=((1, 2), (0, 1)))
    energies = np.square(windows).sum(axis=(1, 2)) - np.square(windows.sum(axis=2)).sum(axis=1) / length
    scale = np.sqrt(np.maximum(energies, 1e-9)) * max(float(np.linalg.norm(template)), 1e-6)
    return float((products / scale).max())


class _ScriptedStream(AsrStream):
    def __init__(self, index: ClipIndex, pool: ThreadPoolExecutor, rate_hz: int) -> None:
        self._index = index
        self._pool = pool
        self._rate_hz = rate_hz
        self._chunks: list[Pcm] = []

    def feed(self, pcm: Pcm) -> None:
        self._chunks.append(pcm)

    async def partial(self, silent_samples: int) -> str:
        del silent_samples
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, recognize_prefix, self._index, self._speech(), self._rate_hz)

    async def finish(self, silent_samples: int) -> str:
        speech = self._speech()
        speech = speech[: len(speech) - max(0, silent_samples - self._rate_hz // 10)]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, recognize, self._index, speech, self._rate_hz)

    def _speech(self) -> Pcm:
        return np.concatenate(self._chunks) if self._chunks else np.zeros(0, np.int16)


class ScriptedAsr(AsrEngine):
    """The recognizer. Comparisons run in one thread; numpy releases the interpreter lock for most of the work."""

    def __init__(self, clips: Sequence[KnownClip]) -> None:
        self._index = ClipIndex(clips)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="asr-scripted")

    def open(self, rate_hz: int) -> AsrStream:
        """Begin an utterance."""
        return _ScriptedStream(self._index, self._pool, rate_hz)

    async def stop(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def sentence_ns(sentence: str) -> int:
    """Return the duration of a spoken sentence."""
    return max(_MIN_NS, len(sentence) * _NS_PER_CHARACTER)


@lru_cache(maxsize=8)
def _loop(rate_hz: int) -> Pcm:
    """Create four seconds that repeat seamlessly: every component has a whole number of periods in them."""
    at = np.arange(_LOOP_S * rate_hz) / rate_hz
    # Cosines begin at their peak: the first sample is as loud as any.
    voice = sum(np.cos(2 * np.pi * _PITCH_HZ * k * at) / k for k in range(1, 7))
    rhythm = 0.55 + 0.45 * np.cos(2 * np.pi * _SYLLABLES_HZ * at)
    signal = np.asarray(voice) * rhythm
    return np.round(signal / np.abs(signal).max() * _LEVEL * 32767).astype(np.int16)


def hum(samples: int, rate_hz: int) -> Pcm:
    """Return the first `samples` samples of the hum (int16 mono)."""
    loop = _loop(rate_hz)
    return np.resize(loop, samples)


class ScriptedTts(TtsEngine):
    """The hum. The pipeline's configured delays determine when it begins."""

    async def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[Pcm]:
        """Yield the whole sentence in one piece."""
        yield hum(sentence_ns(sentence) * rate_hz // 1_000_000_000, rate_hz)
