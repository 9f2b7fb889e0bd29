"""What the pipeline asks of whatever finds the answer."""

import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from telemetry.model import semconv


class LlmFailed(Exception):  # noqa: N818 - reads as what happened
    """The model cannot answer this question; the pipeline falls back. The text says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `asked_perf_ns` is when the final transcript was due; timing models count from it."""

    text: str
    asked_perf_ns: int
    source: random.Random
    instructions: str | None = None
    history: tuple[tuple[str, str], ...] = ()  # (role, text), oldest first


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of answer as it streams. `due_perf_ns` is when it may be shown; None means: now."""

    text: str
    due_perf_ns: int | None = None
    reasoning: bool = False
    intent: str | None = None  # what the question is after, where the responder knows


class Llm(Protocol):
    """Finds answers; shared by all sessions."""

    model: str
    route: semconv.Route

    def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """Stream the answer. Raises LlmFailed."""
        ...

    async def stop(self) -> None:
        """Close connections."""
        ...
