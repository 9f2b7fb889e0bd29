"""When a caller calls again: after a pause of its own, and not before the endpoint wants the next call. Pure."""

from dataclasses import dataclass
from typing import Final

from loadtest.conversation.plan import SECOND_NS
from loadtest.protocols.failure import Failure
from telemetry.model.turns import Turn

# After a call that was not connected, or that the endpoint ended with "later" and without a time, so that a dead or
# busy target is not hammered.
UNSTATED_NS: Final = SECOND_NS
# An endpoint that asks for more is obeyed no further: a run is not to stand still for an hour.
LONGEST_NS: Final = 60 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Redial:
    """What one call leaves behind for the next one of the same caller. Times are in ns."""

    pause_ns: int = 0  # this caller's own
    asked_ns: int | None = None  # the endpoint's, None where it named no time
    refused: bool = False  # there was no session, or the endpoint wants the next call later

    @property
    def wait_ns(self) -> int:
        """How long the caller waits, from the end of the call on."""
        asked_ns = 0 if self.asked_ns is None else min(self.asked_ns, LONGEST_NS)
        return max(self.pause_ns, asked_ns, UNSTATED_NS if self.refused else 0)


def redial(pause_ns: int, last: Turn | None) -> Redial:
    """After a call whose last turn was this one; None where it had none."""
    if last is None:
        return Redial(pause_ns)
    failure = None if last.failure_kind is None else Failure(last.failure_kind, last.failure_code, last.retry_after_ns)
    unreached = last.turn_index == 0 and last.connect_ns is None
    return Redial(pause_ns, last.retry_after_ns, unreached or (failure is not None and failure.asks_to_wait))
