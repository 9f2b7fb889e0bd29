"""Open arrivals in one process: calls begin when the schedule says so, each a greenlet of its own.

Locust's users only wait meanwhile: the number of calls depends on the endpoint and not on theirs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import gevent
from gevent.pool import Group

from loadtest.conversation.plan import CallPlan
from loadtest.scenario.arrivals import Due, Ledger, Share, schedule
from loadtest.scenario.phases import Phase, RunClock
from telemetry.export.instrumentation import PhaseStarts

LOOK_EVERY_S: Final = 0.1
START_LOOK_S: Final = 0.005

PlanCall = Callable[[int], CallPlan]  # the next call, with its intended start
MakeCall = Callable[[CallPlan, Callable[[], None]], object]  # from its start, which it reports, to its end


class OpenCalls:
    """Begins this process's share of the scheduled calls until it is stopped or all have begun."""

    def __init__(
        self,
        clock: RunClock,
        phases: Sequence[Phase],
        *,
        seed: int,
        share: Share,
        calls: int | None,
        max_calls: int,
        perf_ns: Callable[[], int],
    ) -> None:
        """`calls` limits the schedule to its first ones (None: all); `max_calls` is of the whole run."""
        self._clock, self._share, self._calls = clock, share, calls
        self._schedule = schedule(phases, seed)
        self._ledger = Ledger(phases, share_of_limit(max_calls, share))
        self._perf_ns = perf_ns
        self._under_way = Group()
        self._stopped = False
        self._driver: gevent.Greenlet[..., None] | None = None

    @property
    def under_way(self) -> int:
        """Calls that have begun, or are about to, and have not ended."""
        return len(self._under_way)

    def report(self) -> list[PhaseStarts]:
        """Return how the calls of every phase that has begun began so far."""
        run_s = self._clock.run_s(self._perf_ns())
        if run_s is None:
            return []
        return [
            PhaseStarts(phase.name, phase.kind, phase.begin_s, s.planned, s.started, s.late, s.dropped)
            for phase, s in self._ledger.until(run_s).items()
        ]

    def begin(self, plan: PlanCall, make: MakeCall) -> None:
        """Go by the schedule from the start of the run's clock."""
        if not self._share.late:  # one that came late has no share of what was dealt out
            self._driver = gevent.spawn(self._drive, plan, make)

    def stop(self) -> None:
        """Begin no further call."""
        self._stopped = True

    def join(self, timeout_s: float) -> None:
        """Wait for the calls under way; what has not ended by then is cut off."""
        if self._driver is not None:
            self._driver.join(LOOK_EVERY_S * 2)
        self._under_way.join(timeout_s)
        self._under_way.kill()

    def _drive(self, plan: PlanCall, make: MakeCall) -> None:
        while (began := self._clock.started_perf_ns) is None:
            if self._stopped:
                return
            gevent.sleep(START_LOOK_S)
        for due in self._schedule:
            if self._calls is not None and due.number >= self._calls:
                return
            if due.number % self._share.of != self._share.index:
                continue
            intended_perf_ns = began + due.at_ns
            if not self._wait_until(intended_perf_ns):
                return
            call = plan(intended_perf_ns)  # also of a call that is missed: what the others say depends on no cap
            if self._ledger.may_begin(due, self.under_way):
                self._under_way.spawn(make, call, self._teller(due, intended_perf_ns))

    def _wait_until(self, perf_ns: int) -> bool:
        """Return whether the moment came before somebody stopped the run."""
        while not self._stopped:
            left_ns = perf_ns - self._perf_ns()
            if left_ns <= 0:
                return True
            gevent.sleep(min(LOOK_EVERY_S, left_ns / 1e9))
        return False

    def _teller(self, due: Due, intended_perf_ns: int) -> Callable[[], None]:
        def began() -> None:
            self._ledger.began(due, self._perf_ns() - intended_perf_ns)

        return began


def share_of_limit(most: int, share: Share) -> int:
    """This process's part of a limit of the whole run; at least one."""
    return max(1, math.ceil((most - share.index) / share.of))
