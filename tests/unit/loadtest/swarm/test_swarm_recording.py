"""The turns of a call are recorded once each, whatever ends the caller."""

from types import SimpleNamespace
from typing import Any

import gevent
import gevent.queue
from gevent.event import Event

from loadtest.conversation.state import State
from loadtest.swarm.priority import GreenletThrottle
from loadtest.swarm.worker import Recording


def recording(*waiting: object) -> tuple[Recording, list[Any]]:
    done: list[Any] = []
    queue: Any = gevent.queue.SimpleQueue()
    for item in waiting:
        queue.put(item)
    made = Recording(lambda call, exchange: done.append(exchange), lambda call: done.append("end"))
    made.began(a_call(queue))
    return made, done


def a_call(queue: Any = None, state: State = State.THINKING) -> Any:
    return SimpleNamespace(exchanges=queue, conversation=SimpleNamespace(state=state))


def turn(name: str, *, awaits_more: bool = False) -> Any:
    return SimpleNamespace(name=name, awaits_more=awaits_more)


def taken(*turns: Any, call: Any) -> tuple[Recording, list[str]]:
    done: list[str] = []
    made = Recording(lambda _, turn: done.append(turn.name), lambda _: done.append("end"))  # type: ignore[attr-defined]
    made.began(call)
    for turn in turns:
        made.take(turn)
        made.record()
    return made, done


def test_turn_awaiting_transcript_is_recorded_with_next_ended() -> None:
    first = turn("first", awaits_more=True)
    made, done = taken(first, turn("second"), call=a_call())
    assert done == ["second"]
    first.awaits_more = False
    made.take(turn("third"))
    made.record()
    assert done == ["second", "first", "third"]


def test_every_turn_is_recorded_at_end_of_call_in_order() -> None:
    call = a_call()
    made, done = taken(turn("first", awaits_more=True), turn("second", awaits_more=True), call=call)
    assert done == []
    call.conversation.state = State.OVER
    made.take(turn("third"))
    made.record()
    assert done == ["first", "second", "third"]


def test_turn_awaiting_transcript_is_recorded_when_caller_leaves() -> None:
    queue: Any = gevent.queue.SimpleQueue()
    queue.put(turn("second"))
    made, done = taken(turn("first", awaits_more=True), call=a_call(queue))
    made.rest()
    assert done == ["first", "second", "end"]


def test_waiting_turns_are_recorded_in_order_before_call_ends() -> None:
    made, done = recording("first", "second", None)
    made.rest()
    assert done == ["first", "second", "end"]


def test_turn_in_hand_is_recorded_first_and_once() -> None:
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


def test_caller_killed_at_throttle_has_recorded_its_turn_once() -> None:
    throttle, (made, done) = GreenletThrottle(), recording("second")
    enough, first = Event(), turn("first")
    busy = gevent.spawn(throttle.through, enough.wait)
    gevent.sleep(0)  # what was spawned runs until it waits

    def caller() -> None:
        made.take(first)
        try:
            throttle.through(made.record)
        finally:
            made.rest()

    waiting = gevent.spawn(caller)
    gevent.sleep(0)
    assert done == []
    waiting.kill()
    assert done == [first, "second", "end"]
    enough.set()
    busy.join()
