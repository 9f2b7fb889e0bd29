"""Interfaces of engines, each shared by all sessions: recognizers, models, voices, caches and embeddings."""

import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.model import semconv

Pcm = NDArray[np.int16]
Vector = np.ndarray[Any, np.dtype[np.float32]]


class LlmFailed(Exception):  # noqa: N818 - reads as what happened
    """The model cannot answer a question, so a rule does; the text says why."""


class TtsFailed(Exception):  # noqa: N818 - reads as what happened
    """The synthesizer cannot speak a sentence; the text says why."""


class AssistantEngine:
    """An engine that is started before the first call and stopped after the last one."""

    async def start(self) -> None:
        """Start it. Raises UsageError if it cannot work on this machine."""

    async def stop(self) -> None:
        """Stop its processes and close its connections."""


class AsrStream:
    """The recognition of one utterance. Fed at the session's input rate."""

    def feed(self, pcm: Pcm) -> None:
        """Add the next samples (int16 mono). Never blocks."""
        raise NotImplementedError

    async def partial(self, silent_samples: int) -> str:
        """Return the text so far; empty until the first word. The last `silent_samples` contain no speech."""
        raise NotImplementedError

    async def finish(self, silent_samples: int) -> str:
        """Return the final text, empty if nothing was recognized; the last `silent_samples` contain no speech.

        Call it once.
        """
        raise NotImplementedError

    def abandon(self) -> None:
        """Discard the utterance."""


class AsrEngine(AssistantEngine):
    """A recognizer."""

    def open(self, rate_hz: int) -> AsrStream:
        """Begin an utterance; `rate_hz` is the rate of its samples."""
        raise NotImplementedError


class TtsEngine(AssistantEngine):
    """A synthesizer."""

    def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[Pcm]:
        """Stream a sentence as int16 mono pieces at `rate_hz`. Raises TtsFailed."""
        raise NotImplementedError


class Embedder(AssistantEngine):
    """A model that gives sentences their vectors."""

    async def embed(self, text: str) -> Vector | None:
        """Return the vector, of length 1; None where the model does not answer."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `asked_perf_ns` is when the final transcript was due; timing models count from it."""

    text: str
    asked_perf_ns: int
    source: random.Random
    instructions: str | None = None
    history: tuple[tuple[str, str], ...] = ()  # (role, text), oldest first
    work: dict[str, float] = field(default_factory=dict[str, float])  # what answering it took, by name

    def add(self, name: str, number: float) -> None:
        """Add to what answering this question took."""
        self.work[name] = self.work.get(name, 0) + number


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A delta of the streamed answer. `due_perf_ns` is when it may be sent; None means now."""

    text: str
    due_perf_ns: int | None = None
    reasoning: bool = False
    intent: str | None = None  # the question's intent, if known
    route: semconv.Route | None = None  # where it comes from, if that depends on the question
    model: str | None = None  # likewise


class Llm(AssistantEngine):
    """A language model."""

    model: str
    route: semconv.Route

    def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """Stream the answer. Raises LlmFailed."""
        raise NotImplementedError


class PromptCache(AssistantEngine):
    """A cache of answers by key."""

    tier: semconv.CacheTier

    async def get(self, key: str) -> str | None:
        """Return the answer, or None."""
        raise NotImplementedError

    async def put(self, key: str, answer: str) -> None:
        """Store an answer for the time to live."""
        raise NotImplementedError
