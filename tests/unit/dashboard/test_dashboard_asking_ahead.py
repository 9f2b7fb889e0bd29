"""What a page will ask at its next refresh is asked before: when, how often, and that the page is given that answer."""

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from dashboard import early_answers, frame
from dashboard.asking_ahead import NextAnswer, ask_now, later
from telemetry.store.reader import StoreReader
from tests.unit.dashboard.counted import counted
from tests.unit.dashboard.opened_pages import opened
from tests.unit.dashboard.scenes import Scene, fill

BOUND_S = 60

Planned = list[tuple[float, Callable[[], object]]]


class Clock:
    """A clock that is set by what takes time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def taking(self, seconds: float) -> Callable[[], str]:
        def ask() -> str:
            self.now_s += seconds
            return "the answer"

        return ask


def test_a_question_is_asked_so_early_that_its_answer_is_there_when_the_refresh_begins(planned: Planned) -> None:
    clock = Clock()
    answers = NextAnswer(2.0, clock)
    for took_s in (0.4, 0.4, 0.8, 0.2):
        assert answers.after(clock.taking(0.0), clock.taking(took_s)) == "the answer"
        delay_s, ask_ahead = planned.pop()
        ask_ahead()
        next_delay_s = _planned_delay_s(answers, clock, planned)
        assert delay_s < 2.0
        # As long again is answered in time, with something to spare, and not long before.
        assert 0.0 < 2.0 - next_delay_s - took_s <= 0.1


def _planned_delay_s(answers: NextAnswer, clock: Clock, planned: Planned) -> float:
    answers.after(clock.taking(0.0), clock.taking(0.0))
    return planned.pop()[0]


def test_a_slow_question_leaves_a_browser_time_to_draw(planned: Planned) -> None:
    clock = Clock()
    answers = NextAnswer(2.0, clock)
    answers.after(clock.taking(0.0), clock.taking(30.0))
    planned.pop()[1]()
    assert _planned_delay_s(answers, clock, planned) == pytest.approx(0.5)


def test_nothing_is_planned_behind_an_answer_that_came_too_late(planned: Planned) -> None:
    clock = Clock()
    answers = NextAnswer(2.0, clock)
    answers.after(clock.taking(0.0), clock.taking(0.9))
    planned.pop()[1]()
    answers.after(clock.taking(1.5), clock.taking(0.9))
    assert planned == []
    answers.after(clock.taking(0.1), clock.taking(0.9))
    assert len(planned) == 1


@pytest.mark.parametrize("took_s", [0.9, 1.1, 1.4])
def test_a_refresh_that_had_to_wait_is_followed_by_ones_that_do_not(planned: Planned, took_s: float) -> None:
    clock, waited = Clock(), list[float]()
    answers = NextAnswer(2.0, clock)
    answers.after(clock.taking(0.0), clock.taking(took_s))
    planned.pop()[1]()
    waits_s = took_s  # the answer that was asked ahead did not come, so the page asks by itself
    for _ in range(8):
        answers.after(clock.taking(waits_s), clock.taking(took_s))
        waited.append(waits_s)
        ((delay_s, ask_ahead),) = planned
        planned.clear()
        ask_ahead()
        waits_s = max(0.0, waits_s + delay_s + took_s - 2.0)
    assert waited == sorted(waited, reverse=True)
    assert waited[-1] == pytest.approx(0.0, abs=1e-9)


def test_a_page_that_does_not_refresh_plans_nothing(planned: Planned) -> None:
    assert NextAnswer(None).after(lambda: 1, lambda: 2) == 1
    assert planned == []


def test_what_fails_is_raised_and_nothing_is_planned(planned: Planned) -> None:
    def fails() -> str:
        raise ValueError("no store")

    with pytest.raises(ValueError, match="no store"):
        NextAnswer(2.0).after(fails, fails)
    assert planned == []


def test_as_many_questions_as_are_being_asked_are_not_added_to(capfd: pytest.CaptureFixture[str]) -> None:
    may_end, begun, ended = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def ask() -> None:
        begun.release()
        assert may_end.wait(BOUND_S)
        ended.release()
        raise OSError("a disk that cannot be read")

    for _ in range(2):
        ask_now(ask, "a question")
    for _ in range(2):
        assert begun.acquire(timeout=BOUND_S)
    ask_now(ask, "one too many")
    assert not begun.acquire(timeout=0.2)
    may_end.set()
    for _ in range(2):
        assert ended.acquire(timeout=BOUND_S)
    until_s = time.monotonic() + BOUND_S
    ask_now(ask, "another")
    while not begun.acquire(timeout=0.1):
        assert time.monotonic() < until_s
        ask_now(ask, "another")
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["now", "turns", "cohorts", "objectives", "cache", "instrument"])
def test_a_refresh_is_given_what_was_asked_ahead_of_it(
    store: Path, monkeypatch: pytest.MonkeyPatch, planned: Planned, name: str
) -> None:
    """Also where the store has changed in between."""
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=False))
    states, asked = count(), list[str]()
    monkeypatch.setattr(StoreReader, "state", lambda _reader: next(states))
    monkeypatch.setattr(early_answers, "YOUNG_S", BOUND_S)
    for method in ("page", "turns_page", "objectives_page", "cohorts_page", "cache_page", "instrument_page"):
        monkeypatch.setattr(StoreReader, method, counted(method, getattr(StoreReader, method), asked))
    opened(name)
    ((delay_s, ask_ahead),) = planned
    assert 0 < delay_s < (frame.REFRESH_STALE_S if name == "objectives" else frame.REFRESH_LIVE_S)
    before = len(asked)
    ask_ahead()
    assert len(asked) == before + 1
    opened(name)
    assert len(asked) == before + 1


@pytest.mark.slow
def test_a_viewer_who_chooses_something_else_does_not_wait_for_what_was_planned(store: Path, planned: Planned) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=False))
    app = opened("now")
    (before,) = planned
    app.query_params["noise"] = "clean"
    app.run()
    assert not app.exception
    assert len(planned) == 1
    assert planned != [before]


def test_what_is_called_off_is_not_asked() -> None:
    asked = threading.Event()
    call_off = later(BOUND_S, asked.set)
    call_off()
    waiting = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    for each in waiting:
        each.join(BOUND_S)
    assert not asked.is_set()


@pytest.mark.slow
def test_a_run_that_has_ended_is_not_asked_for_again(store: Path, planned: Planned) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    opened("now")
    assert planned == []
