"""Every question, report and figure of `/metrics` answers as before the store was replaced.

A difference is a defect of the new code, unless the design says that the figure changes: then the file is written again
by `python -m tests.goldens --write`, and the change is reviewed line by line.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.store.wire import questions
from tests.goldens import asking, comparing, one_day
from tests.nightly import nightly_after

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("day")
    return one_day.answered(folder, one_day.fill(folder))


def test_every_answer_is_what_it_was(day: dict[str, object]) -> None:
    differences = comparing.differences(comparing.read(one_day.FILE), day)
    assert differences == [], "\n".join(differences[:40])


def test_every_question_is_asked() -> None:
    asked = {name for name, _ in asking.questions(one_day.asked())}
    # `state` is a number that only changes; what `run_list` answers is asked for as the figures of each run; the looks
    # of a `rollout_history` are those of `rollouts`.
    assert asked - {"run_figures"} == set(questions()) - {"state", "metric_values", "run_list", "rollout_history"}


def _of_one_turn(change: dict[str, object]) -> Callable[[Turn], Turn]:
    def changed(turn: Turn) -> Turn:
        is_the_one = (turn.call_id, turn.turn_index) == ("morning-call-70", 1)
        return msgspec.structs.replace(turn, **change) if is_the_one else turn

    return changed


@pytest.mark.parametrize(
    ("change", "seen_in"),
    nightly_after(
        1,
        [
            ({"asr_final_perf_ns": None}, {"run_turns", "/metrics"}),
            ({"outcome": "no_reply"}, {"run_turns", "/metrics"}),
            ({"cohort": "streaming-2"}, {"dimension_values", "/metrics"}),
        ],
    ),
    ids=["timestamp", "outcome", "cohort"],
)
def test_a_change_of_one_value_in_one_turn_is_seen(
    tmp_path: Path, change: dict[str, object], seen_in: set[str]
) -> None:
    only = ("run_turns", "dimension_values")
    now = one_day.answered(tmp_path, one_day.fill(tmp_path, _of_one_turn(change)), only)
    golden = comparing.read(one_day.FILE)
    assert {key.split(" ")[0] for key in now if comparing.differences({"": golden[key]}, {"": now[key]})} == seen_in


@pytest.mark.parametrize(
    ("golden", "now", "places"),
    [
        ({"q": {"n": 1, "p50": 0.1 + 0.2}}, {"q": {"n": 1, "p50": 0.3}}, []),
        ({"q": {"n": 1}}, {"q": {"n": 2}}, ["/q/n"]),
        ({"q": {"p50": 1.0}}, {"q": {"p50": 1.00000001}}, ["/q/p50"]),
        ({"q": 10**18}, {"q": 10**18 + 1}, ["/q"]),
        ({"q": [1, 2]}, {"q": [2, 1]}, ["/q/0", "/q/1"]),
        ({"q": [1]}, {"q": [1, 1]}, ["/q"]),
        ({"q": 0}, {"q": False}, ["/q"]),
        ({"q": 0}, {"q": None}, ["/q"]),
        ({"q": {"a": 0}}, {"q": {}}, ["/q/a"]),
        ({"q": {}}, {"q": {"a": 0}}, ["/q/a"]),
        ({"q": {}}, {}, ["/q"]),
    ],
)
def test_differences_are_found_by_their_place(
    golden: dict[str, object], now: dict[str, object], places: list[str]
) -> None:
    assert [difference.split(": ")[0] for difference in comparing.differences(golden, now)] == places


def test_order_of_equal_turns_in_different_calls_does_not_matter() -> None:
    turns = [(0, 1), (0, 2), (0, 3), (1, 1), (2, 2), (1, 3), (1, 3)]  # value, call

    def cohort(order: Sequence[int]) -> dict[str, object]:
        calls = {call: 9 - number for number, call in enumerate(dict.fromkeys(turns[place][1] for place in order))}
        chosen = [turns[place] for place in order]
        return {"numbers": {"n": [n for n, _ in chosen]}, "codes": {"call": [calls[call] for _, call in chosen]}}

    golden = {"q": cohort(range(7))}
    assert all(comparing.differences(golden, {"q": cohort(order)}) == [] for order in permutations(range(7)))
    turns[-1] = (1, 2)
    assert comparing.differences(golden, {"q": cohort(range(7))})


def test_a_file_names_what_it_holds_twice_and_is_read_whole(tmp_path: Path) -> None:
    part = {f"field-{number}": number for number in range(40)}
    answers: dict[str, object] = {"b": {"x/y": [part, 1]}, "a {}": {"of": part}, "c": [part, {"of": part}]}
    file = tmp_path / "answers.json"
    file.write_text(comparing.written(answers), encoding="utf-8")
    assert file.read_text(encoding="utf-8").count("field-39") == 1
    assert comparing.read(file) == answers


def test_estimate_intervals_are_compared_once_and_no_exact_ones() -> None:
    def of(p50: float, estimated: dict[str, object] | None = None) -> dict[str, object]:
        return {"p50": p50, "n": 3, "measured_within": {"p50": [p50 - 1.0, p50 + 1.0]}, **(estimated or {})}

    exact = {"a": [of(10.0)], "b": of(10.0), "c": of(5.0)}
    wide: dict[str, object] = {
        "approximate": True,
        "estimated_within": {"p50": [9.0, 12.0]},
        "measured_within": {"p50": [8.0, 14.0]},
    }
    narrow: dict[str, object] = {
        "approximate": True,
        "estimated_within": {"p50": [6.0, 7.0]},
        "measured_within": {"p50": [4.5, 9.0]},
    }
    now = {"a": [of(11.0, wide)], "b": of(11.0, wide), "c": of(6.5, narrow)}
    assert comparing.differences(exact, now) == []
    assert comparing.estimates(exact, now) == {
        (10.0, 9.0, 12.0): True,
        (9.0, 11.0, 8.0, 14.0): True,
        (5.0, 6.0, 7.0): False,
        (4.0, 6.0, 4.5, 9.0): False,
    }
    assert comparing.estimates(exact, exact) == {}
