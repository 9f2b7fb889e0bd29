"""Stopping on signals: the first finishes and stops, the second does not wait; with notifications to systemd."""

import asyncio
import contextlib
import os
import socket
from typing import Final

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


class StopRequests:
    """Counts requests to stop: the first asks to finish, the second not to wait; used in one event loop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.hurried = asyncio.Event()

    @property
    def is_asked(self) -> bool:
        """Whether a stop was requested."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Request a stop; the second call ends the wait for requests in progress."""
        (self.hurried if self._asked.is_set() else self._asked).set()

    async def wait(self, serving: asyncio.Future[None]) -> None:
        """Wait until a stop is requested, or serving has ended by itself."""
        await _first(serving, self._asked)

    async def drain(self, duration_s: float, serving: asyncio.Future[None]) -> None:
        """Wait for `duration_s`, at most until the second request, while serving continues."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await _first(serving, self.hurried)


async def _first(serving: asyncio.Future[None], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([serving, waiting], return_when="FIRST_COMPLETED")
    finally:
        waiting.cancel()


def notify(state: str) -> None:
    """Send the state of a unit with `Type=notify`; does nothing without systemd, or if it does not listen."""
    address = os.environ.get(SOCKET_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    # A leading @ means a socket in the abstract namespace, whose name begins with a zero octet.
    place = f"\0{address[1:]}" if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), place)
