"""Open arrivals (one seeded schedule for the whole run) and the share of its calls that a process plans. Pure.

The schedule counts in expected calls: with a rate that may change in a line, the rate's integral. Constant arrivals
come where it is 0, 1, 2 …; Poisson arrivals come apart by amounts drawn from the exponential distribution of mean 1.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.scenario.phases import STEADY, Arrival, Phase


@dataclass(frozen=True, slots=True)
class Share:
    """Process `index` of `of` plans call k where k mod `of` == `index`.

    One that joined when the calls were dealt out already has a sequence of its own, named by `late`.
    """

    index: int = 0
    of: int = 1
    late: str = ""

    def next_from(self, number: int) -> int:
        """The first call of this share that is not before `number`."""
        return number + (self.index - number) % self.of

    def count(self, calls: int) -> int:
        """Return how many of the first `calls` calls of the sequence are in this share; none for one that came late."""
        return 0 if self.late else len(range(self.index, calls, self.of))


WHOLE = Share()


def deal(present: Sequence[int], worker: int) -> Share:
    """The share of a worker, given the numbers of those that were there when the run began."""
    if worker in present:
        return Share(sorted(present).index(worker), len(present))
    return Share(late=f"late-{worker}")


# Beyond this a start counts as late. Its latency is taken from the intended start all the same.
LATE_START_NS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Due:
    """A call that is to begin `at_ns` after the start of the run, the `number`-th of all of them."""

    number: int
    at_ns: int
    phase: Phase


def unending(arrival: Arrival, rate_per_s: float) -> Phase:
    """The one phase of a run without phases: it lasts until somebody ends the run."""
    return Phase(STEADY, "hold", 0.0, math.inf, "rate", rate_per_s, rate_per_s, arrival)


def schedule(phases: Sequence[Phase], seed: int) -> Iterator[Due]:
    """All calls of a run in order; without an end where the last phase has none."""
    draw = random.Random(f"{seed}/arrivals")  # noqa: S311 - a schedule, not a secret
    number, expected = 0, 0.0  # expected calls at the beginning of the phase
    following: float | None = None  # the amount of expected calls at which the next one comes
    for phase in phases:
        whole = (phase.level_from + phase.level_to) / 2 * phase.duration_s
        if following is None:
            following = draw.expovariate(1.0) if phase.arrival == "poisson" else 0.0
        while following < expected + whole:
            at_s = phase.begin_s + _seconds_until(phase, following - expected)
            yield Due(number, round(at_s * 1e9), phase)
            number += 1
            following += draw.expovariate(1.0) if phase.arrival == "poisson" else 1.0
        expected += whole


def _seconds_until(phase: Phase, amount: float) -> float:
    """Return how long into the phase so many calls are expected: the inverse of the rate's integral."""
    begin, slope = phase.level_from, (phase.level_to - phase.level_from) / phase.duration_s
    if not amount:
        return 0.0
    return 2 * amount / (begin + math.sqrt(max(0.0, begin * begin + 2 * slope * amount)))


@dataclass(slots=True)
class Starts:
    """The begun calls of one phase so far."""

    planned: int = 0
    started: int = 0
    late: int = 0
    dropped: int = 0


class Ledger:
    """Counts the starts of a process, phase by phase. Nothing is dropped: planned = started + missed once all that was
    due has been dealt with."""

    def __init__(self, phases: Sequence[Phase], most_calls: int) -> None:
        """At most `most_calls` may be under way in this process."""
        self._starts = {phase: Starts() for phase in phases}
        self._most_calls = most_calls

    def may_begin(self, due: Due, calls_under_way: int) -> bool:
        """Return whether a call that is due may begin; one that may not is missed."""
        starts = self._starts[due.phase]
        starts.planned += 1
        if calls_under_way < self._most_calls:
            return True
        starts.dropped += 1
        return False

    def began(self, due: Due, late_ns: int) -> None:
        """A call that was due has begun, so much later than intended."""
        starts = self._starts[due.phase]
        starts.started += 1
        if late_ns > LATE_START_NS:
            starts.late += 1

    def until(self, run_s: float) -> dict[Phase, Starts]:
        """The counts of every phase that has begun."""
        return {phase: starts for phase, starts in self._starts.items() if phase.begin_s <= run_s}
