"""The prompt cache: answers by normalized question, with a time to live; here in memory (tier `edge`).

The shared cache in Redis (tier `central`) is in `redis_cache.py`.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from loadtest.targets.assistant.questions import normalize
from telemetry.model import semconv


def cache_key(model: str, question: str, normalized: Callable[[str], str] = normalize) -> str:
    """Return the key of an answer. It is a hash, so that keys do not reveal what callers said."""
    return hashlib.sha256(f"{model}\n{normalized(question)}".encode()).hexdigest()


class PromptCache(Protocol):
    """A cache of answers by key."""

    tier: semconv.CacheTier

    async def get(self, key: str) -> str | None:
        """Return the answer, or None."""
        ...

    async def put(self, key: str, answer: str) -> None:
        """Store an answer for the time to live."""
        ...

    async def stop(self) -> None:
        """Close connections."""
        ...


class MemoryCache:
    """The cache in this process; the least recently used answers are dropped first."""

    def __init__(
        self, ttl_ns: int, now_perf_ns: Callable[[], int], capacity: int = 10_000, tier: semconv.CacheTier = "edge"
    ) -> None:
        self.tier: semconv.CacheTier = tier
        self._ttl_ns = ttl_ns
        self._now = now_perf_ns
        self._capacity = capacity
        self._answers: OrderedDict[str, tuple[int, str]] = OrderedDict()

    async def get(self, key: str) -> str | None:
        """See `PromptCache`."""
        found = self._answers.get(key)
        if found is None:
            return None
        expires_ns, answer = found
        if self._now() >= expires_ns:
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return answer

    async def put(self, key: str, answer: str) -> None:
        """See `PromptCache`."""
        self._answers[key] = (self._now() + self._ttl_ns, answer)
        self._answers.move_to_end(key)
        while len(self._answers) > self._capacity:
            self._answers.popitem(last=False)

    async def stop(self) -> None:
        """Nothing to close."""


class TieredCache:
    """The cache of this process in front of the shared one: what only the shared one has is kept here, too."""

    def __init__(self, near: PromptCache, far: PromptCache) -> None:
        self._near, self._far = near, far
        self.tier: semconv.CacheTier = near.tier  # of the last answer

    async def get(self, key: str) -> str | None:
        """See `PromptCache`."""
        self.tier = self._near.tier
        if (found := await self._near.get(key)) is not None:
            return found
        self.tier = self._far.tier
        if (found := await self._far.get(key)) is not None:
            await self._near.put(key, found)
        return found

    async def put(self, key: str, answer: str) -> None:
        """See `PromptCache`."""
        await self._near.put(key, answer)
        await self._far.put(key, answer)

    async def stop(self) -> None:
        """See `PromptCache`."""
        await self._near.stop()
        await self._far.stop()
