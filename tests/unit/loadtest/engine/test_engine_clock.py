"""A step of the wall clock is detected in either direction, and slewing is not mistaken for a step."""

from collections.abc import Iterator

import pytest

from loadtest.engine.clock import STEP_NS, Clocks

MS = 1_000_000


class FakeClocks:
    """A monotonic clock that advances 100 ns per reading, and a wall clock at an offset from it."""

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
def test_step_of_wall_clock_is_detected_in_either_direction(step_ns: int) -> None:
    fake = FakeClocks()
    clocks = Clocks(fake.perf_ns, fake.unix_ns)
    clocks.measure()
    assert clocks.steps == 0
    fake.offset_ns += step_ns
    clocks.measure()
    assert clocks.steps == 1
    assert abs(clocks.drift_ns - step_ns) < 1000
    clocks.measure()
    assert clocks.steps == 1, "it was set once"


def test_slewing_is_not_a_step_and_adds_up_to_drift() -> None:
    fake = FakeClocks()
    clocks = Clocks(fake.perf_ns, fake.unix_ns)
    for _ in range(20):
        fake.offset_ns += STEP_NS // 2
        clocks.measure()
    assert clocks.steps == 0
    assert abs(clocks.drift_ns - 10 * STEP_NS) < 1000


def test_a_pause_during_a_measurement_is_not_a_step() -> None:
    fake = FakeClocks()
    clocks = Clocks(fake.perf_ns, fake.unix_ns)
    fake.pauses_ns = iter([40 * MS, 30 * MS, 0, 20 * MS, 25 * MS])
    clocks.measure()
    assert (clocks.steps, abs(clocks.drift_ns) < 1000) == (0, True), "the tightest attempt counts"
    fake.pauses_ns = iter([40 * MS] * 5)
    clocks.measure()
    assert clocks.steps == 0, "no attempt was tight enough to detect a step"
    clocks.measure()
    assert (clocks.steps, abs(clocks.drift_ns) < 1000) == (0, True), "and the offset stays correct"


def test_a_timestamp_converts_there_and_back() -> None:
    fake = FakeClocks()
    clocks = Clocks(fake.perf_ns, fake.unix_ns)
    moment = fake.perf_ns()
    assert clocks.to_perf_ns(clocks.to_unix_ns(moment)) == moment


@pytest.mark.parametrize(("early_ns", "steps"), [(0, 0), (STEP_NS, 0), (STEP_NS + 1, 1)])
def test_stamp_from_future_shows_that_wall_clock_was_set(early_ns: int, steps: int) -> None:
    fake = FakeClocks()
    clocks = Clocks(fake.perf_ns, fake.unix_ns)
    seen = 5_000_000_000
    assert clocks.received_perf_ns(seen - 7 + clocks.offset_ns, seen) == seen - 7
    assert clocks.received_perf_ns(seen + early_ns + clocks.offset_ns, seen) == seen
    assert clocks.steps == steps
