"""The interface of language models."""

import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from telemetry.model import semconv


class LlmFailed(Exception):  # noqa: N818 - reads as what happened
    """The model cannot answer a question, so a rule does; the text says why."""


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
    """A delta of the streamed answer. `due_perf_ns` is when it may be sent; None means now."""

    text: str
    due_perf_ns: int | None = None
    reasoning: bool = False
    intent: str | None = None  # the question's intent, if known


class Llm(Protocol):
    """A language model, shared by all sessions."""

    model: str
    route: semconv.Route

    def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """Stream the answer. Raises LlmFailed."""
        ...

    async def start(self) -> None:
        """Start the model. Raises UsageError if it cannot work on this machine."""
        ...

    async def stop(self) -> None:
        """Close connections."""
        ...
