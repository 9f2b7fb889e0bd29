"""What signals ask of a sidecar: to finish and stop, and then to wait no longer."""

import asyncio
import contextlib
from collections.abc import Callable, Generator


class StopRequests:
    """Counts requests to stop: the first asks to finish, the second not to wait; used in one event loop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._hurry: Callable[[], None] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether the sidecar is to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask to stop; when it was asked before, not to wait for requests in progress."""
        if not self._asked.is_set():
            self._asked.set()
            return
        self._hurried.set()
        if self._hurry is not None:
            self._hurry()

    async def wait(self, serving: asyncio.Future[None]) -> None:
        """Wait until it is asked for, or serving has ended by itself."""
        await _first(serving, self._asked)

    async def drain(self, duration_s: float, serving: asyncio.Future[None]) -> None:
        """Wait so long, until the second request at most, while serving goes on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await _first(serving, self._hurried)

    @contextlib.contextmanager
    def hurrying(self, hurry: Callable[[], None]) -> Generator[None]:
        """Have `hurry` called at the second request, also if it came before."""
        self._hurry = hurry
        if self._hurried.is_set():
            hurry()
        yield
        self._hurry = None


async def _first(serving: asyncio.Future[None], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([serving, waiting], return_when="FIRST_COMPLETED")
    finally:
        waiting.cancel()
