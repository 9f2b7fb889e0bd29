"""Reads requests' bodies within limits of size, memory and time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from telemetry.sidecar.body_budget import BodyBudget, BodyLease
from telemetry.sidecar.connection_limits import ConnectionLimits
from telemetry.sidecar.otlp.compression import BODY_BYTES_MAX, BodyTooLarge, decompress

# Each holds a body twice for a moment, in which it puts the pieces together.
_DECOMPRESSING_THREADS: Final = 2


class BodyTooSlow(Exception):  # noqa: N818 - reads as what happened
    """The body did not arrive in time."""


class Bodies:
    """Reads and decompresses the bodies of all requests, which share one budget of bytes."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.budget = BodyBudget(limits.bodies_bytes)
        self._threads = ThreadPoolExecutor(_DECOMPRESSING_THREADS, "decompress")

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)

    async def read(self, chunks: AsyncIterator[bytes], lease: BodyLease, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        """Read a whole body; every chunk is held by the lease as it arrives.

        Raises BodyTooLarge as soon as it exceeds the limit, BudgetExhausted, and BodyTooSlow when it takes longer than
        `body_s` in all, or than `stall_s` for the next `stall_bytes`.
        """
        limits = self.limits
        body = bytearray()
        recent = 0
        now = asyncio.get_running_loop().time
        end = now() + limits.body_s
        try:
            async with asyncio.timeout_at(min(end, now() + limits.stall_s)) as timeout:
                async for chunk in chunks:
                    if len(body) + len(chunk) > bytes_max:
                        raise BodyTooLarge
                    lease.grow(len(chunk))
                    body += chunk
                    recent += len(chunk)
                    if recent >= limits.stall_bytes:
                        recent = 0
                        timeout.reschedule(min(end, now() + limits.stall_s))
        except TimeoutError:
            raise BodyTooSlow from None
        return bytes(body)

    async def decompress(self, body: bytes, compressions: Sequence[str], lease: BodyLease) -> bytes:
        """Undo the compressions, the last one first, in a thread.

        Raises BodyTooLarge, BodyDamaged and BudgetExhausted.
        """
        loop = asyncio.get_running_loop()
        for compression in reversed(compressions):
            compressed_bytes = len(body)
            body = await loop.run_in_executor(self._threads, decompress, body, compression, BODY_BYTES_MAX, lease.grow)
            lease.shrink(compressed_bytes)
        return body
