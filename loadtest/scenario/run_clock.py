"""How far a run has come, and so in which of its phases a turn began. Pure: moments are given."""

from collections.abc import Sequence
from typing import Final

from loadtest.scenario.phases import Phase, phase_at
from telemetry.model.semconv import RAMP, PhaseKind

# Of a run without phases of its own: until all callers that were asked for are there, and from then on.
RAMP_UP: Final = "ramp-up"
STEADY: Final = "steady"


class RunClock:
    """The time of one run in one process: it starts when every process has prepared its speech."""

    def __init__(self, phases: Sequence[Phase] = ()) -> None:
        self.phases = tuple(phases)
        self._started_perf_ns: int | None = None
        self._spawned_perf_ns: int | None = None
        self._knows_spawning = False

    @property
    def started_perf_ns(self) -> int | None:
        """The moment of the start, None before it."""
        return self._started_perf_ns

    def start(self, perf_ns: int) -> None:
        """The run starts. A second start does nothing."""
        if self._started_perf_ns is None:
            self._started_perf_ns = perf_ns

    def expect_ramp_up(self) -> None:
        """Callers come one after the other: until `all_spawned` turns begin during a ramp."""
        self._knows_spawning = True

    def all_spawned(self, perf_ns: int) -> None:
        """All callers that were asked for are there. Of several such moments the first ends the ramp."""
        if self._spawned_perf_ns is None:
            self._spawned_perf_ns = perf_ns

    def run_s(self, perf_ns: int) -> float | None:
        """Seconds since the start, None before it."""
        return None if self._started_perf_ns is None else (perf_ns - self._started_perf_ns) / 1e9

    def phase_of(self, perf_ns: int) -> tuple[str, PhaseKind] | None:
        """Name and kind of the phase at a moment; the last one goes on while the last turns end."""
        run_s = self.run_s(perf_ns)
        if run_s is None:
            return None
        if self.phases:
            phase = phase_at(self.phases, run_s) or self.phases[-1]
            return phase.name, phase.kind
        if self._knows_spawning and (self._spawned_perf_ns is None or perf_ns < self._spawned_perf_ns):
            return RAMP_UP, RAMP
        return STEADY, "hold"
