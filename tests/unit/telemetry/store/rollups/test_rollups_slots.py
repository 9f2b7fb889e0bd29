"""Slots of time: apart from each other, as long as their turns are few, and a window is made of them and its edges."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.store.rollups.rollup import Key, RollupCell
from telemetry.store.rollups.slot_tree import FAN_OUT, Member, families, taken
from telemetry.store.rollups.slots import FINEST_LEVEL, Slot, SlotGrid, folded

SECOND = 1_000_000_000
BEGIN = 1_700_000_000 * SECOND
SLOTS = st.builds(Slot, st.integers(30, 36), st.integers(0, 200))


def apart(slots: list[Slot]) -> bool:
    ordered = sorted(slots, key=lambda slot: slot.begin_unix_ns)
    return all(one.end_unix_ns <= other.begin_unix_ns for one, other in itertools.pairwise(ordered))


@given(st.lists(st.integers(0, 3_600 * SECOND), min_size=1, max_size=300), st.integers(1, 40))
def test_each_moment_lies_in_one_slot_of_the_grid(offsets: list[int], slot_turns: int) -> None:
    moments = np.array([BEGIN + offset for offset in offsets], dtype=np.int64)
    grid = SlotGrid.of_moments(moments, slot_turns)
    assert apart(list(grid.slots))
    for moment, name in zip(moments.tolist(), grid.names_of(moments), strict=True):
        slot = Slot.named(name or "")
        assert slot.begin_unix_ns <= moment < slot.end_unix_ns
    assert grid.names_of(np.array([BEGIN - 2**62 // SECOND * SECOND, 0])) == [None, None]


def test_slots_hold_about_as_many_turns_as_asked_for() -> None:
    dice = random.Random(1)
    moments = np.array([BEGIN + dice.randrange(3_600 * SECOND) for _ in range(20_000)], dtype=np.int64)
    held = Counter(SlotGrid.of_moments(moments, 500).names_of(moments))
    assert max(held.values()) <= 500
    assert 20_000 / 500 <= len(held) <= 4 * 20_000 / 500


def test_turns_of_strange_moments_do_not_make_the_slots_of_the_others_long() -> None:
    dice = random.Random(2)
    usual = [BEGIN + dice.randrange(600 * SECOND) for _ in range(9_900)]
    strange = [dice.randrange(10 * BEGIN // 9) for _ in range(100)]
    grid = SlotGrid.of_moments(np.array(usual + strange, dtype=np.int64), 200)
    held = Counter(grid.names_of(np.array(usual, dtype=np.int64)))
    assert max(held.values()) <= 200
    assert len(grid.slots) <= 4 * 10_000 // 200 + 16


def test_a_second_with_more_turns_than_asked_for_is_one_slot() -> None:
    moments = np.full(1_000, BEGIN, dtype=np.int64)
    assert SlotGrid.of_moments(moments, 10).slots == (Slot(FINEST_LEVEL, BEGIN >> FINEST_LEVEL),)
    assert SlotGrid.of_moments(moments[:0]).slots == ()


@given(st.dictionaries(SLOTS, st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 60))
def test_slots_of_different_lengths_become_slots_that_are_apart(rows: dict[Slot, int], slot_turns: int) -> None:
    target = folded(rows, slot_turns)
    assert target.keys() == rows.keys()
    assert apart(list(set(target.values())))
    for slot, whole in target.items():
        assert whole.begin_unix_ns <= slot.begin_unix_ns
        assert slot.end_unix_ns <= whole.end_unix_ns
    held = Counter[Slot]()
    for slot, whole in target.items():
        held[whole] += rows[slot]
    coarsest = {whole for slot, whole in target.items() if slot == whole}
    assert all(n <= slot_turns for whole, n in held.items() if whole not in coarsest and whole.level > 36)


def cells_by_slot(slots: list[Slot]) -> dict[Key, RollupCell]:
    return {
        Key("turns", "run", None, None, None, None, slot.name, ("ok",)): RollupCell(n=1 << place)
        for place, slot in enumerate(slots)
    }


@pytest.mark.parametrize("count", [1, FAN_OUT, FAN_OUT + 1, 3 * FAN_OUT * FAN_OUT + 5])
@given(edges=st.tuples(st.integers(-2, 2_000), st.integers(-2, 2_000)), is_open=st.sampled_from(("", "since", "until")))
def test_a_window_takes_each_slot_in_it_once_and_leaves_its_edges_over(
    count: int, edges: tuple[int, int], is_open: str
) -> None:
    slots = [Slot(10, 3 * place) for place in range(count)]
    known = list(families(cells_by_slot(slots)))
    since = None if is_open == "since" else min(edges) * 512
    until = None if is_open == "until" else max(edges) * 512
    found = taken([[member for member, _ in family] for family in known], since, until)
    total = sum(
        cell.n
        for number, places in found.members.items()
        for place in places
        for cell in known[number][place][1].values()
    )
    inside = [
        place
        for place, slot in enumerate(slots)
        if (since is None or slot.begin_unix_ns >= since) and (until is None or slot.end_unix_ns <= until)
    ]
    cut = [
        (slot.begin_unix_ns, slot.end_unix_ns)
        for place, slot in enumerate(slots)
        if place not in inside
        and (since is None or slot.end_unix_ns > since)
        and (until is None or slot.begin_unix_ns < until)
    ]
    assert total == sum(1 << place for place in inside)
    assert sorted(found.left_over) == cut
    assert sum(map(len, found.members.values())) <= 2 * FAN_OUT * 4


def test_a_slot_holds_its_first_moment_and_not_the_one_after_its_last() -> None:
    slots = (Slot(FINEST_LEVEL, 5), Slot(FINEST_LEVEL, 7))
    first, second = ((place << FINEST_LEVEL, (place + 1) << FINEST_LEVEL) for place in (5, 7))
    moments = [first[0] - 1, first[0], first[1] - 1, first[1], second[0] - 1, second[0], second[1] - 1, second[1]]
    one, other = f"{FINEST_LEVEL}:5", f"{FINEST_LEVEL}:7"
    assert SlotGrid(slots).names_of(np.array(moments)) == [None, one, one, None, None, other, other, None]


@pytest.mark.parametrize(
    ("since", "until", "whole", "left_over"),
    [
        (100, 300, [0, 1], []),
        (99, 301, [0, 1], []),
        (100, 299, [0], [(200, 300)]),
        (101, 300, [1], [(100, 200)]),
        (100, 200, [0], []),
        (100, 201, [0], [(200, 300)]),
        (199, 300, [1], [(100, 200)]),
        (200, 300, [1], []),
        (100, 199, [], [(100, 200)]),
        (300, 400, [], []),
        (0, 100, [], []),
        (None, 200, [0], []),
        (200, None, [1], []),
    ],
)
def test_a_slot_that_a_window_cuts_by_one_moment_is_left_over(
    since: int | None, until: int | None, whole: list[int], left_over: list[tuple[int, int]]
) -> None:
    found = taken([[Member(100, 200), Member(200, 300)]], since, until)
    assert found.members.get(0, []) == whole
    assert found.left_over == left_over


@pytest.mark.slow
def test_turns_strewn_over_years_are_not_a_slot_each() -> None:
    """Of 10,000 turns nearly a tenth lies outside of the hour of the others, far apart; 100 turns are asked for."""
    bulk = [BEGIN + place * SECOND // 3 for place in range(9_040)]
    strewn = [BEGIN + sign * place * 40_000 * SECOND for place in range(1, 481) for sign in (-1, 1)]
    grid = SlotGrid.of_moments(np.array([*bulk, *strewn], dtype=np.int64), 100)
    assert len(grid.slots) <= 4 * 100 + 16
    assert apart(list(grid.slots))
    assert None not in grid.names_of(np.array(strewn))
