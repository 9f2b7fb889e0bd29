"""The clocks of what carries a rollout along, and waiting by them."""

import time
from dataclasses import dataclass

from loadtest.run.interruption import Interruption


class InterruptedRolloutError(Exception):
    """Somebody interrupted a wait."""


@dataclass(slots=True)
class RolloutClock:
    """The system's clocks; tests replace them."""

    interruption: Interruption

    def unix_ns(self) -> int:
        """The wall clock."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """A clock for intervals."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait; whether somebody interrupted it."""
        return self.interruption.wait(seconds)
