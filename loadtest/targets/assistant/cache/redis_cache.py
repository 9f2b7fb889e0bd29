"""The prompt cache in Redis (tier `central`): shared by all assistants that name the same one.

A cache can only ever make a turn faster: a Redis that is down, slow or holds rubbish is a miss, said once in the log
and once more when it is back.
"""

import logging
from collections.abc import Callable
from typing import Final

import redis.asyncio
from redis.exceptions import RedisError

from telemetry.model import semconv

_logger = logging.getLogger(__name__)
_PREFIX: Final = "voiceprobe:answer:"
_REST_NS: Final = 2_000_000_000


class RedisCache:
    """See `PromptCache`. Raises ValueError for a URL that is none."""

    tier: semconv.CacheTier = "central"

    def __init__(self, url: str, ttl_ns: int, now_perf_ns: Callable[[], int], timeout_s: float = 0.1) -> None:
        self._ttl_ms = max(1, ttl_ns // 1_000_000)
        self._now = now_perf_ns
        self._rest_until_ns: int | None = None
        self._client = redis.asyncio.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, decode_responses=False
        )

    async def get(self, key: str) -> str | None:
        """See `PromptCache`. Whatever goes wrong is a miss."""
        if self._rests():
            return None
        try:
            found = await self._client.get(_PREFIX + key)
            self._works()
            return found.decode() if isinstance(found, bytes) else None
        except (RedisError, OSError, UnicodeDecodeError) as error:
            self._fails(error)
            return None

    async def put(self, key: str, answer: str) -> None:
        """See `PromptCache`. Whatever goes wrong is forgotten."""
        if self._rests():
            return
        try:
            await self._client.set(_PREFIX + key, answer.encode(), px=self._ttl_ms)
            self._works()
        except (RedisError, OSError) as error:
            self._fails(error)

    async def stop(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _rests(self) -> bool:
        """Whether a Redis that failed is left alone, so that it costs a turn every few seconds and not every turn."""
        return self._rest_until_ns is not None and self._now() < self._rest_until_ns

    def _fails(self, error: Exception) -> None:
        if self._rest_until_ns is None:
            _logger.warning("The Redis cache does not answer (%s): turns go on without it.", type(error).__name__)
        self._rest_until_ns = self._now() + _REST_NS

    def _works(self) -> None:
        if self._rest_until_ns is not None:
            _logger.warning("The Redis cache answers again.")
        self._rest_until_ns = None
