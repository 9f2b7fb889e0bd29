"""How many callers there are to be at a moment of a run. Pure: what Locust's shape says is decided here."""

from collections.abc import Sequence
from typing import Final

from loadtest.scenario.phases import Phase, phase_at

Tick = tuple[int, float]  # callers wanted, and how many to begin or end a second
# Locust warns beyond this, and a machine that begins more calls at once is late with all of them.
MOST_SPAWNED_PER_S: Final = 100.0
STAND_BY: Final[Tick] = (1, 1.0)


class LoadProfile:
    """Follows the phases. A level is reached at once; Locust looks once a second, so that a ramp is a staircase of
    one-second steps."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = tuple(phases)
        self._asked: Tick = (0, 1.0)

    def tick(self, run_s: float | None, users_now: int) -> Tick | None:
        """Return what Locust is to do, None when all phases are over. `run_s` is None before the start of the run, when
        those who are spawned already wait until every process is ready."""
        if self._phases[0].unit == "rate":
            # Calls begin by their own schedule; Locust's one user stands by until the end.
            return STAND_BY if run_s is None or phase_at(self._phases, run_s) is not None else None
        if run_s is None:
            users = max(1, round(self._phases[0].level_at(0.0)))
            self._asked = (users, _rate(users))
            return self._asked
        phase = phase_at(self._phases, run_s)
        if phase is None:
            return None
        users = round(phase.level_at(run_s))
        before = self._asked[0]
        # Those who are to leave finish their turn first. Locust would count them among the others until they have left,
        # so that it hears of another number only then.
        if users != before and users_now <= before:
            self._asked = (users, _rate(abs(users - before)))
        return self._asked


def _rate(users: int) -> float:
    return min(MOST_SPAWNED_PER_S, float(users))
