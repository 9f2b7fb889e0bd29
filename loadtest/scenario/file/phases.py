"""The sections `[[phases]]`: how much load there is, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Kind = Literal["smoke", "ramp", "hold", "spike", "soak", "recovery"]
Unit = Literal["users", "rate"]
Arrival = Literal["constant", "poisson"]

STEPS: Final = "steps"  # becomes a hold for each step, so that every level has figures of its own
KINDS: Final = (*get_args(Kind), STEPS)
MAX_USERS: Final = 100_000
MAX_RATE_PER_S: Final = 10_000.0
MAX_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run. From `begin_s` on, for `duration_s`, the load goes in a line from one level to the other.

    Levels are callers at the same time, or (unit "rate") calls begun a second whatever the earlier calls do.
    """

    name: str
    kind: Kind
    begin_s: float
    duration_s: float
    unit: Unit
    level_from: float
    level_to: float
    arrival: Arrival | None = None  # of a rate; callers at the same time arrive when they have ended a call

    @property
    def end_s(self) -> float:
        """When it ends, counted from the start of the run."""
        return self.begin_s + self.duration_s

    def level_at(self, run_s: float) -> float:
        """The level at a moment of the run within the phase."""
        share = min(1.0, max(0.0, (run_s - self.begin_s) / self.duration_s))
        return self.level_from + (self.level_to - self.level_from) * share


def phase_at(phases: Sequence[Phase], run_s: float) -> Phase | None:
    """The phase at a moment of the run, None when all are over."""
    return next((phase for phase in phases if run_s < phase.end_s), None)
