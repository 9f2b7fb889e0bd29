"""A queue in memory alone, for texts that are to stand on no disk; what it holds is lost with its process."""

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.queued import QueuedRequest, QueueWindow
from telemetry.sidecar.forwarding.tally import DropReason, Tally, Waiting


class MemoryQueue:
    """Requests in the order of their arrival, within the destination's limits."""

    def __init__(
        self, destination: Destination, tally: Tally, *, wall_clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._max_bytes = destination.max_bytes
        self._max_age_ns = destination.max_age_ns
        self._tally = tally
        self._wall_clock_ns = wall_clock_ns
        self._lock = threading.Lock()
        self._requests: deque[tuple[QueuedRequest, int]] = deque()
        self._size_bytes = 0
        self._taken = 0

    def add(self, request: QueuedRequest) -> None:
        """Add a request, for which the oldest make room."""
        with self._lock:
            self._requests.append((request, self._wall_clock_ns()))
            self._size_bytes += request.size_bytes
            while self._size_bytes > self._max_bytes and len(self._requests) > self._taken:
                self._drop("size")

    def take(self, bytes_max: int) -> QueueWindow:
        """The oldest requests, some `bytes_max` of them."""
        with self._lock:
            found: list[QueuedRequest] = []
            for request, _ in self._requests:
                found.append(request)
                bytes_max -= request.size_bytes
                if bytes_max <= 0:
                    break
            self._taken = len(found)
            return QueueWindow(tuple(found), self._requests[0][1] if found else 0)

    def settle(self, window: QueueWindow) -> None:
        """Remove what was taken."""
        with self._lock:
            for _ in window.requests:
                request, _at = self._requests.popleft()
                self._size_bytes -= request.size_bytes
            self._taken = 0

    def has_expired(self, window: QueueWindow) -> bool:
        """Whether what was taken waits for too long by now."""
        return self._wall_clock_ns() - window.oldest_unix_ns > self._max_age_ns

    def enforce(self) -> None:
        """Drop what is too old, except what is being sent."""
        before_unix_ns = self._wall_clock_ns() - self._max_age_ns
        with self._lock:
            while len(self._requests) > self._taken and self._requests[self._taken][1] < before_unix_ns:
                self._drop("age")

    def backlog(self) -> Waiting:
        """What waits."""
        with self._lock:
            oldest = next(islice(self._requests, 1), None)
            age_s = (self._wall_clock_ns() - oldest[1]) / 1e9 if oldest is not None else 0.0
            return Waiting(self._size_bytes, age_s)

    def _drop(self, reason: DropReason) -> None:
        """Drop the oldest request that is not being sent."""
        request, _ = self._requests[self._taken]
        del self._requests[self._taken]
        self._size_bytes -= request.size_bytes
        self._tally.drop(reason, 1, request.size_bytes)
