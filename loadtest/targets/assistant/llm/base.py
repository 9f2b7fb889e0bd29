"""The interface of language models."""

import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
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
