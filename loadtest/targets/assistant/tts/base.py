"""What the pipeline asks of a voice."""

from collections.abc import AsyncGenerator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TtsFailed(Exception):  # noqa: N818 - reads as what happened
    """The voice cannot speak this sentence. The text says why."""


class TtsEngine(Protocol):
    """A voice, shared by all sessions."""

    name: str

    def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[NDArray[np.int16]]:
        """Stream a sentence as int16 mono pieces at `rate_hz`. Raises TtsFailed."""
        ...

    async def start(self) -> None:
        """Make ready. Raises UsageError when the engine cannot work here."""
        ...

    async def stop(self) -> None:
        """End processes."""
        ...
