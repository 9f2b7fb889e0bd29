"""Limits on gRPC messages that are received at once, in number and time."""

import asyncio
from collections import OrderedDict
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
# Senders that are remembered for a message that arrived; more than there are connections.
_KNOWN_MAX: Final = 4096

_Turn = asyncio.Future[None]


class NoSlot(Exception):  # noqa: N818 - reads as what happened
    """Too many messages are being received, and this one is slow or has to wait."""


class ReceiveSlots:
    """Admits a number of messages at once; a slow one yields its place after `patience_s` if others wait.

    Senders of which a whole message has arrived before are next, however many others wait. Among equals the newest is
    next: senders that hold back their messages then wait for one another.
    """

    def __init__(
        self, receive_s: float, *, slots: int = SLOTS, waiting_max: int = WAITING_MAX, patience_s: float = PATIENCE_S
    ) -> None:
        self._receive_s = receive_s
        self._free = slots
        self._waiting_max = waiting_max
        self._patience_s = patience_s
        self._waiting: dict[_Turn, None] = {}
        self._waiting_known: dict[_Turn, None] = {}
        self._known: OrderedDict[str, None] = OrderedDict()

    async def receive(self, read: Callable[[], Coroutine[Any, Any, object]], sender: str) -> object:
        """Wait for a slot and then for the message that `read` returns; `sender` names the connection.

        Raises NoSlot if no slot becomes free in time or if others wait for the slot of a slow message, and TimeoutError
        if the message does not arrive in time.
        """
        await self._take_slot(self._waiting_known if sender in self._known else self._waiting)
        reading = asyncio.ensure_future(read())
        try:
            await self._wait_for(reading)
        finally:
            reading.cancel()
            self._free_slot()
        if isinstance(reading.result(), bytes):
            self._remember(sender)
        return reading.result()

    def _remember(self, sender: str) -> None:
        self._known[sender] = None
        self._known.move_to_end(sender)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    @property
    def _waiting_count(self) -> int:
        return len(self._waiting) + len(self._waiting_known)

    async def _wait_for(self, reading: "asyncio.Future[object]") -> None:
        now = asyncio.get_running_loop().time
        end = now() + self._receive_s
        while not reading.done():
            patience_s = max(_PATIENCE_S_MIN, self._patience_s / (1 + self._waiting_count / _WAITING_TO_HALVE))
            await asyncio.wait([reading], timeout=min(patience_s, max(0.0, end - now())))
            if not reading.done() and now() >= end:
                raise TimeoutError
            if not reading.done() and self._waiting_count:
                raise NoSlot

    async def _take_slot(self, waiting: dict[_Turn, None]) -> None:
        if self._free:
            self._free -= 1
            return
        if self._waiting_count >= self._waiting_max:
            sent_back = self._waiting or waiting
            if not sent_back:
                raise NoSlot
            oldest = next(iter(sent_back))
            del sent_back[oldest]
            oldest.cancel()
        turn: _Turn = asyncio.get_running_loop().create_future()
        waiting[turn] = None
        try:
            await asyncio.wait([turn], timeout=self._receive_s)
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free_slot()
            raise
        finally:
            waiting.pop(turn, None)
        if turn.cancelled() or not turn.done():
            raise NoSlot

    def _free_slot(self) -> None:
        if waiting := self._waiting_known or self._waiting:
            newest, _ = waiting.popitem()
            newest.set_result(None)
        else:
            self._free += 1
