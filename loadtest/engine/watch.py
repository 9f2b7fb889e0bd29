"""Finds the sockets that have data and notifies their readers.

In a busy process, dozens of sockets become readable every millisecond, and the hub's own watchers cost more than the
reading itself. On Linux, one epoll instance covers all sockets. While little data arrives, sockets are read at once, so
that pieces that arrive separately are read separately and each gets its own timestamp; under load they are read on each
tick only. On other systems, and for sockets without kernel timestamps, each socket has its own hub watcher.

Reading ends when the next tick is due, and the kernel keeps what is unread, but each tick reads some: neither starves.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from gevent import monkey

_READ: Final = 1
_EPOLLIN: Final = 1
# So many sockets are read, or written, before the time is looked at. The system reports those first that were read
# longest ago.
AT_ONCE: Final = 16
# The load is assessed every so often; more arrivals than this in that time mean that the process is busy.
_BUSY_WINDOW_NS: Final = 50_000_000
_BUSY_ARRIVALS: Final = 8 * 50


def _open_epoll() -> Any:
    """Open an epoll instance, or return None if the system has no epoll. gevent's patching hides the original."""
    with contextlib.suppress(AttributeError, OSError):
        return monkey.get_original("select", "epoll")()
    return None


class ReadableSocket(Protocol):
    """The reader of a socket."""

    def readable(self) -> None:
        """Called when there is data or the connection has ended."""
        ...

    def failed(self, error: Exception) -> None:
        """Called when reading or processing failed with an internal error."""
        ...


class SocketWatch:
    """Notifies each reader when its socket has data. `tick` must be called on every tick."""

    def __init__(
        self, loop: Any, perf_ns: Callable[[], int], note_looked: Callable[[int], None] = lambda looked_perf_ns: None
    ) -> None:
        """`note_looked` is called with a moment when nothing is unread that came before it."""
        self._loop = loop
        self._perf_ns = perf_ns
        self._note_looked = note_looked
        self._readers: dict[int, ReadableSocket] = {}
        self._watchers: dict[int, Any] = {}
        self._until_perf_ns = 0
        self._written = 0  # sockets since the last tick
        self._busy = False
        self._arrivals = 0
        self._assess_at_perf_ns = 0
        self._epoll = _open_epoll()
        self._own: Any = None
        if self._epoll is not None:
            self._own = loop.io(self._epoll.fileno(), _READ)
            self._own.start(self._serve)

    def add(self, fd: int, reader: ReadableSocket, *, stamped: bool) -> None:
        """Watch a socket; `stamped` means that the kernel timestamps arriving data, however late it is read."""
        self._readers[fd] = reader
        if self._epoll is not None and stamped:
            self._epoll.register(fd, _EPOLLIN)
        else:
            watcher = self._watchers[fd] = self._loop.io(fd, _READ)
            watcher.start(self._read, reader)

    def remove(self, fd: int) -> None:
        """Stop watching a socket; must be called before it is closed. Unknown sockets are ignored."""
        if self._readers.pop(fd, None) is None:
            return
        watcher = self._watchers.pop(fd, None)
        if watcher is not None:
            watcher.stop()
            watcher.close()
        elif self._epoll is not None:
            self._epoll.unregister(fd)

    def tick(self, next_perf_ns: int) -> None:
        """Read what has arrived, until the next tick is due."""
        self._until_perf_ns, self._written = next_perf_ns, 0
        if self._epoll is None:
            return
        now = self._perf_ns()
        if now >= self._assess_at_perf_ns:
            self._assess_load()
            self._assess_at_perf_ns = now + _BUSY_WINDOW_NS
        self._serve()

    def has_time(self) -> bool:
        """Return whether one more socket may be written before the next tick sends frames; a few always may.

        When an endpoint resumes reading, all of its sockets become writable at once.
        """
        self._written += 1
        return self._written <= AT_ONCE or self._perf_ns() < self._until_perf_ns

    def _assess_load(self) -> None:
        busy, self._arrivals = self._arrivals > _BUSY_ARRIVALS, 0
        if busy and not self._busy:
            self._own.stop()
        elif self._busy and not busy:
            self._own.start(self._serve)
        self._busy = busy

    def _serve(self) -> None:
        while True:
            looked_perf_ns = self._perf_ns()
            ready = self._epoll.poll(0, AT_ONCE)
            if not ready:
                self._note_looked(looked_perf_ns)
                return
            for fd, _ in ready:
                reader = self._readers.get(fd)
                if reader is not None:  # not closed by a reader earlier in the same round
                    self._read(reader)
            self._arrivals += len(ready)
            if self._perf_ns() >= self._until_perf_ns:
                return

    def _read(self, reader: ReadableSocket) -> None:
        try:
            reader.readable()
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            reader.failed(error)

    def close(self) -> None:
        """Stop watching all sockets and close the epoll instance."""
        for fd in list(self._readers):
            self.remove(fd)
        if self._epoll is not None:
            self._own.stop()
            self._own.close()
            self._epoll.close()
