"""The clocks of whoever carries a rollout along, and waiting by them."""

import time
from dataclasses import dataclass
from typing import Protocol

from loadtest.run.interruption import Interruption


class InterruptedRolloutError(Exception):
    """Somebody interrupted a wait."""


class RolloutClock(Protocol):
    """Time, and waiting; tests replace it."""

    def unix_ns(self) -> int:
        """The wall clock."""
        ...

    def monotonic_s(self) -> float:
        """A clock for intervals."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait; whether somebody interrupted it."""
        ...


@dataclass(frozen=True, slots=True)
class InterruptibleClock:
    """The system's clocks."""

    interruption: Interruption

    def unix_ns(self) -> int:
        """See `RolloutClock`."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """See `RolloutClock`."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """See `RolloutClock`."""
        return self.interruption.wait(seconds)
