"""Finds the sockets that have data and notifies their readers.

In a busy process, dozens of sockets become readable every millisecond, and the hub's own watchers cost more than the
reading itself. On Linux, one epoll instance covers all sockets. While little data arrives, sockets are read at once, so
that pieces that arrive separately are read separately and each gets its own timestamp; under load they are read on each
tick. On other systems, and for sockets without kernel timestamps, each socket has its own hub watcher.

Where there is no time for both, sending comes first: reading ends when the next tick is due, and the kernel keeps what
is unread. A tick that has no time left for reading gives it READING_SHARE of the time that its frames took, and one
socket at the least, so that neither starves: sending has most of the time, and every socket has its turn.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from gevent import monkey

_READ: Final = 1
_EPOLLIN: Final = 1
_MOST_AT_ONCE: Final = 64
READING_SHARE: Final = 0.25
# Even when late, this many sockets are written before frames are sent again.
_MIN_WRITTEN: Final = 16
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
        self._written = 0  # sockets written since the last tick
        self._busy = False
        self._unread: list[int] = []  # sockets that epoll has reported, the last one first
        self._partly_read = False  # there is more of a socket's data than there was time for
        self._arrivals = 0
        self._assess_at_perf_ns = 0
        self._epoll = _open_epoll()
        self._own: Any = None
        self._any_unread: Any = None  # asking epoll itself would change the order in which it reports sockets
        if self._epoll is not None:
            self._own = loop.io(self._epoll.fileno(), _READ)
            self._own.start(self._serve)
            self._any_unread = monkey.get_original("select", "poll")()
            self._any_unread.register(self._epoll.fileno(), _EPOLLIN)

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

    def tick(self, began_perf_ns: int, next_perf_ns: int) -> None:
        """Start a new tick, whose frames have been sent; when busy, read what has arrived until the next tick is due.

        `began_perf_ns` is when the tick began, before its frames were sent.
        """
        now = self._perf_ns()
        # The hub serves a tick before what came in a pause that made it late: only the system knows what is unread.
        if self._any_unread is not None and not self._busy and not self._any_unread.poll(0):
            self._unread.clear()  # closed meanwhile, or read
            self._note_looked(now)
        self._until_perf_ns = max(next_perf_ns, now + int((now - began_perf_ns) * READING_SHARE))
        self._written = 0
        if now >= self._assess_at_perf_ns:
            self._assess_load()
            self._assess_at_perf_ns = now + _BUSY_WINDOW_NS
        if self._busy:
            self._serve()

    def has_time(self) -> bool:
        """Return whether one more socket may be written before frames are sent again; a few always may.

        When an endpoint resumes reading, all of its sockets become writable at once.
        """
        self._written += 1
        return self._written <= _MIN_WRITTEN or self._perf_ns() < self._until_perf_ns

    def _assess_load(self) -> None:
        busy, self._arrivals = self._arrivals > _BUSY_ARRIVALS, 0
        if self._own is None or self._busy == busy:
            return
        self._busy = busy
        if busy:
            self._own.stop()
        else:
            self._own.start(self._serve)

    def has_time_to_read(self) -> bool:
        """Return whether more of a socket may be read before frames are sent again. What is left waits in the
        kernel."""
        if self._perf_ns() < self._until_perf_ns:
            return True
        self._partly_read = True
        return False

    def _serve(self) -> None:
        assert self._epoll is not None  # noqa: S101 - only called if there is an epoll
        found, looked_perf_ns, has_time = _MOST_AT_ONCE, 0, True
        readers, perf_ns, until_perf_ns = self._readers, self._perf_ns, self._until_perf_ns
        self._partly_read = False
        while has_time and (self._unread or found == _MOST_AT_ONCE):
            if not self._unread:
                looked_perf_ns = perf_ns()
                self._unread = [fd for fd, _ in reversed(self._epoll.poll(0, _MOST_AT_ONCE))]
                found = len(self._unread)
                continue
            reader = readers.get(self._unread.pop())
            if reader is not None:  # not closed by a reader earlier in the same round
                self._read(reader)
            self._arrivals += 1
            has_time = perf_ns() < until_perf_ns
        # What is left comes first next time: epoll would begin with the same sockets again.
        if not (self._unread or found == _MOST_AT_ONCE or self._partly_read):
            self._note_looked(looked_perf_ns)

    def _read(self, reader: ReadableSocket) -> None:
        try:
            reader.readable()
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            reader.failed(error)

    def close(self) -> None:
        """Stop watching all sockets and close the epoll instance."""
        for fd in list(self._readers):
            self.remove(fd)
        if self._own is not None and self._epoll is not None:
            self._own.stop()
            self._own.close()
            self._epoll.close()
