"""The prompt cache in Redis (tier `central`), shared by all assistants that use the same server.

A cache must never make a turn fail: if Redis is down, slow or returns invalid data, it counts as a miss. The outage and
the recovery are logged once each.
"""

import logging
from collections.abc import Callable
from typing import Final

import redis.asyncio
from redis.exceptions import RedisError

from telemetry.model import semconv

_logger = logging.getLogger(__name__)
_PREFIX: Final = "voiceprobe:answer:"
_RETRY_NS: Final = 2_000_000_000


class RedisCache:
    """The cache in Redis. Raises ValueError for an invalid URL."""

    tier: semconv.CacheTier = "central"

    def __init__(self, url: str, ttl_ns: int, now_perf_ns: Callable[[], int], timeout_s: float = 0.1) -> None:
        self._ttl_ms = max(1, ttl_ns // 1_000_000)
        self._now = now_perf_ns
        self._paused_until_ns: int | None = None
        self._client = redis.asyncio.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, decode_responses=False
        )

    async def get(self, key: str) -> str | None:
        """See `PromptCache`. Any error counts as a miss."""
        if self._is_paused():
            return None
        try:
            found = await self._client.get(_PREFIX + key)
            self._note_success()
            return found.decode() if isinstance(found, bytes) else None
        except (RedisError, OSError, UnicodeDecodeError) as error:
            self._note_failure(error)
            return None

    async def put(self, key: str, answer: str) -> None:
        """See `PromptCache`. Errors are ignored."""
        if self._is_paused():
            return
        try:
            await self._client.set(_PREFIX + key, answer.encode(), px=self._ttl_ms)
            self._note_success()
        except (RedisError, OSError) as error:
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
