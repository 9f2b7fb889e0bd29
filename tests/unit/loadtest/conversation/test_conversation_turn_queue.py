"""What of a plan is still to come, and whether it may begin."""

from dataclasses import replace

import pytest

from loadtest.conversation.plan import TurnQueue
from loadtest.conversation.state import PlanState
from tests.unit.loadtest.conversation.world import MS, make_plan

BASE = make_plan().turns[0]
TURNS = tuple(replace(BASE, think_ns=number * MS) for number in range(3))


def test_turns_are_taken_in_their_order_until_none_is_left() -> None:
    queue = TurnQueue(TURNS)
    taken = [queue.begin(), queue.begin()]
    assert queue.may_begin
    assert queue.following is TURNS[2]
    assert [*taken, queue.begin()] == list(enumerate(TURNS))
    assert (queue.may_begin, queue.following, queue.state) == (False, None, PlanState.ALL_BEGUN)
    with pytest.raises(IndexError):
        queue.begin()


def test_a_queue_that_winds_down_still_has_its_turn_but_lets_none_begin() -> None:
    queue = TurnQueue(TURNS)
    queue.begin()
    queue.wind_down()
    assert (queue.may_begin, queue.following) == (False, TURNS[1])
    assert queue.begin() == (1, TURNS[1]), "taken to record that it failed"
    assert queue.state is PlanState.WINDING_DOWN


def test_a_plan_without_turns_has_begun_them_all() -> None:
    queue = TurnQueue(())
    assert (queue.may_begin, queue.following, queue.state) == (False, None, PlanState.ALL_BEGUN)
