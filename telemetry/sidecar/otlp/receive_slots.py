"""Limits on gRPC messages that are received at once, in number and time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

# gRPC keeps what has arrived of a message, up to 20 MiB, and does not show how much that is.
SLOTS: Final = 6
# Each of these holds at most 64 KiB, which is what a sender may send before its message is asked for.
WAITING_MAX: Final = 256
PATIENCE_S: Final = 0.5
# The more wait, the sooner a slow message yields; one of up to 64 KiB needs no time, as it has arrived already.
_PATIENCE_S_MIN: Final = 0.05
_WAITING_TO_HALVE: Final = 8


class NoSlot(Exception):  # noqa: N818 - reads as what happened
    """Raised if too many messages are being received, and this one is slow or has to wait."""


class ReceiveSlots:
    """Admits a number of messages at once, in turn; a slow one yields its place after `patience_s` if others wait."""

    def __init__(
        self, receive_s: float, *, slots: int = SLOTS, waiting_max: int = WAITING_MAX, patience_s: float = PATIENCE_S
    ) -> None:
        self._receive_s = receive_s
        self._slots = asyncio.Semaphore(slots)
        self._waiting_max = waiting_max
        self._patience_s = patience_s
        self._waiting = 0

    async def receive(self, read: Callable[[], Coroutine[Any, Any, object]]) -> object:
        """Wait for a slot and then for the message that `read` returns.

        Raises NoSlot if no slot becomes free in time or if others wait for the slot of a slow message, and TimeoutError
        if the message does not arrive in time.
        """
        if self._waiting >= self._waiting_max:
            raise NoSlot
        self._waiting += 1
        try:
            async with asyncio.timeout(self._receive_s):
                await self._slots.acquire()
        except TimeoutError:
            raise NoSlot from None
        finally:
            self._waiting -= 1
        reading = asyncio.ensure_future(read())
        try:
            await self._wait_for(reading)
            return reading.result()
        finally:
            reading.cancel()
            self._slots.release()

    async def _wait_for(self, reading: "asyncio.Future[object]") -> None:
        now = asyncio.get_running_loop().time
        end = now() + self._receive_s
        while not reading.done():
            patience_s = max(_PATIENCE_S_MIN, self._patience_s / (1 + self._waiting / _WAITING_TO_HALVE))
            await asyncio.wait([reading], timeout=min(patience_s, max(0.0, end - now())))
            if not reading.done() and now() >= end:
                raise TimeoutError
            if not reading.done() and self._waiting:
                raise NoSlot
