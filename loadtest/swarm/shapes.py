"""The callers that there are to be at a moment of a run: the phases of a scenario as a Locust shape."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from locust import LoadTestShape

from loadtest.scenario.phases import LoadProfile, Phase, RunClock


class ScenarioShape(LoadTestShape):
    """Asks the course of the phases what is wanted at this moment of the run.

    It says that it is abstract so that Locust does not find it in a locustfile: there it would take `--users` and
    `--run-time` their meaning also where there are no phases.
    """

    abstract = True

    def __init__(self, phases: Sequence[Phase], clock: Callable[[], RunClock | None]) -> None:
        super().__init__()
        self._load_profile, self._clock = LoadProfile(phases), clock

    def tick(self) -> Any:
        """Return what Locust asks once a second."""
        clock = self._clock()
        run_s = None if clock is None else clock.run_s(time.perf_counter_ns())
        return self._load_profile.tick(run_s, 0 if self.runner is None else self.runner.user_count)
