"""The prompt cache: answers by normalized question, with a time to live; here in memory (tier `edge`).

The shared cache in Redis (tier `central`) is in `redis_cache.py`.
"""

import hashlib
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from telemetry.model import semconv

_NOT_WORDS: Final = re.compile(r"[^\w\s']|_")


def normalize(question: str) -> str:
    """Normalize case, punctuation and spacing of a question; the words stay significant."""
    plain = unicodedata.normalize("NFKC", question).casefold()
    return " ".join(_NOT_WORDS.sub(" ", plain).split())


def cache_key(model: str, question: str) -> str:
    """Return the key of an answer. It is a hash, so that keys do not reveal what callers said."""
    return hashlib.sha256(f"{model}\n{normalize(question)}".encode()).hexdigest()


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

    tier: semconv.CacheTier = "edge"

    def __init__(self, ttl_ns: int, now_perf_ns: Callable[[], int], capacity: int = 10_000) -> None:
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
