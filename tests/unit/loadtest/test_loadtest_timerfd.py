"""The kernel's timer fires at a moment, or again and again, and says so once."""

import select
import time

import pytest

from loadtest.timerfd import TimerFd


@pytest.fixture
def timer() -> TimerFd:
    found = TimerFd.open()
    if found is None:
        pytest.skip("this system has no timer descriptors")
    return found


def wait(timer: TimerFd) -> bool:
    """Wait for it as the endpoint does; the limit is there for a timer that never fires."""
    return bool(select.select([timer.fd], [], [], 30.0)[0])


def test_a_moment_that_has_passed_fires_at_once_and_only_once(timer: TimerFd) -> None:
    assert not timer.fired()
    assert timer.arm(0)
    assert wait(timer)
    assert timer.fired()
    assert not timer.fired()
    timer.close()


def test_it_never_fires_early(timer: TimerFd) -> None:
    due = time.perf_counter_ns() + 3_000_000
    assert timer.arm(due)
    assert wait(timer)
    assert time.perf_counter_ns() >= due
    timer.close()


def test_an_interval_goes_on(timer: TimerFd) -> None:
    assert timer.arm(time.perf_counter_ns(), 1_000_000)
    for _ in range(3):
        assert wait(timer)
        assert timer.fired()
    timer.close()
