"""How far what callers heard is from what the service reported of the same turns."""

from dataclasses import dataclass

from telemetry.model import formatting
from telemetry.model.service_runs import REPORTED


@dataclass(frozen=True, slots=True)
class ClientServiceDelta:
    """Client-heard against service-reported voice-to-voice on joined turns, corrected for where each believes that
    speech ended: the rest is network, playout and the error of the instrument. On `uncorrected` ones the service does
    not state where that was, and the difference includes it."""

    joined: int
    client_only: int
    service_only: int
    difference_p50_ns: float | None
    difference_p99_ns: float | None  # None under 100 joined turns
    difference_abs_max_ns: float | None
    approximate: bool = False  # whether the percentiles are estimates
    uncorrected: int = 0

    @property
    def reported(self) -> str:
        """Whose figures those of a view by service and day are, for people: callers may have heard the same turns."""
        return "reported by the service, not as callers heard them" if self.joined else REPORTED

    @property
    def note(self) -> str:
        """What stands behind the difference, for people; empty where it is corrected for the end of speech."""
        if not self.uncorrected:
            return ""
        return f" (the service does not state where speech ended in {formatting.turns(self.uncorrected)})"
