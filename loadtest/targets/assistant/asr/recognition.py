"""The recognition of one utterance of the caller: audio in, partial transcripts out."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.distributions import Delay
from loadtest.targets.assistant.asr.base import AsrEngine
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.llm.begun import SpeculativeStart


@dataclass(frozen=True, slots=True)
class PartialTiming:
    """When partial transcripts are requested; `first` counts from the beginning of speech."""

    first: Delay
    every: Delay


class UtteranceRecognition:
    """One utterance in recognition. `show` is called with new words; None if no transcripts were requested."""

    def __init__(
        self,
        item_id: str,
        engine: AsrEngine,
        rate_hz: int,
        clock: Clock,
        show: Callable[[str], Awaitable[None]] | None,
    ) -> None:
        self.item_id = item_id
        self.rate_hz = rate_hz
        self.samples = 0
        self.first_partial_perf_ns: int | None = None
        self.start: SpeculativeStart | None = None  # begins answers on the partial transcripts
        self._stream = engine.open(rate_hz)
        self._clock = clock
        self._show = show
        self._shown_words = 0
        self._partials: asyncio.Task[None] | None = None

    def feed(self, pcm: NDArray[np.int16]) -> None:
        """Add the next samples (int16 mono)."""
        self.samples += len(pcm)
        self._stream.feed(pcm)

    def watch(self, speech_start_perf_ns: int, timing: PartialTiming, source: random.Random) -> None:
        """Start requesting partial transcripts."""
        if self._show is not None or self.start is not None:
            self._partials = asyncio.create_task(self._show_partials(speech_start_perf_ns, timing, source))

    def finish(self, silent_samples: int) -> asyncio.Task[str]:
        """End the utterance and its partial transcripts; the task returns the final transcript."""
        self._stop_partials()
        return asyncio.create_task(self._stream.finish(silent_samples))

    def abandon(self) -> None:
        """Discard the utterance."""
        self._stop_partials()
        if self.start is not None:
            self.start.abandon()
        self._stream.abandon()

    def _stop_partials(self) -> None:
        if self._partials is not None:
            self._partials.cancel()
            self._partials = None

    async def _show_partials(self, speech_start_perf_ns: int, timing: PartialTiming, source: random.Random) -> None:
        due_ns = speech_start_perf_ns + timing.first.draw_ns(source)
        while True:
            await self._clock.until(due_ns)
            text = await self._stream.partial()
            words = text.split()
            if self.start is not None and words:
                await self.start.partial(text)
            # In this protocol partials only add words; the final transcript corrects what the recognizer revises.
            if len(words) > self._shown_words:
                new = " ".join(words[self._shown_words :])
                if self.first_partial_perf_ns is None:
                    self.first_partial_perf_ns = self._clock.perf_ns()
                if self._show is not None:
                    await self._show(new if self._shown_words == 0 else " " + new)
                self._shown_words = len(words)
            due_ns = max(due_ns, self._clock.perf_ns()) + max(20_000_000, timing.every.draw_ns(source))
