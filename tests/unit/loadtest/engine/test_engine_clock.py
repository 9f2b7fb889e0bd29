"""A wall clock that is set is found, in either direction; one that is slewed is not taken for it."""

from collections.abc import Iterator

import pytest

from loadtest.engine.clock import STEP_NS, Clocks

MS = 1_000_000


class World:
    """A monotonic clock that passes 100 ns with each look, and a wall clock at an offset from it."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.offset_ns = 1_700_000_000_000_000_000
        self.pauses_ns: Iterator[int] = iter(())

    def perf_ns(self) -> int:
        self.now_ns += 100
        return self.now_ns

    def unix_ns(self) -> int:
        self.now_ns += next(self.pauses_ns, 0)
        return self.now_ns + self.offset_ns


@pytest.mark.parametrize("step_ns", [-80 * MS, -2 * MS, 2 * MS, 80 * MS])
def test_a_wall_clock_that_was_set_is_found_in_either_direction(step_ns: int) -> None:
    world = World()
    clocks = Clocks(world.perf_ns, world.unix_ns)
    clocks.measure()
    assert clocks.steps == 0
    world.offset_ns += step_ns
    clocks.measure()
    assert clocks.steps == 1
    assert abs(clocks.drift_ns - step_ns) < 1000
    clocks.measure()
    assert clocks.steps == 1, "it was set once"


def test_slewing_is_no_step_and_adds_up_to_a_drift() -> None:
    world = World()
    clocks = Clocks(world.perf_ns, world.unix_ns)
    for _ in range(20):
        world.offset_ns += STEP_NS // 2
        clocks.measure()
    assert clocks.steps == 0
    assert abs(clocks.drift_ns - 10 * STEP_NS) < 1000


def test_a_pause_in_the_middle_of_a_measure_is_no_step() -> None:
    world = World()
    clocks = Clocks(world.perf_ns, world.unix_ns)
    world.pauses_ns = iter([40 * MS, 30 * MS, 0, 20 * MS, 25 * MS])
    clocks.measure()
    assert (clocks.steps, abs(clocks.drift_ns) < 1000) == (0, True), "the tightest try decides"
    world.pauses_ns = iter([40 * MS] * 5)
    clocks.measure()
    assert clocks.steps == 0, "no try was tight enough to accuse the clock"
    clocks.measure()
    assert (clocks.steps, abs(clocks.drift_ns) < 1000) == (0, True), "nor did it leave an offset that is wrong"


def test_a_stamp_is_carried_over_and_back() -> None:
    world = World()
    clocks = Clocks(world.perf_ns, world.unix_ns)
    moment = world.perf_ns()
    assert clocks.to_perf_ns(clocks.to_unix_ns(moment)) == moment
