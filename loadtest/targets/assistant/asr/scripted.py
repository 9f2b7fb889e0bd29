"""A closed-set recognizer: it knows a set of clips and says which one it hears. It understands nothing else.

Speech is reduced to the energy in eight bands every 10 ms (cube root, as the ear compresses) and compared with the
same picture of each known clip, at every alignment within the detected speech, by normalized correlation. This names
the right clip through 10 dB of noise; speech that resembles no clip well enough gives an empty transcript. How long
recognition *takes* is not decided here but drawn from a declared distribution: see `turn.py`.
"""

import asyncio
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.targets.assistant.asr.base import Transcript
from loadtest.targets.assistant.asr.known_clips import KnownClip

_HOP_MS: Final = 10
_WINDOW_MS: Final = 20
_BAND_EDGES_HZ: Final = (120, 300, 500, 750, 1050, 1450, 1950, 2600, 3400)
_BANDS: Final = len(_BAND_EDGES_HZ) - 1
_ACCEPT: Final = 0.62
_ACCEPT_PARTIAL: Final = 0.7
_LEAST_FRAMES: Final = 12
_PARTIAL_FRAMES: Final = 35
_MOST_FRAMES: Final = 1024  # the first ten seconds heard decide
_MOST_KNOWN_FRAMES: Final = 900  # leaving room to slide
_PREFIX_FRAMES: Final = 120
_FFT: Final = 2 * _MOST_FRAMES
_SLACK_FRAMES: Final = 45  # detected speech may be this much longer than the clip: padding, and noise taken for voice

Picture = NDArray[np.float32]  # (frames, bands)


def picture(pcm: NDArray[np.int16], rate_hz: int) -> Picture:
    """The band energies of speech: (frames, 8) every 10 ms, cube-root compressed."""
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
    picture: Picture
    spectrum: NDArray[np.complex64]  # (bands, bins): of the picture with its means taken out, conjugate
    norm: float


