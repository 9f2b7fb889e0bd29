"""Limits on the number of connections of the sidecar, and on the time that each may take."""

import resource
from dataclasses import dataclass
from typing import Final

from telemetry.sidecar.body_budget import BODIES_BYTES_MAX

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
    """Raise this process's limit of open descriptors as far as it may, and return how many connections fit below it.

    The result is for each of the two receivers, and at most `wanted`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + _RESERVED_DESCRIPTORS
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(1, (soft - min(_RESERVED_DESCRIPTORS, soft // 2)) // 2))
