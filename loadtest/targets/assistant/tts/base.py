"""The interface of speech synthesizers."""

from collections.abc import AsyncGenerator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TtsFailed(Exception):  # noqa: N818 - reads as what happened
    """The synthesizer cannot speak a sentence; the text says why."""


class TtsEngine(Protocol):
    """A synthesizer, shared by all sessions."""

    def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[NDArray[np.int16]]:
        """Stream a sentence as int16 mono pieces at `rate_hz`. Raises TtsFailed."""
        ...

    async def start(self) -> None:
        """Start the engine. Raises UsageError if it cannot work on this machine."""
        ...

    async def stop(self) -> None:
        """Stop processes."""
        ...
