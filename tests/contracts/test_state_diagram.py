"""The diagrams of the states show the tables that the code runs on: each arrow is read back from its source."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from docs_build.pages import PAGES
from docs_build.tables import diagram
from loadtest.conversation.state import PLAN_TRANSITIONS, TRANSITIONS, Input, PlanInput, PlanState, State

PAGE = PAGES["explanation/conversation.md"]()
Table = Mapping[Any, Mapping[Any, Any]]
Transition = tuple[str, str, str]


def diagrams(page: str) -> list[str]:
    return re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def drawn(source: str) -> list[Transition]:
    """Every transition of a diagram: from, input, to. A line that is no arrow fails."""
    arrows = [re.fullmatch(r" +(\w+) --> (\w+): (\w+(?:<br/>\w+)*)", line) for line in source.splitlines()]
    assert all(arrows), source
    pairs = [(arrow[1], arrow[2]) for arrow in arrows if arrow]
    assert len(set(pairs)) == len(pairs), "one arrow leads from a state to another"
    return [(arrow[1], happened, arrow[2]) for arrow in arrows if arrow for happened in arrow[3].split("<br/>")]


def transitions(table: Table) -> list[Transition]:
    return [
        (state.name, happened.name, following.name)
        for state, row in table.items()
        for happened, following in row.items()
    ]


@pytest.mark.parametrize(("number", "table"), [(0, TRANSITIONS), (1, PLAN_TRANSITIONS)], ids=["caller", "plan"])
def test_the_page_shows_every_transition_of_the_code_and_no_other(number: int, table: Table) -> None:
    assert sorted(drawn(diagrams(PAGE)[number])) == sorted(transitions(table))


def test_a_table_that_changes_changes_the_diagram() -> None:
    changed = {state: dict(row) for state, row in TRANSITIONS.items()}
    del changed[State.HEARING][Input.BARGE_IN_POINT]
    changed[State.HEARING][Input.SPEECH_END] = State.WAITING
    (source,) = diagrams(diagram(changed))
    assert set(transitions(TRANSITIONS)) ^ set(drawn(source)) == {
        ("HEARING", "BARGE_IN_POINT", "SPEAKING"),
        ("HEARING", "SPEECH_END", "WAITING"),
    }


def test_the_page_lists_what_the_diagrams_show() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \| `([A-Z_]+)` \| `([A-Z_]+)` \|$", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted([*transitions(TRANSITIONS), *transitions(PLAN_TRANSITIONS)])


def test_every_state_and_input_has_a_sentence() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \| ([^`|]+) \|$", PAGE, re.MULTILINE)
    members: list[Enum] = [*State, *Input, *PlanState, *PlanInput]
    assert listed == [(each.name, f"{each.value[0].upper()}{each.value[1:]}.") for each in members]
