"""A budget of bytes for the bodies of requests that are in progress, over all connections."""

import threading
from types import TracebackType
from typing import Final

BODIES_BYTES_MAX: Final = 128 << 20


class BudgetExhausted(Exception):  # noqa: N818 - reads as what happened
    """The bodies in progress hold as many bytes as they may, or the request has ended."""


class BodyBudget:
    """Counts the bytes that bodies hold, compressed and decompressed. Safe for use by several threads."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self.held_bytes = 0

    def lease(self) -> "BodyLease":
        """Begin the share of one request."""
        return BodyLease(self)

    def move(self, lease: "BodyLease", count: int, *, ends: bool = False) -> None:
        """Change what a lease holds. Raises BudgetExhausted, and changes nothing, if that is too much."""
        with self._lock:
            if count > 0 and (lease.ended or self.held_bytes + count > self._bytes_max):
                raise BudgetExhausted
            self.held_bytes += count
            lease.held_bytes += count
            lease.ended = lease.ended or ends


class BodyLease:
    """The share of one request in the budget: it grows with the bytes that arrive and ends with the request.

    A thread that still decompresses for a request that has ended cannot hold more.
    """

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.held_bytes = 0
        self.ended = False

    def grow(self, count: int) -> None:
        """Hold more bytes. Raises BudgetExhausted."""
        self._budget.move(self, count)

    def shrink(self, count: int) -> None:
        """Give back bytes that are no longer kept."""
        self._budget.move(self, -min(count, self.held_bytes))

    def __enter__(self) -> "BodyLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._budget.move(self, -self.held_bytes, ends=True)
