"""A voice of known timing: a hum with the rhythm of speech, audible from its very first sample.

It says nothing anybody could understand. Its length follows from the text, its beginning is sharp, and so what a
listener measures can be compared with what was injected.
"""

from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_NS_PER_CHARACTER: Final = 62_000_000  # about sixteen characters a second, a usual speaking rate
_LEAST_NS: Final = 300_000_000
_LOOP_S: Final = 4
_SYLLABLES_HZ: Final = 4
_PITCH_HZ: Final = 140
_LEVEL: Final = 0.25


def sentence_ns(sentence: str) -> int:
    """How long a sentence lasts when spoken."""
    return max(_LEAST_NS, len(sentence) * _NS_PER_CHARACTER)


@lru_cache(maxsize=8)
def _loop(rate_hz: int) -> NDArray[np.int16]:
    """Four seconds that can be repeated without a seam: every component has a whole number of periods in them."""
    at = np.arange(_LOOP_S * rate_hz) / rate_hz
    # Cosines begin at their peak: the first sample is as loud as any.
    voice = sum(np.cos(2 * np.pi * _PITCH_HZ * k * at) / k for k in range(1, 7))
    rhythm = 0.55 + 0.45 * np.cos(2 * np.pi * _SYLLABLES_HZ * at)
    signal = np.asarray(voice) * rhythm
    return np.round(signal / np.abs(signal).max() * _LEVEL * 32767).astype(np.int16)


def hum(samples: int, rate_hz: int) -> NDArray[np.int16]:
    """That many samples of the voice (int16 mono), from its beginning."""
    loop = _loop(rate_hz)
    return np.resize(loop, samples)


class ScriptedTts:
    """The voice behind the pipeline's port. When it begins is decided by the pipeline's declared delays."""

    name = "scripted"

    async def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[NDArray[np.int16]]:
        """The whole sentence in one piece."""
        yield hum(sentence_ns(sentence) * rate_hz // 1_000_000_000, rate_hz)

    async def start(self) -> None:
        """Nothing to prepare."""

    async def stop(self) -> None:
        """Nothing to end."""
