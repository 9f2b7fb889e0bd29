"""The turns of a call are recorded once each, whatever ends the caller."""

from types import SimpleNamespace
from typing import Any

import gevent
import gevent.queue
from gevent.event import Event

from loadtest.swarm.greenlet_throttle import GreenletThrottle
from loadtest.swarm.recording import Recording


def recording(*waiting: object) -> tuple[Recording, list[Any]]:
    done: list[Any] = []
    queue: Any = gevent.queue.SimpleQueue()
    for each in waiting:
        queue.put(each)
    made = Recording(lambda call, exchange: done.append(exchange), lambda call: done.append("end"))
    made.began(SimpleNamespace(exchanges=queue))  # type: ignore[arg-type]
    return made, done


def test_what_waits_is_recorded_in_its_order_and_then_the_call_ends() -> None:
    made, done = recording("first", "second", None)
    made.rest()
    assert done == ["first", "second", "end"]


def test_what_is_in_hand_comes_first_and_only_once() -> None:
    made, done = recording("second", None)
    made.take("first")  # type: ignore[arg-type]
    made.rest()
    made.record()
    made.rest()
    assert done == ["first", "second", "end", "end"]


def test_a_call_that_never_began_ends_without_a_turn() -> None:
    done: list[str] = []
    Recording(lambda call, exchange: done.append("turn"), lambda call: done.append("end")).rest()
    assert done == ["end"]


def test_a_caller_killed_at_the_throttle_has_recorded_its_turn_once() -> None:
    throttle, (made, done) = GreenletThrottle(), recording("second")
    enough = Event()
    busy = gevent.spawn(throttle.through, enough.wait)
    gevent.sleep(0.01)

    def caller() -> None:
        made.take("first")  # type: ignore[arg-type]
        try:
            throttle.through(made.record)
        finally:
            made.rest()

    waiting = gevent.spawn(caller)
    gevent.sleep(0.01)
    assert done == []
    waiting.kill()
    assert done == ["first", "second", "end"]
    enough.set()
    busy.join()
