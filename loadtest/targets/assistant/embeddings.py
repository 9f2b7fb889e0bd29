"""What questions mean, as vectors: similar questions for the cache, and the choice of a route.

The vectors come from a model in a process of its own (`real.minilm_worker`).
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from loadtest.errors import UsageError
from loadtest.targets.assistant.questions import slots
from loadtest.targets.assistant.worker_pipe import WorkerGone, WorkerProcess

READY: Final = 1
FAILED: Final = 2
EMBED: Final = 3  # payload: the text in UTF-8
VECTOR: Final = 4  # payload: float32, of length 1
_START_TIMEOUT_S: Final = 60.0
_VECTOR_TIMEOUT_S: Final = 5.0
_MOST_QUESTIONS: Final = 10_000
# By how much a more similar class counts more: a cosine that is larger by 0.1 counts e² times as much.
_SHARPNESS: Final = 20.0

Vector = np.ndarray[Any, np.dtype[np.float32]]


class Embedder(Protocol):
    """A model that gives sentences their vectors."""

    async def embed(self, text: str) -> Vector | None:
        """Return the vector, of length 1; None where the model does not answer."""
        ...

    async def start(self) -> None:
        """Start the model. Raises UsageError if it cannot work on this machine."""
        ...

    async def stop(self) -> None:
        """Stop its process."""
        ...


class WorkerEmbedder:
    """The model in a process that `command` starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._worker = WorkerProcess(command, self._on_frame, self._on_gone)
        self._waiting: dict[int, asyncio.Future[Vector | None]] = {}
        self._next_id = 0

    async def start(self) -> None:
        """See `Embedder`."""
        try:
            await self._worker.start(READY, _START_TIMEOUT_S)
        except WorkerGone as gone:
            raise UsageError(f"The model of embeddings cannot be used: {gone}.") from gone

    async def embed(self, text: str) -> Vector | None:
        """See `Embedder`."""
        self._next_id += 1
        ident = self._next_id
        self._waiting[ident] = asyncio.get_running_loop().create_future()
        self._worker.send(EMBED, ident, text.encode())
        try:
            async with asyncio.timeout(_VECTOR_TIMEOUT_S):
                return await self._waiting[ident]
        except TimeoutError:
            return None
        finally:
            del self._waiting[ident]

    async def stop(self) -> None:
        """See `Embedder`."""
        await self._worker.stop()

    def _on_frame(self, kind: int, ident: int, payload: bytes) -> None:
        if kind == VECTOR and (waiting := self._waiting.get(ident)) is not None and not waiting.done():
            waiting.set_result(np.frombuffer(payload, np.float32))

    def _on_gone(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)


class SimilarQuestions:
    """The questions whose answers are kept, found by what they mean.

    A question is similar from a cosine of `threshold` on; with `compare_slots` only where its numbers, days and
    opposites such as on and off are the same, too.
    """

    def __init__(self, embedder: Embedder, threshold: float, *, compare_slots: bool) -> None:
        self._embedder = embedder
        self._threshold = threshold
        self._compare_slots = compare_slots
        self._kept: list[tuple[str, str, Vector]] = []  # (question, key, vector)

    async def find(self, question: str) -> str | None:
        """Return the key of the most similar question, or None."""
        if not self._kept or (vector := await self._embedder.embed(question)) is None:
            return None
        cosines = np.stack([kept for _, _, kept in self._kept]) @ vector
        asked = slots(question)
        for place in np.argsort(-cosines):
            if cosines[place] < self._threshold:
                return None
            other, key, _ = self._kept[place]
            if not self._compare_slots or slots(other) == asked:
                return key
        return None

    async def add(self, question: str, key: str) -> None:
        """Remember a question whose answer is kept under a key."""
        if (vector := await self._embedder.embed(question)) is not None:
            self._kept.append((question, key, vector))
            del self._kept[:-_MOST_QUESTIONS]


class ExampleRouter:
    """Decides by examples whether a question can stay here: those that a small model answers, and those that it
    cannot.

    By `similarity`, a question stays that is at least so similar to an example of the first kind. By `confidence`, one
    of which a classifier is so sure that it is of the first kind: a softmax over the largest cosine with either kind.
    """

    def __init__(self, embedder: Embedder, by: str, threshold: float, local: Sequence[str], cloud: Sequence[str]):
        self._embedder = embedder
        self._by = by
        self._threshold = threshold
        self._examples = (local, cloud)
        self._vectors: list[list[Vector]] = []

    async def stays(self, question: str) -> bool:
        """Return whether the local model answers; a question without a vector goes to the cloud."""
        if not self._vectors:
            found = [[await self._embedder.embed(text) for text in texts] for texts in self._examples]
            self._vectors = [[vector for vector in vectors if vector is not None] for vectors in found]
        vector = await self._embedder.embed(question)
        if vector is None or not all(self._vectors):
            return False
        local, cloud = (max(float(vector @ other) for other in vectors) for vectors in self._vectors)
        if self._by == "similarity":
            return local >= self._threshold
        return 1 / (1 + math.exp(_SHARPNESS * (cloud - local))) >= self._threshold
