"""A WebSocket endpoint on a thread of the test, for tests that say themselves what it answers."""

import asyncio
import threading
from typing import Self

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response


class HostedEndpoint:
    """Serves on a free loopback port while it is entered. A test's own kind says what happens to each connection."""

    def __init__(self) -> None:
        self.port = 0
        self._loop, self._stop, self._ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()

    async def _serve(self) -> None:
        async with serve(self._talk, "127.0.0.1", 0, process_request=self._look, process_response=self._sign) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            self._ready.set()
            await self._stop.wait()

    def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the response to an upgrade request; None opens the session."""
        raise NotImplementedError

    def _sign(self, connection: ServerConnection, request: Request, response: Response) -> None:
        """Add headers to the response to an upgrade: none, unless a test's subclass does."""

    async def _talk(self, connection: ServerConnection) -> None:
        """Serve a session."""
        raise NotImplementedError
