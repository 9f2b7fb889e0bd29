"""The pictures of the states show the tables that the code runs on: each arrow is read back from where it is drawn."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from docs_build.pages import PAGES
from docs_build.state_diagram import diagram
from loadtest.conversation.state import PLAN_TRANSITIONS, TRANSITIONS, Input, PlanInput, PlanState, State

PAGE = PAGES["explanation/conversation.md"]()
SVG = "{http://www.w3.org/2000/svg}"
Table = Mapping[Any, Mapping[Any, Any]]
Transition = tuple[str, str, str]


def pictures(page: str) -> list[ET.Element]:
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]  # noqa: S314 - our own


def text_of(element: ET.Element) -> list[str]:
    return [each.text or "" for each in element.iter(f"{SVG}text")]


def columns(picture: ET.Element) -> dict[int, str]:
    """The state of each column, by its place from the left."""
    named = [group for group in picture if group.get("class") == "state"]
    for group in named:
        assert len(set(text_of(group))) == 1, "above and below stands the same name"
    return {int(next(group.iter(f"{SVG}text")).get("x", "")): text_of(group)[0] for group in named}


def drawn(picture: ET.Element) -> list[Transition]:
    """Every transition of a picture, as its arrow leads from column to column: from, input, to."""
    state_at = columns(picture)
    found: list[Transition] = []
    for group in picture:
        if group.get("class") != "transition":
            continue
        line, tip = (each.get("d", "") for each in group.iter(f"{SVG}path"))
        begin, end = re.match(r"M(\d+) ", line), re.search(r"H(\d+)$", line)
        assert begin is not None
        assert end is not None
        assert tip.startswith(f"M{end[1]} "), "the tip is at the arrow's end"
        start, following = state_at[int(begin[1])], state_at[int(end[1])]
        found += [(start, happened, following) for happened in text_of(group)]
    return found


def transitions(table: Table) -> list[Transition]:
    return [
        (state.name, happened.name, following.name)
        for state, row in table.items()
        for happened, following in row.items()
    ]


@pytest.mark.parametrize(("number", "table"), [(0, TRANSITIONS), (1, PLAN_TRANSITIONS)], ids=["caller", "plan"])
def test_the_page_shows_every_transition_of_the_code_and_no_other(number: int, table: Table) -> None:
    picture = pictures(PAGE)[number]
    assert list(columns(picture).values()) == [state.name for state in table]
    assert sorted(drawn(picture)) == sorted(transitions(table))


def test_a_table_that_changes_changes_the_picture() -> None:
    changed = {state: dict(row) for state, row in TRANSITIONS.items()}
    del changed[State.HEARING][Input.BARGE_IN_POINT]
    changed[State.HEARING][Input.SPEECH_END] = State.WAITING
    (picture,) = pictures(diagram(changed, "changed"))
    assert set(transitions(TRANSITIONS)) ^ set(drawn(picture)) == {
        ("HEARING", "BARGE_IN_POINT", "SPEAKING"),
        ("HEARING", "SPEECH_END", "WAITING"),
    }


def test_the_page_lists_what_the_pictures_show() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \| `([A-Z_]+)` \| `([A-Z_]+)` \|$", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted([*transitions(TRANSITIONS), *transitions(PLAN_TRANSITIONS)])


def test_every_state_and_input_has_a_sentence() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \| ([^`|]+) \|$", PAGE, re.MULTILINE)
    members: list[Enum] = [*State, *Input, *PlanState, *PlanInput]
    assert listed == [(each.name, f"{each.value[0].upper()}{each.value[1:]}.") for each in members]


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_lies_upon_another_or_outside(number: int) -> None:
    picture = pictures(PAGE)[number]
    _, _, width, height = map(int, picture.get("viewBox", "").split())
    places = [(int(each.get("x", "")), int(each.get("y", ""))) for each in picture.iter(f"{SVG}text")]
    assert all(0 < x < width and 0 < y < height for x, y in places)
    heights = [y for group in picture if group.get("class") == "transition" for _, y in _places(group)]
    assert len(set(heights)) == len(heights), "each name of an input has a line of its own"


def _places(group: ET.Element) -> list[tuple[str, int]]:
    return [(each.text or "", int(each.get("y", ""))) for each in group.iter(f"{SVG}text")]
