"""The tables of states: whole, without dead ends, and what the code runs on."""

import ast
import itertools
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from loadtest.conversation import conversation
from loadtest.conversation import plan as plans
from loadtest.conversation.conversation import Conversation
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.state import (
    PLAN_TRANSITIONS,
    TRANSITIONS,
    Input,
    InvalidTransitionError,
    PlanInput,
    PlanState,
    State,
    next_state,
)
from loadtest.errors import InstrumentError
from tests.unit.loadtest.conversation.world import make_plan

Table = Mapping[Any, Mapping[Any, Any]]


def reached(table: Table, start: Hashable) -> set[Hashable]:
    """Every state that some inputs lead to."""
    found, open_ends = {start}, [start]
    while open_ends:
        for following in table[open_ends.pop()].values():
            if following not in found:
                found.add(following)
                open_ends.append(following)
    return found


def faults(table: Table, states: Iterable[Enum], inputs: Iterable[Enum], start: Enum, end: Enum) -> list[str]:
    """What is wrong with a table: states that are not there, not reached, or without a way to the end; idle inputs."""
    found = [f"{state.name} has no row" for state in states if state not in table]
    if found:
        return found
    found += [f"{state.name} is never reached" for state in states if state not in reached(table, start)]
    found += [f"{state.name} has no way to {end.name}" for state in states if end not in reached(table, state)]
    used = {happened for row in table.values() for happened in row}
    return found + [f"{happened.name} has no transition" for happened in inputs if happened not in used]


def test_every_state_of_a_caller_is_reached_and_has_a_way_to_the_end() -> None:
    assert faults(TRANSITIONS, State, Input, State.CONNECTING, State.OVER) == []


def test_every_state_of_a_plan_is_reached_and_can_wind_down() -> None:
    assert faults(PLAN_TRANSITIONS, PlanState, PlanInput, PlanState.TURNS_LEFT, PlanState.WINDING_DOWN) == []


class Door(Enum):
    OPEN = 1
    SHUT = 2
    LOCKED = 3


class Hand(Enum):
    PUSH = 1
    TURN_KEY = 2


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({Door.OPEN: {Hand.PUSH: Door.SHUT}, Door.SHUT: {}}, "LOCKED has no row"),
        (
            {Door.OPEN: {Hand.PUSH: Door.SHUT}, Door.SHUT: {}, Door.LOCKED: {Hand.TURN_KEY: Door.SHUT}},
            "LOCKED is never reached",
        ),
        (
            {
                Door.OPEN: {Hand.PUSH: Door.SHUT, Hand.TURN_KEY: Door.LOCKED},
                Door.SHUT: {Hand.PUSH: Door.SHUT},
                Door.LOCKED: {},
            },
            "LOCKED has no way to SHUT",
        ),
        (
            {
                Door.OPEN: {Hand.PUSH: Door.LOCKED},
                Door.LOCKED: {Hand.PUSH: Door.SHUT},
                Door.SHUT: {},
            },
            "TURN_KEY has no transition",
        ),
    ],
)
def test_a_table_with_a_hole_is_noticed(table: Table, fault: str) -> None:
    assert faults(table, Door, Hand, Door.OPEN, Door.SHUT) == [fault]


def test_nothing_leaves_the_end_and_every_call_can_be_lost_or_cut() -> None:
    assert TRANSITIONS[State.OVER] == {}
    for state in set(State) - {State.OVER}:
        assert TRANSITIONS[state][Input.SESSION_ENDED] is State.OVER
        assert TRANSITIONS[state][Input.CUT] is State.OVER


@pytest.mark.parametrize(
    ("table", "state", "happened"),
    [
        *((TRANSITIONS, *pair) for pair in itertools.product(State, Input) if pair[1] not in TRANSITIONS[pair[0]]),
        (PLAN_TRANSITIONS, PlanState.ALL_BEGUN, PlanInput.TURN_BEGAN),
        (PLAN_TRANSITIONS, PlanState.ALL_BEGUN, PlanInput.LAST_TURN_BEGAN),
    ],
)
def test_a_transition_that_the_table_lacks_is_refused(table: Table, state: Enum, happened: Enum) -> None:
    with pytest.raises(InvalidTransitionError, match=f"{happened.name} .* cannot happen in {state.name} "):
        next_state(table, state, happened)


def test_a_conversation_that_runs_into_such_a_transition_raises_and_stays_as_it_was() -> None:
    caller = Conversation(make_plan(), PlayoutBuffer("rms-10ms"))
    caller.begin(0)
    with pytest.raises(InstrumentError, match="READY"):
        caller.begin(1)
    assert caller.state is State.THINKING


@pytest.mark.parametrize("module", [conversation, plans])
def test_a_state_is_changed_by_one_method_alone(module: Any) -> None:
    """Anywhere else than where it begins and in the method that looks the transition up, nothing assigns it."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    assigning = [
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
    ]
    assert sorted(assigning) == ["__init__", "_move"]