class ClipBook:
    """The known clips, as pictures. Raises ValueError when there are none."""

    def __init__(self, clips: Sequence[KnownClip]) -> None:
        if not clips:
            raise ValueError("a closed-set recognizer needs at least one known clip")
        self._known = [_known(clip) for clip in clips]

    def best(self, heard: Picture) -> tuple[KnownClip | None, float]:
        """The clip that the whole of the detected speech resembles most, and how much (-1 to 1)."""
        heard = heard[:_MOST_FRAMES]
        if len(heard) < _LEAST_FRAMES:
            return None, -1.0
        spectrum = np.fft.rfft(heard.T, _FFT).astype(np.complex64)
        sums = _running(heard)
        squares = _running(np.square(heard).sum(axis=1, keepdims=True))[:, 0]
        best: tuple[KnownClip | None, float] = (None, -1.0)
        for known in self._known:
            length = len(known.picture)
            # What a clip leaves unexplained of the speech counts against it: a short clip may hide in a long one.
            spare = 0.5 * max(0, len(heard) - length - _SLACK_FRAMES) / len(heard)
            if not _LEAST_FRAMES <= length <= len(heard) + _SLACK_FRAMES // 2 or 1 - spare <= best[1]:
                continue
            score = _best_alignment(spectrum, sums, squares, known, len(heard)) - spare
            if score > best[1]:
                best = (known.clip, score)
        return best

    def best_prefix(self, heard: Picture) -> tuple[KnownClip | None, float, float]:
        """The clip that seems to be under way, how much so, and the share of it that has been heard (0 to 1)."""
        best: tuple[KnownClip | None, float, float] = (None, -1.0, 0.0)
        for known in self._known:
            share = min(1.0, max(_LEAST_FRAMES, len(heard) - _SLACK_FRAMES // 2) / len(known.picture))
            length = min(len(known.picture), len(heard) - _SLACK_FRAMES // 2, _PREFIX_FRAMES)
            if length < _LEAST_FRAMES:
                continue
            score = _best_start(heard[: length + _SLACK_FRAMES], known.picture[:length])
            if score > best[1]:
                best = (known.clip, score, share)
        return best


def _known(clip: KnownClip) -> _Known:
    shown = picture(clip.speech, clip.rate_hz)[:_MOST_KNOWN_FRAMES]
    template = shown - shown.mean(axis=0, keepdims=True) if len(shown) else shown
    spectrum = np.conj(np.fft.rfft(template.T, _FFT)).astype(np.complex64)
    return _Known(clip, shown, spectrum, float(np.linalg.norm(template)))


def _running(values: Picture) -> Picture:
    return np.concatenate((np.zeros((1, values.shape[1]), values.dtype), np.cumsum(values, axis=0)))


def _best_alignment(
    heard: NDArray[np.complex64], sums: Picture, squares: NDArray[np.float32], known: _Known, frames: int
) -> float:
    """The highest normalized correlation of the known clip laid anywhere on the `frames` frames heard."""
    length = min(len(known.picture), frames)
    offsets = frames - length + 1
    products = np.fft.irfft((heard * known.spectrum).sum(axis=0), _FFT)[:offsets]
    inside = sums[length : length + offsets] - sums[:offsets]
    energies = squares[length : length + offsets] - squares[:offsets] - np.square(inside).sum(axis=1) / length
    scale = np.sqrt(np.maximum(energies, 1e-9)) * max(known.norm, 1e-6)
    return float((products / scale).max())


def recognize(book: ClipBook, pcm: NDArray[np.int16], rate_hz: int) -> Transcript:
    """The words of the known clip in `pcm` (int16 mono), or an empty transcript with the low confidence it earned."""
    clip, score = book.best(picture(pcm, rate_hz))
    if clip is None or score < _ACCEPT:
        return Transcript("", max(0.0, score))
    return Transcript(clip.text, min(1.0, score), clip.clip_id)


def recognize_prefix(book: ClipBook, pcm: NDArray[np.int16], rate_hz: int) -> str:
    """The words heard so far of the clip that seems to be under way; empty while nothing fits."""
    heard = picture(pcm, rate_hz)
    if len(heard) < _PARTIAL_FRAMES:
        return ""
    clip, score, share = book.best_prefix(heard)
    if clip is None or score < _ACCEPT_PARTIAL:
        return ""
    words = clip.text.split()
    return " ".join(words[: max(1, int(len(words) * share))])


def _best_start(heard: Picture, known: Picture) -> float:
    """The highest normalized correlation of the beginning of a clip with the beginning of what is heard."""
    length = len(known)
    windows = np.lib.stride_tricks.sliding_window_view(heard, length, axis=0)[::2]  # (offsets, bands, frames)
    template = known.T - known.T.mean(axis=1, keepdims=True)
    products = np.tensordot(windows, template, axes=((1, 2), (0, 1)))
    energies = np.square(windows).sum(axis=(1, 2)) - np.square(windows.sum(axis=2)).sum(axis=1) / length
    scale = np.sqrt(np.maximum(energies, 1e-9)) * max(float(np.linalg.norm(template)), 1e-6)
    return float((products / scale).max())


class _ScriptedStream:
    def __init__(self, book: ClipBook, pool: ThreadPoolExecutor, rate_hz: int) -> None:
        self._book = book
        self._pool = pool
        self._rate_hz = rate_hz
        self._pieces: list[NDArray[np.int16]] = []

    def feed(self, pcm: NDArray[np.int16]) -> None:
        self._pieces.append(pcm)

    async def partial(self) -> str:
        heard = self._heard()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, recognize_prefix, self._book, heard, self._rate_hz)

    async def finish(self, silent_samples: int) -> Transcript:
        heard = self._heard()
        heard = heard[: len(heard) - max(0, silent_samples - self._rate_hz // 10)]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, recognize, self._book, heard, self._rate_hz)

    def abandon(self) -> None:
        self._pieces.clear()

    def _heard(self) -> NDArray[np.int16]:
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, np.int16)


class ScriptedAsr:
    """The engine. Comparisons run in one thread; numpy releases the interpreter for the heavy part of them."""

    name = "scripted"

    def __init__(self, clips: Sequence[KnownClip]) -> None:
        self._book = ClipBook(clips)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="asr-scripted")

    def open(self, rate_hz: int) -> _ScriptedStream:
        """See `AsrEngine`."""
        return _ScriptedStream(self._book, self._pool, rate_hz)

    async def start(self) -> None:
        """See `AsrEngine`."""

    async def stop(self) -> None:
        """See `AsrEngine`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
