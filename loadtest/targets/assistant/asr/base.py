"""What the pipeline asks of a recognizer, whichever it is."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Transcript:
    """The words, and how sure the engine is (0 to 1). An empty text means: nothing understood."""

    text: str
    confidence: float | None
    clip_id: str | None = None  # the scripted recognizer knows which clip it heard


class AsrStream(Protocol):
    """One utterance on its way through the recognizer. Fed at the session's input rate."""

    def feed(self, pcm: NDArray[np.int16]) -> None:
        """Take the next samples (int16 mono). Never blocks."""
        ...

    async def partial(self) -> str:
        """The words so far; empty while there are none."""
        ...

    async def finish(self, silent_samples: int) -> Transcript:
        """The final words of everything fed, the last `silent_samples` of which hold no voice. Call once."""
        ...

    def abandon(self) -> None:
        """The utterance is of no interest any more."""
        ...


class AsrEngine(Protocol):
    """A recognizer, shared by all sessions."""

    name: str

    def open(self, rate_hz: int) -> AsrStream:
        """Begin an utterance; `rate_hz` is that of the samples to come."""
        ...

    async def start(self) -> None:
        """Make ready. Raises UsageError when the engine cannot work here."""
        ...

    async def stop(self) -> None:
        """End processes and threads."""
        ...
