"""The ticker calls at multiples of its spacing on an absolute schedule."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine import ticker
from loadtest.engine.ticker import TICK_NS, Ticker

BASE = 7_000_003


class Timer:
    """A timer that notes how it is armed, and fires on demand."""

    fd = 99

    def __init__(self) -> None:
        self.armed: list[tuple[int, int]] = []
        self.arms = True
        self.is_due = False
        self.closed = False

    def arm(self, first_perf_ns: int, interval_ns: int = 0) -> bool:
        self.armed.append((first_perf_ns, interval_ns))
        return self.arms

    def fired(self) -> bool:
        return self.is_due

    def close(self) -> None:
        self.closed = True


class Watcher:
    """A watcher of the hub's loop, called by hand."""

    def __init__(self, *arguments: object, **options: object) -> None:
        self.arguments, self.options = arguments, options
        self.active = False

    def start(self, callback: Any) -> None:
        self.callback, self.active = callback, True

    def stop(self) -> None:
        self.active = False

    def close(self) -> None:
        self.active = False


class Loop:
    """A loop that makes such watchers."""

    io = timer = staticmethod(Watcher)


def _ticker(monkeypatch: pytest.MonkeyPatch, timer: Timer | None, ticks: list[None]) -> Ticker:
    def opened() -> Timer | None:
        return timer

    monkeypatch.setattr(ticker.TimerFd, "open", opened)
    return Ticker(Loop(), lambda: ticks.append(None), BASE)


def test_a_tick_is_called_only_when_the_timer_has_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, ticks = Timer(), list[None]()
    made = _ticker(monkeypatch, timer, ticks)
    watcher: Any = made._watcher
    watcher.callback()
    assert ticks == []
    timer.is_due = True
    watcher.callback()
    assert len(ticks) == 1
    made.close()
    watcher.callback()
    assert (len(ticks), timer.closed, watcher.active) == (1, True, False)


def test_another_spacing_arms_the_timer_on_the_same_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer()
    made = _ticker(monkeypatch, timer, [])
    made.space(2, BASE + 7 * TICK_NS + 300)
    made.space(1, BASE + 8 * TICK_NS + 300)
    first = (BASE + TICK_NS, TICK_NS)
    assert timer.armed == [first, (BASE + 8 * TICK_NS, 2 * TICK_NS), (BASE + 9 * TICK_NS, TICK_NS)]
    assert made.kind == "timerfd"


def test_a_timer_that_cannot_be_set_goes_on_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer()
    made = _ticker(monkeypatch, timer, [])
    timer.arms = False
    made.space(2, BASE)
    assert made.spacing_ticks == 1


def test_the_timer_of_the_hub_goes_on_with_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = list[None]()
    made = _ticker(monkeypatch, None, ticks)
    made.space(2, BASE)
    watcher: Any = made._watcher
    watcher.callback()
    assert (made.kind, made.spacing_ticks, len(ticks)) == ("timer", 1, 1)
    assert watcher.arguments == (TICK_NS / 1e9, TICK_NS / 1e9)


@given(st.integers(0, 10**9), st.sampled_from([1, 2]))
def test_the_next_call_is_at_the_next_multiple_of_the_spacing(after: int, spacing: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        made = _ticker(patch, Timer(), [])
        made.space(spacing, BASE)
        following = made.next_perf_ns(BASE + after) - BASE
    assert following % (spacing * TICK_NS) == 0
    assert 0 < following - after <= spacing * TICK_NS
