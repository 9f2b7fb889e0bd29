"""Scheduling requests, work that goes through one by one, and no full garbage collection: frames stay on time."""

import gc
import os
import subprocess
import sys
from itertools import pairwise

import gevent
import pytest
from gevent.event import Event

from loadtest.errors import UsageError
from loadtest.swarm import priority
from loadtest.swarm.priority import GcControl, GreenletThrottle


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(priority.VARIABLE, raising=False)


ASK = """
import os
from loadtest.swarm.priority import ask_for_priority
had = ask_for_priority()
child = os.fork()
if child == 0:
    os._exit(os.sched_getscheduler(0))
print(had.realtime, os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == os.SCHED_OTHER, had.niceness)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system has no such thing")
def test_real_time_priority_is_used_if_allowed_but_not_inherited() -> None:
    output = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True, text=True).stdout.split()
    realtime, is_so, child_is_as_others, _ = output
    assert realtime == is_so
    assert child_is_as_others == "True"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system has no such thing")
def test_asking_whether_real_time_is_allowed_changes_nothing() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(os.PRIO_PROCESS, 0)
    allowed = priority.may_be_realtime()
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(os.PRIO_PROCESS, 0)) == before
    done = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True, text=True)
    assert done.stdout.split()[0] == str(allowed)


def test_niceness_is_requested_if_real_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(pid: int, policy: int, param: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(priority, "_ask_for_niceness", lambda pid: asked.append(pid) or 5)
    assert priority.ask_for_priority() == priority.Priority(realtime=False, niceness=5)
    assert asked == [0]


def test_normal_priority_is_kept_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(priority.VARIABLE, "normal")
    done = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True, text=True)
    assert done.stdout.split()[0] == "False"
    assert not priority.may_be_realtime()


def test_a_priority_that_there_is_not_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(priority.VARIABLE, "highest")
    for ask in (priority.ask_for_priority, priority.may_be_realtime):
        with pytest.raises(UsageError, match=r"VOICEPROBE_PRIORITY=highest: .* set real-time or normal"):
            ask()


def ticks_and_work(throttle: GreenletThrottle) -> list[str]:
    """Do five pieces of work while the loop ticks; return the order of both."""
    seen: list[str] = []
    timer = gevent.get_hub().loop.timer(0.0, 0.0001)
    timer.start(lambda: seen.append("tick"))
    try:
        gevent.joinall([gevent.spawn(throttle.through, lambda: seen.append("work")) for _ in range(5)])
    finally:
        timer.stop()
        timer.close()
    return seen


def test_the_loop_turns_between_two_pieces_of_work() -> None:
    seen = ticks_and_work(GreenletThrottle())
    assert seen.count("work") == 5
    assert not any(pair == ("work", "work") for pair in pairwise(seen))


def test_short_work_is_done_in_one_iteration_of_the_loop() -> None:
    seen = ticks_and_work(GreenletThrottle(3600.0))
    first = seen.index("work")
    assert seen[first : first + 5] == ["work"] * 5


def test_killed_waiting_greenlet_still_runs_its_work() -> None:
    throttle, done, enough = GreenletThrottle(), list[str](), Event()
    first = gevent.spawn(throttle.through, lambda: (done.append("first"), enough.wait())[0])
    second = gevent.spawn(throttle.through, lambda: done.append("second"))
    gevent.sleep(0)  # what was spawned runs until it waits
    assert done == ["first"]
    second.kill()
    assert done == ["first", "second"]
    enough.set()
    first.join()
    throttle.through(lambda: done.append("third"))
    assert done[-1] == "third"


def test_a_fault_of_the_work_is_its_own() -> None:
    throttle, done = GreenletThrottle(), list[str]()

    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        throttle.through(broken)
    throttle.through(lambda: done.append("next"))
    assert done == ["next"]


def test_only_young_objects_are_walked_until_it_is_asked_for() -> None:
    before = gc.get_threshold()
    control = GcControl()
    full: list[int] = []
    gc.callbacks.append(lambda phase, info: full.append(info["generation"]) if phase == "stop" else None)
    try:
        control.disable_full_collections()
        full.clear()
        kept = [[number] for number in range(50_000)]
        assert full, "there were rounds"
        assert 2 not in full
        control.collect()
        assert full[-1] == 2
        assert len(kept) == 50_000
    finally:
        gc.callbacks.pop()
        control.close()  # what it has frozen stays so, with all that tests/conftest.py has: a full round takes a second
    assert gc.get_threshold() == before
    assert control._note not in gc.callbacks


@pytest.mark.slow
def test_rings_that_die_young_are_freed_without_a_full_round() -> None:
    control = GcControl()
    try:
        control.disable_full_collections()
        for _ in range(20_000):
            ring: list[object] = []
            ring.append(ring)
        rings = sum(
            type(tracked) is list and len(tracked) == 1 and tracked[0] is tracked for tracked in gc.get_objects()
        )
        assert rings < 2_000
    finally:
        control.close()


@pytest.mark.slow
def test_the_longest_round_is_reported_once() -> None:
    control = GcControl()
    try:
        gc.collect()
        assert control.take_worst_ns() > 0
        assert control.take_worst_ns() == 0
        control.collect()
        assert control.take_worst_ns() == 0, "it was made when it held up nobody"
    finally:
        control.close()
