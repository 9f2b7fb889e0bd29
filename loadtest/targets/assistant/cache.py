"""The prompt cache: answers by normalized question, with a time to live; in memory (tier `edge`), in Redis, shared by
all assistants that use the same server (tier `central`), or both."""

import hashlib
import logging
from collections.abc import Callable
from typing import Final

from loadtest.targets.assistant.interfaces import PromptCache
from loadtest.targets.assistant.questions import normalize
from telemetry.model import semconv
from telemetry.model.recent import RecentDict

_logger = logging.getLogger(__name__)
_PREFIX: Final = "voiceprobe:answer:"
_RETRY_NS: Final = 2_000_000_000


def cache_key(model: str, question: str, normalized: Callable[[str], str] = normalize) -> str:
    """Return the key of an answer. It is a hash, so that keys do not reveal what callers said."""
    return hashlib.sha256(f"{model}\n{normalized(question)}".encode()).hexdigest()


class MemoryCache(PromptCache):
    """The cache in this process; the least recently used answers are dropped first."""

    def __init__(
        self, ttl_ns: int, now_perf_ns: Callable[[], int], capacity: int = 10_000, tier: semconv.CacheTier = "edge"
    ) -> None:
        self.tier: semconv.CacheTier = tier
        self._ttl_ns = ttl_ns
        self._now = now_perf_ns
        self._answers = RecentDict[str, tuple[int, str]](capacity)

    async def get(self, key: str) -> str | None:
        """Return the answer, unless it has expired."""
        expires_ns, answer = self._answers.get(key, (0, None))
        if answer is None or self._now() >= expires_ns:
            self._answers.pop(key, None)
            return None
        self._answers.move_to_end(key)
        return answer

    async def put(self, key: str, answer: str) -> None:
        """Store an answer."""
        self._answers[key] = (self._now() + self._ttl_ns, answer)


class TieredCache(PromptCache):
    """The cache of this process in front of the shared one: what only the shared one has is kept here, too."""

    def __init__(self, near: PromptCache, far: PromptCache) -> None:
        self._near, self._far = near, far
        self.tier: semconv.CacheTier = near.tier  # of the last answer

    async def get(self, key: str) -> str | None:
        """Return the answer of the first tier that has it."""
        self.tier = self._near.tier
        if (answer := await self._near.get(key)) is not None:
            return answer
        self.tier = self._far.tier
        if (answer := await self._far.get(key)) is not None:
            await self._near.put(key, answer)
        return answer

    async def put(self, key: str, answer: str) -> None:
        """Store an answer in both tiers."""
        await self._near.put(key, answer)
        await self._far.put(key, answer)

    async def stop(self) -> None:
        """Stop both tiers."""
        await self._near.stop()
        await self._far.stop()


class RedisCache(PromptCache):
    """The cache in Redis. Raises ValueError for an invalid URL.

    A cache must never make a turn fail: if Redis is down, slow or returns invalid data, it counts as a miss. The outage
    and the recovery are logged once each.
    """

    tier: semconv.CacheTier = "central"

    def __init__(self, url: str, ttl_ns: int, now_perf_ns: Callable[[], int], timeout_s: float = 0.1) -> None:
        # Imported only if used, so that the assistant starts quickly.
        import redis.asyncio
        from redis.exceptions import RedisError

        self._errors = (RedisError, OSError, UnicodeDecodeError)
        self._ttl_ms = max(1, ttl_ns // 1_000_000)
        self._now = now_perf_ns
        self._paused_until_ns: int | None = None
        self._client = redis.asyncio.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, decode_responses=False
        )

    async def get(self, key: str) -> str | None:
        """Return the answer; any error counts as a miss."""
        if self._is_paused():
            return None
        try:
            answer = await self._client.get(_PREFIX + key)
            self._note_success()
            return answer.decode() if isinstance(answer, bytes) else None
        except self._errors as error:
            self._note_failure(error)
            return None

    async def put(self, key: str, answer: str) -> None:
        """Store an answer; errors are ignored."""
        if self._is_paused():
            return
        try:
            await self._client.set(_PREFIX + key, answer.encode(), px=self._ttl_ms)
            self._note_success()
        except self._errors as error:
            self._note_failure(error)

    async def stop(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _is_paused(self) -> bool:
        """Return whether Redis failed recently and is not used, so that it delays one turn every two seconds and not
        all."""
        return self._paused_until_ns is not None and self._now() < self._paused_until_ns

    def _note_failure(self, error: Exception) -> None:
        if self._paused_until_ns is None:
            _logger.warning("The Redis cache does not answer (%s); turns continue without it.", type(error).__name__)
        self._paused_until_ns = self._now() + _RETRY_NS

    def _note_success(self) -> None:
        if self._paused_until_ns is not None:
            _logger.warning("The Redis cache answers again.")
        self._paused_until_ns = None
