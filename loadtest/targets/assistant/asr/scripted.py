"""A closed-set recognizer: it identifies which one of a set of known clips it receives, and recognizes nothing else.

Speech is reduced to the energy in eight bands every 10 ms (cube root, like the ear's compression) and compared with the
same features of each known clip by normalized correlation, at every alignment within the detected speech. This
identifies the right clip at 10 dB SNR; speech that does not resemble any clip closely enough gives an empty transcript.
The duration of recognition is not decided here but drawn from a configured distribution; see `turn.py`.
"""

import asyncio
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.targets.assistant.asr.known_clips import KnownClip

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

Features = NDArray[np.float32]  # (frames, bands)


def features(pcm: NDArray[np.int16], rate_hz: int) -> Features:
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


def recognize(index: ClipIndex, pcm: NDArray[np.int16], rate_hz: int) -> str:
    """Return the text of the known clip in `pcm` (int16 mono); empty if no clip is similar enough."""
    clip, score = index.best(features(pcm, rate_hz))
    return "" if clip is None or score < _ACCEPT else clip.text


def recognize_prefix(index: ClipIndex, pcm: NDArray[np.int16], rate_hz: int) -> str:
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


class _ScriptedStream:
    def __init__(self, index: ClipIndex, pool: ThreadPoolExecutor, rate_hz: int) -> None:
        self._index = index
        self._pool = pool
        self._rate_hz = rate_hz
        self._pieces: list[NDArray[np.int16]] = []

    def feed(self, pcm: NDArray[np.int16]) -> None:
        self._pieces.append(pcm)

    async def partial(self) -> str:
        speech = self._speech()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, recognize_prefix, self._index, speech, self._rate_hz)

    async def finish(self, silent_samples: int) -> str:
        speech = self._speech()
        speech = speech[: len(speech) - max(0, silent_samples - self._rate_hz // 10)]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, recognize, self._index, speech, self._rate_hz)

    def abandon(self) -> None:
        self._pieces.clear()

    def _speech(self) -> NDArray[np.int16]:
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, np.int16)


class ScriptedAsr:
    """The recognizer. Comparisons run in one thread; numpy releases the interpreter lock for most of the work."""

    def __init__(self, clips: Sequence[KnownClip]) -> None:
        self._index = ClipIndex(clips)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="asr-scripted")

    def open(self, rate_hz: int) -> _ScriptedStream:
        """See `AsrEngine`."""
        return _ScriptedStream(self._index, self._pool, rate_hz)

    async def start(self) -> None:
        """See `AsrEngine`."""

    async def stop(self) -> None:
        """See `AsrEngine`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
