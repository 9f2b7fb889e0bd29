"""Work goes through one by one, others get their turn between, and nothing is lost to a kill."""

from itertools import pairwise

import gevent
import pytest
from gevent.event import Event

from loadtest.swarm.priority import GreenletThrottle


def test_the_loop_turns_between_two_pieces_of_work() -> None:
    throttle, seen = GreenletThrottle(), list[str]()
    timer = gevent.get_hub().loop.timer(0.0, 0.0001)
    timer.start(lambda: seen.append("tick"))
    try:
        gevent.joinall([gevent.spawn(throttle.through, lambda: seen.append("work")) for _ in range(5)])
    finally:
        timer.stop()
        timer.close()
    assert seen.count("work") == 5
    assert not any(pair == ("work", "work") for pair in pairwise(seen))


def test_short_work_is_done_in_one_iteration_of_the_loop() -> None:
    throttle, seen = GreenletThrottle(3600.0), list[str]()
    timer = gevent.get_hub().loop.timer(0.0, 0.0001)
    timer.start(lambda: seen.append("tick"))
    try:
        gevent.joinall([gevent.spawn(throttle.through, lambda: seen.append("work")) for _ in range(5)])
    finally:
        timer.stop()
        timer.close()
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
