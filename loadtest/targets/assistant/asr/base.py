"""The interface of speech recognizers."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class AsrStream(Protocol):
    """The recognition of one utterance. Fed at the session's input rate."""

    def feed(self, pcm: NDArray[np.int16]) -> None:
        """Add the next samples (int16 mono). Never blocks."""
        ...

    async def partial(self) -> str:
        """Return the text so far; empty until the first word."""
        ...

    async def finish(self, silent_samples: int) -> str:
        """Return the final text, empty if nothing was recognized; the last `silent_samples` contain no speech.

        Call it once.
        """
        ...

    def abandon(self) -> None:
        """Discard the utterance."""
        ...


class AsrEngine(Protocol):
    """A recognizer, shared by all sessions."""

    def open(self, rate_hz: int) -> AsrStream:
        """Begin an utterance; `rate_hz` is the rate of its samples."""
        ...

    async def start(self) -> None:
        """Start the engine. Raises UsageError if it cannot work on this machine."""
        ...

    async def stop(self) -> None:
        """Stop processes and threads."""
        ...
