"""The store process's end of the socket to the front."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

from telemetry.sidecar import messages
from telemetry.sidecar.messages import FromStore, ToStore

_CHUNK_BYTES: Final = 1 << 18


class FrontConnection:
    """Sends from any thread; one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()

    def send(self, message: FromStore) -> None:
        """Send a message; a front that is gone is noticed by who receives."""
        frame = messages.frame(message)
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(frame)

    def received(self) -> Iterator[ToStore]:
        """Yield the front's messages until its end closes."""
        frames = messages.Frames()
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        while count := self._receive(buffer):
            for content in frames.feed(buffer[:count]):
                yield messages.to_store(content)

    def _receive(self, buffer: memoryview) -> int:
        try:
            return self._socket.recv_into(buffer)
        except OSError:
            return 0  # reset by a front that was killed
