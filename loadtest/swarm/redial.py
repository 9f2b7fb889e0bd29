"""When a caller calls again: after a pause of its own, later after each failed call, and not before the endpoint asks.

Pure: the moments and the random numbers are the caller's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loadtest.conversation.plan import SECOND_NS
from telemetry.model.turns import Turn

# The wait after the first of a series of failed calls. It doubles with each further one, so that an endpoint that
# fails, before or after it has accepted the connection, is not flooded with calls.
FIRST_NS: Final = SECOND_NS
# At most half of a wait is added to it at random, so that callers who failed together do not call again together.
SPREAD: Final = 0.5
LONGEST_NS: Final = 30 * SECOND_NS
# The longest wait that an endpoint can request: a run must not pause for an hour.
LONGEST_ASKED_NS: Final = 60 * SECOND_NS
# A caller who hangs up, or whom the end of the run cuts off, says nothing about the endpoint.
_ENDED_BY_CALLER: Final = frozenset({"abandoned", "cut"})


@dataclass(frozen=True, slots=True)
class Redial:
    """The wait of one caller after a call, in ns."""

    wait_ns: int = 0
    asked_ns: int | None = None  # the wait that the endpoint asked for, None if it named no time


class RedialBackoff:
    """The failed calls of one caller in a row. `draw` returns a random number from 0 to 1."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._failures = 0
        self._failed = False  # the call that is under way, or has just ended
        self._asked_ns: int | None = None

    def note(self, turn: Turn) -> None:
        """Account for a turn of the call that is under way: a failed one is its last."""
        observed = turn.outcome_observed or turn.outcome
        self._asked_ns = turn.retry_after_ns
        if observed == "ok":
            self._failures = 0
        elif observed not in _ENDED_BY_CALLER:
            self.note_failure()

    def note_failure(self) -> None:
        """Account for the failure of the call that is under way, which may have no turn."""
        self._failed = True

    def redial(self, pause_ns: int) -> Redial:
        """Return the wait after the call that has ended; `pause_ns` is the caller's own pause, which runs meanwhile."""
        asked_ns, failed = self._asked_ns, self._failed
        self._asked_ns, self._failed = None, False
        waits = [pause_ns, 0 if asked_ns is None else min(asked_ns, LONGEST_ASKED_NS)]
        if failed:
            waits.append(self._next_wait_ns())
        return Redial(max(waits), asked_ns)

    def _next_wait_ns(self) -> int:
        longest_ns = round(LONGEST_NS / (1 + SPREAD))
        base_ns = min(FIRST_NS << min(self._failures, 30), longest_ns)
        self._failures += 1
        return min(LONGEST_NS, round(base_ns * (1 + SPREAD * self._draw())))
