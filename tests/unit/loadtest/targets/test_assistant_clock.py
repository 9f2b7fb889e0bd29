"""The assistant's clock on real event loops: exact waits are never early, and take no processor time meanwhile."""

import asyncio
import contextlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from loadtest.targets.assistant import clock as clock_module
from loadtest.targets.assistant.clock import Clock
from loadtest.timerfd import TimerFd

MS = 1_000_000
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
def yields(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each sleep of the clock was asked to be."""
    asked: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        asked.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(clock_module.asyncio, "sleep", counted)
    return asked


async def _late_ns(clock: Clock, after_ns: int) -> int:
    due_ns = clock.perf_ns() + after_ns
    await clock.until_exactly(due_ns)
    return clock.perf_ns() - due_ns


@LOOPS
def test_many_exact_waits_at_once_are_never_early_and_never_yield(new_loop: NewLoop, yields: list[float]) -> None:
    if (timer := TimerFd.open()) is None:
        pytest.skip("this system has no timers as file descriptors")
    timer.close()
    clock = Clock()

    async def wait() -> list[int]:
        return await asyncio.gather(*(_late_ns(clock, number * MS // 4) for number in range(-2, 60)))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        found = runner.run(wait())
    assert min(found) >= 0
    assert yields.count(0) == 0
    assert len(yields) > 25  # most are more than two milliseconds away


@LOOPS
def test_without_such_a_timer_it_yields_until_the_time_has_come(
    new_loop: NewLoop, yields: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module.TimerFd, "open", classmethod(lambda cls: None))
    asked = count(0, MS)  # every look at the clock is a millisecond later than the one before
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter_ns=lambda: next(asked)))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(Clock().until_exactly(10 * MS))
    assert next(asked) == 11 * MS
    assert yields[0] == 0.008
    assert set(yields[1:]) == {0}


@LOOPS
def test_a_timer_that_cannot_be_set_changes_nothing(new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module.TimerFd, "arm", lambda timer, first_perf_ns: False)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(_late_ns(Clock(), 5 * MS)) >= 0


@LOOPS
def test_waits_give_their_timers_back_also_when_they_are_cancelled(
    new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module, "_LEAD_NS", 3600 * 1000 * MS)  # so that the wait begins with the timer
    open_files = Path("/proc/self/fd") if Path("/proc/self/fd").is_dir() else Path("/dev/fd")
    clock = Clock()

    async def wait() -> tuple[int, int, int]:
        await _late_ns(clock, MS)
        before = len(list(open_files.iterdir()))
        waits = [asyncio.create_task(clock.until_exactly(clock.perf_ns() + 600_000 * MS)) for _ in range(20)]
        await asyncio.sleep(0)
        during = len(list(open_files.iterdir()))
        for each in waits:
            each.cancel()
        for each in waits:
            with contextlib.suppress(asyncio.CancelledError):
                await each
        await _late_ns(clock, MS)
        return before, during, len(list(open_files.iterdir()))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        before, during, after = runner.run(wait())
    assert after == before
    assert during in (before, before + 20)  # none where the system has no such timers
