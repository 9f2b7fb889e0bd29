"""Which sockets have data, told to whoever reads them.

Every thousandth of a second some dozens of sockets of a busy process have something to say, and the hub's own watchers
cost more than reading does. On Linux one epoll of ours asks for all sockets at once: as soon as data comes while little
does, so that pieces that come apart are read apart and each has its own stamp; with each tick when there is much.
Elsewhere, and for sockets without stamps of the kernel, each has a watcher of the hub.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from gevent import monkey

_READ: Final = 1
_EPOLLIN: Final = 1
_MOST_AT_ONCE: Final = 64
# However late it is, so many sockets are read, and as many written, before frames are sent again: neither side starves.
_LEAST_AT_ONCE: Final = 16
# Ticks over which it is judged whether much arrives, and how many arrivals are much.
_JUDGED_TICKS: Final = 50
_MUCH: Final = 8 * _JUDGED_TICKS


def _open_epoll() -> Any:
    """None where the system has none. In a process that gevent has patched it is only found under its first name."""
    with contextlib.suppress(AttributeError, OSError):
        return monkey.get_original("select", "epoll")()
    return None


class ReadableSocket(Protocol):
    """Who reads a socket."""

    def readable(self) -> None:
        """There is data, or the connection has ended."""
        ...

    def failed(self, fault: Exception) -> None:
        """Reading or what follows from it failed for a fault of ours."""
        ...


class SocketWatch:
    """Tells each reader that its socket has data. It must be told of each tick."""

    def __init__(self, loop: Any, perf_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._perf_ns = perf_ns
        self._readers: dict[int, ReadableSocket] = {}
        self._watchers: dict[int, Any] = {}
        self._until_perf_ns = 0
        self._written = 0  # sockets, since the tick
        self._arrivals = self._ticks = 0
        self._epoll = _open_epoll()
        self._own: Any = None if self._epoll is None else loop.io(self._epoll.fileno(), _READ)
        if self._own is not None:
            self._own.start(self._serve)

    def add(self, fd: int, reader: ReadableSocket, *, stamped: bool) -> None:
        """Watch a socket; `stamped` says that the kernel keeps the moment of what arrives, however late it is read."""
        self._readers[fd] = reader
        if self._epoll is not None and stamped:
            self._epoll.register(fd, _EPOLLIN)
        else:
            watcher = self._watchers[fd] = self._loop.io(fd, _READ)
            watcher.start(self._read, fd)

    def remove(self, fd: int) -> None:
        """Watch a socket no longer; to be called before it is closed. Unknown ones are ignored."""
        if self._readers.pop(fd, None) is None:
            return
        watcher = self._watchers.pop(fd, None)
        if watcher is not None:
            watcher.stop()
            watcher.close()
        elif self._epoll is not None:
            self._epoll.unregister(fd)

    def tick(self, next_perf_ns: int) -> None:
        """Read what has arrived where much does, until the next tick is due."""
        self._until_perf_ns = next_perf_ns
        self._written = 0
        self._ticks += 1
        if self._ticks >= _JUDGED_TICKS:
            self._judge()
        if self._own is not None and not self._own.active:
            self._serve()

    def has_time(self) -> bool:
        """Whether one more socket may be given what waits for it before frames are sent again; some always may.

        An endpoint that reads again after a while makes room in all of its sockets at once.
        """
        self._written += 1
        return self._written <= _LEAST_AT_ONCE or self._perf_ns() < self._until_perf_ns

    def _judge(self) -> None:
        much, self._arrivals, self._ticks = self._arrivals > _MUCH, 0, 0
        if self._own is None or self._own.active != much:
            return
        if much:
            self._own.stop()
        else:
            self._own.start(self._serve)

    def _serve(self) -> None:
        assert self._epoll is not None  # noqa: S101 - nobody else calls it
        read = 0
        while events := self._epoll.poll(0, _MOST_AT_ONCE):
            for fd, _ in events:
                self._read(fd)
                read += 1
                if read >= _LEAST_AT_ONCE and self._perf_ns() >= self._until_perf_ns:
                    self._arrivals += read
                    return  # the others are asked for again
        self._arrivals += read

    def _read(self, fd: int) -> None:
        reader = self._readers.get(fd)
        if reader is None:
            return  # who was read before in the same round closed it
        try:
            reader.readable()
        except Exception as fault:  # noqa: BLE001 - one caller's fault of ours must not stop the others' audio
            reader.failed(fault)

    def close(self) -> None:
        """Give everything back."""
        for fd in list(self._readers):
            self.remove(fd)
        if self._own is not None and self._epoll is not None:
            self._own.stop()
            self._own.close()
            self._epoll.close()
