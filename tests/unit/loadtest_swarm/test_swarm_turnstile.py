"""Work goes through one by one, others get their turn between, and nothing is lost to a kill."""

from itertools import pairwise

import gevent
import pytest

from loadtest.swarm.turnstile import Turnstile


def test_the_loop_turns_between_two_pieces_of_work() -> None:
    turnstile, seen = Turnstile(), list[str]()
    timer = gevent.get_hub().loop.timer(0.0, 0.0001)
    timer.start(lambda: seen.append("tick"))
    try:
        gevent.joinall([gevent.spawn(turnstile.through, lambda: seen.append("work")) for _ in range(5)])
    finally:
        timer.stop()
        timer.close()
    assert seen.count("work") == 5
    assert not any(pair == ("work", "work") for pair in pairwise(seen))


def test_who_is_killed_while_he_waits_leaves_his_work_done() -> None:
    turnstile, done = Turnstile(), list[str]()
    first = gevent.spawn(turnstile.through, lambda: (done.append("first"), gevent.sleep(0.05))[0])
    second = gevent.spawn(turnstile.through, lambda: done.append("second"))
    gevent.sleep(0.01)
    assert done == ["first"]
    second.kill()
    assert done == ["first", "second"]
    first.join()
    turnstile.through(lambda: done.append("third"))
    assert done[-1] == "third"


def test_a_fault_of_the_work_is_its_own() -> None:
    turnstile, done = Turnstile(), list[str]()

    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        turnstile.through(broken)
    turnstile.through(lambda: done.append("next"))
    assert done == ["next"]
