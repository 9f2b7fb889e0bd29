"""Limits on the connections of the sidecar: their number, the time that each may take, and the bytes that the bodies of
requests in progress may hold over all of them.
"""

import resource
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Final

BODIES_BYTES_MAX: Final = 128 << 20


class BudgetExhausted(Exception):  # noqa: N818 - reads as what happened
    """Raised if the bodies in progress hold as many bytes as they may, or the request has ended."""


class BodyBudget:
    """Counts the bytes that bodies hold, compressed and decompressed. Safe for use by several threads."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self.held_bytes = 0

    def lease(self) -> "BodyLease":
        """Create the share of one request."""
        return BodyLease(self)

    def move(self, lease: "BodyLease", count: int, *, ends: bool = False) -> None:
        """Change the size of a lease. Raises BudgetExhausted, and changes nothing, if that is too much."""
        with self._lock:
            if count > 0 and (lease.ended or self.held_bytes + count > self._bytes_max):
                raise BudgetExhausted
            self.held_bytes += count
            lease.held_bytes += count
            lease.ended = lease.ended or ends


class BodyLease:
    """The share of one request in the budget: it grows with the received bytes and ends with the request.

    A thread that still decompresses for an ended request cannot hold more.
    """

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.held_bytes = 0
        self.ended = False

    def grow(self, count: int) -> None:
        """Hold more bytes. Raises BudgetExhausted."""
        self._budget.move(self, count)

    def shrink(self, count: int) -> None:
        """Release bytes that are no longer kept."""
        self._budget.move(self, -min(count, self.held_bytes))

    def __enter__(self) -> "BodyLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._budget.move(self, -self.held_bytes, ends=True)


CONNECTIONS_MAX: Final = 1024
HEADER_S: Final = 10.0
BODY_S: Final = 15.0  # exporters give up ten seconds after their first attempt
IDLE_S: Final = 75.0  # exporters send every five seconds, or every minute
# For the store, the process itself, and connections that are accepted in one go before the first of them is refused.
_RESERVED_DESCRIPTORS: Final = 256


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of the receivers. Connections are counted separately for HTTP and for gRPC."""

    connections: int = CONNECTIONS_MAX
    bodies_bytes: int = BODIES_BYTES_MAX
    header_s: float = HEADER_S  # from the connection, or the first octet of a further request, to the end of its header
    body_s: float = BODY_S
    idle_s: float = IDLE_S  # between requests
    linger_s: float = 5.0  # for the rest of a refused request, and for reading the last of a response
    write_s: float = 15.0  # for a reader that does not accept a response
    stall_bytes: int = 5 << 10

    @property
    def stall_s(self) -> float:
        """Within each interval of this length, a body must bring `stall_bytes` or end."""
        return self.body_s / 3


def connections_allowed(wanted: int) -> int:
    """Raise this process's limit of open descriptors as far as possible, and return how many connections fit below it.

    The result is for each of the two receivers, and at most `wanted`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + _RESERVED_DESCRIPTORS
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(1, (soft - min(_RESERVED_DESCRIPTORS, soft // 2)) // 2))
