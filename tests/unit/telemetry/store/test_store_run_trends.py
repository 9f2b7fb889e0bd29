"""Trends: runs with the same settings together, oldest first; a run without a verdict is in none."""

from typing import Any, get_args

import pytest

from telemetry.store.run_folders.entries import MOST_TRENDS, EntryState, RunEntry, RunTrends, run_trends

# These ended and say something of the service.
FIT = ("met", "missed", "undecided", "interrupted")


def run(name: str, began: int | None, **changes: Any) -> RunEntry:
    known: dict[str, Any] = {"state": "met", "p95_ns": 5e8, "target": "ws://a", "users": 8, **changes}
    return RunEntry(run_id=name, store="store", began_unix_ns=began, **known)


def shown(trends: RunTrends) -> list[tuple[str, list[str]]]:
    return [(trend.label, [entry.run_id for entry in trend.runs]) for trend in trends.shown]


def test_runs_of_trend_are_in_order_of_start() -> None:
    trends = run_trends([run("last", 30), run("first", 10), run("middle", 20)])
    assert shown(trends) == [("ws://a · 8 callers", ["first", "middle", "last"])]
    assert (trends.left_out, trends.unfit) == (0, 0)


@pytest.mark.parametrize("asked", [{"target": "ws://b"}, {"scenario": "order"}, {"profile": "babble"}, {"users": 9}])
def test_runs_that_were_asked_something_else_are_another_trend(asked: dict[str, Any]) -> None:
    trends = run_trends([run("1", 1), run("2", 2, **asked), run("3", 3), run("4", 4, **asked)])
    assert sorted(names for _, names in shown(trends)) == [["1", "3"], ["2", "4"]]
    assert len({label for label, _ in shown(trends)}) == 2
    # One run alone is no trend, and is counted nowhere: nothing is wrong with it.
    alone = run_trends([run("1", 1), run("2", 2, **asked), run("3", 3)])
    assert [names for _, names in shown(alone)] == [["1", "3"]]
    assert (alone.left_out, alone.unfit) == (0, 0)


def test_runs_without_target_and_callers_share_one_trend() -> None:
    nothing = {"target": None, "users": None}
    assert shown(run_trends([run("1", 1, **nothing), run("2", 2, **nothing)])) == [("not said", ["1", "2"])]


@pytest.mark.parametrize("state", get_args(EntryState))
def test_a_run_that_claims_nothing_of_the_service_is_no_point(state: EntryState) -> None:
    trends = run_trends([run("1", 1), run("2", 2), run("3", 3, state=state)])
    is_fit = state in FIT
    assert [names for _, names in shown(trends)] == [["1", "2", "3"] if is_fit else ["1", "2"]]
    assert trends.unfit == (not is_fit)


def test_a_run_without_a_p95_or_a_beginning_is_no_point() -> None:
    trends = run_trends([run("1", 1), run("2", 2), run("few", 3, p95_ns=None), run("when", None)])
    assert [names for _, names in shown(trends)] == [["1", "2"]]
    assert trends.unfit == 2
    assert run_trends([run("few", 3, p95_ns=None)]) == RunTrends((), 0, 1)


def test_trends_with_most_runs_are_shown_and_others_counted() -> None:
    pairs = [run(f"{place}-{n}", n, target=f"ws://{place}") for place in range(MOST_TRENDS + 2) for n in (1, 2)]
    most = [run(f"most-{n}", n, target="ws://z") for n in (1, 2, 3)]
    trends = run_trends([*pairs, *most])
    assert [label for label, _ in shown(trends)] == [
        "ws://z · 8 callers",
        *(f"ws://{place} · 8 callers" for place in range(MOST_TRENDS - 1)),
    ]
    assert (trends.left_out, trends.unfit) == (3, 0)
