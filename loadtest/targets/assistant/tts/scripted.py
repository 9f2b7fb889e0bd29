"""A synthesizer with known timing: a hum with the rhythm of speech, audible from its first sample.

It is not intelligible. Its length follows from the text and its onset is sharp, so measured delays can be compared with
the injected ones.
"""

from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_NS_PER_CHARACTER: Final = 62_000_000  # about sixteen characters per second, a typical speaking rate
_MIN_NS: Final = 300_000_000
_LOOP_S: Final = 4
_SYLLABLES_HZ: Final = 4
_PITCH_HZ: Final = 140
_LEVEL: Final = 0.25


def sentence_ns(sentence: str) -> int:
    """Return the duration of a spoken sentence."""
    return max(_MIN_NS, len(sentence) * _NS_PER_CHARACTER)


@lru_cache(maxsize=8)
def _loop(rate_hz: int) -> NDArray[np.int16]:
    """Create four seconds that repeat seamlessly: every component has a whole number of periods in them."""
    at = np.arange(_LOOP_S * rate_hz) / rate_hz
    # Cosines begin at their peak: the first sample is as loud as any.
    voice = sum(np.cos(2 * np.pi * _PITCH_HZ * k * at) / k for k in range(1, 7))
    rhythm = 0.55 + 0.45 * np.cos(2 * np.pi * _SYLLABLES_HZ * at)
    signal = np.asarray(voice) * rhythm
    return np.round(signal / np.abs(signal).max() * _LEVEL * 32767).astype(np.int16)


def hum(samples: int, rate_hz: int) -> NDArray[np.int16]:
    """Return the first `samples` samples of the hum (int16 mono)."""
    loop = _loop(rate_hz)
    return np.resize(loop, samples)


class ScriptedTts:
    """The scripted synthesizer. The pipeline's configured delays determine when it begins."""

    async def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[NDArray[np.int16]]:
        """Yield the whole sentence in one piece."""
        yield hum(sentence_ns(sentence) * rate_hz // 1_000_000_000, rate_hz)

    async def start(self) -> None:
        """Nothing to prepare."""

    async def stop(self) -> None:
        """Nothing to stop."""
