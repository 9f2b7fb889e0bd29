"""Users are spread evenly over workers at every moment, whatever comes, goes, or is lost."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from locust import User
from locust.dispatch import UsersDispatcher

from loadtest.swarm.coordinator import EvenDispatcher, UsersOnWorkers

AT_ONCE = 1_000_000  # users a second: no test waits


@dataclass
class Node:
    """The attributes of a worker that a dispatcher reads."""

    id: str


class Talker(User):
    """A caller."""


class Listener(User):
    """Another, as often as the first."""


class Watcher(User):
    """A user class with exactly one user."""

    fixed_count = 1


BESIDE: tuple[type[User], ...] = (Listener, Watcher)


def dispatcher(workers: int, *classes: type[User], kind: type[UsersDispatcher] = EvenDispatcher) -> UsersDispatcher:
    nodes: list[Any] = [Node(f"host_{number}") for number in range(workers)]
    return kind(nodes, list(classes))


def steps(dispatch: UsersDispatcher, users: int) -> list[UsersOnWorkers]:
    """Return the steps that the master requests of workers on the way to so many users."""
    dispatch.new_dispatch(users, AT_ONCE)
    return list(dispatch)


def spread(asked: UsersOnWorkers) -> int:
    totals = [sum(of_class.values()) for of_class in asked.values()]
    return max(totals) - min(totals)


def placed(asked: UsersOnWorkers) -> int:
    return sum(sum(of_class.values()) for of_class in asked.values())


def last_spread(dispatch: UsersDispatcher, levels: list[int]) -> int:
    return [spread(steps(dispatch, level)[-1]) for level in levels][-1]


def test_callers_stay_even_where_locust_gathers_them() -> None:
    levels = [1, 2] * 6
    assert last_spread(dispatcher(2, Talker), levels) == 0
    # The reference: were Locust itself even, there would be no need for a dispatcher of ours.
    assert last_spread(dispatcher(2, Talker, kind=UsersDispatcher), levels) == 2


def test_each_worker_has_callers_of_each_class() -> None:
    asked = steps(dispatcher(2, Talker, Listener), 10)[-1]
    assert sorted(of_class["Talker"] for of_class in asked.values()) == [2, 3]
    by_locust = steps(dispatcher(2, Talker, Listener, kind=UsersDispatcher), 10)[-1]
    assert sorted(of_class["Talker"] for of_class in by_locust.values()) == [0, 5]


@given(
    st.integers(1, 6),
    st.sets(st.sampled_from(BESIDE)),
    st.lists(st.integers(0, 60), min_size=1, max_size=8),
)
def test_workers_are_within_one_user_of_each_other(workers: int, others: set[type[User]], levels: list[int]) -> None:
    dispatch = dispatcher(workers, Talker, *others)
    for level in levels:
        asked = steps(dispatch, level)
        assert max(map(spread, asked)) <= 1
        assert placed(asked[-1]) == level


@given(st.integers(2, 6), st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=6))
def test_remaining_workers_take_over_evenly_after_loss_or_join(workers: int, changes: list[tuple[int, bool]]) -> None:
    dispatch = dispatcher(workers, Talker, Listener)
    there: list[Any] = [Node(f"host_{number}") for number in range(workers)]
    for number, (level, joins) in enumerate(changes):
        if joins:
            there.append(Node(f"host_{workers + number}"))
            dispatch.add_worker(there[-1])
        elif len(there) > 1:
            dispatch.remove_worker(there.pop(0))
        asked = steps(dispatch, level)
        assert set(asked[-1]) == {node.id for node in there}
        assert spread(asked[-1]) <= 1
        assert placed(asked[-1]) == level
