"""Worse, within the margin or undecided: each from runs that are so, and from runs of which nothing can be claimed."""

import re
from dataclasses import replace

import numpy as np
import pytest

from telemetry.comparison.runs import ComparedRun, asked_differences, difference_sentence, why_no_pairs
from telemetry.comparison.sentences import figure_row, footnotes, grouped, interval_text, status_text
from telemetry.comparison.verdict import RegressionMargin, compare_runs, worst
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.cohort_turns import missed_column, packed_numbers
from tests.rollout_cohorts import MS, cohort_of, latencies_ms

MARGIN = RegressionMargin()


def run(name: str, turns: int = 1500, shift_ms: float = 0.0, seed: int = 1, unanswered: float = 0.0) -> ComparedRun:
    rng = np.random.default_rng(seed)
    values, calls = latencies_ms(rng, turns)
    of = cohort_of(name, values + shift_ms, calls, rng.random(turns) < unanswered)
    return ComparedRun(name, of, {"target": "ws://one", "users": "10", "corpus": "speech", "seed": "1"})


def test_a_regression_a_run_within_the_margin_and_one_between() -> None:
    base = run("base")
    worse = compare_runs(base, run("slow", shift_ms=400, seed=2), MARGIN, ())
    assert worse.state == "worse"
    assert worse.decisive.lower is not None
    assert worse.decisive.lower > 100 * MS
    assert worse.sentence.startswith("regression: Voice to voice p95 of slow is ")
    assert worse.sentence.endswith("more than the margin of 100 ms")
    same = compare_runs(base, run("same", turns=6000, seed=2), RegressionMargin(250 * MS), ())
    assert same.state == "within"
    assert same.sentence.startswith("within the margin of 250 ms: ")
    between = compare_runs(base, run("between", shift_ms=100, seed=3), MARGIN, ())
    assert between.state == "undecided"
    assert "the interval holds the margin of 100 ms" in between.sentence
    better = compare_runs(base, run("better", shift_ms=-300, seed=2), MARGIN, ())
    assert better.state == "within"


@pytest.mark.slow
def test_a_run_at_the_margin_is_seldom_within_it_or_a_regression() -> None:
    states = [
        compare_runs(
            run("base", turns=500, seed=2 * seed), run("at", turns=500, shift_ms=100, seed=2 * seed + 1), MARGIN, ()
        ).state
        for seed in range(200)
    ]
    # 2.5 % each; of 200, 5 % is three standard errors beyond it.
    assert states.count("within") <= 10
    assert states.count("worse") <= 10


def test_too_few_turns_decide_nothing() -> None:
    found = compare_runs(run("base"), run("short", turns=50, shift_ms=900, seed=2), MARGIN, ())
    assert found.state == "undecided"
    assert found.sentence == ("undecided: Voice to voice p95 cannot be compared: 50 of at least 100 turns have a value")


def test_a_run_that_answers_no_more_is_worse_whatever_its_percentile() -> None:
    base = run("base")
    found = compare_runs(base, run("silent", unanswered=0.5, seed=2), MARGIN, ())
    assert found.state == "worse"
    assert "were not answered, 0 % of base" in found.sentence
    all_gone = compare_runs(base, run("gone", unanswered=1.0, seed=2), MARGIN, ())
    assert all_gone.state == "worse"
    # Not where the baseline answered as few, nor where a handful of calls say so.
    assert compare_runs(run("also", unanswered=0.5), run("silent", unanswered=0.5, seed=2), MARGIN, ()).state == (
        "undecided"
    )
    assert compare_runs(base, run("few", turns=8, unanswered=0.5, seed=2), MARGIN, ()).state == "undecided"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"generator_limit": "1 of 2 processes was lost"}, "is generator-limited (1 of 2 processes was lost)"),
        ({"left_out": "14 of 94 turns are invalid"}, " 14 of 94 turns are invalid, and percentiles leave them out"),
        (
            {"unreached": "none of 60 calls reached a session at ws://one"},
            "none of 60 calls reached a session at ws://one",
        ),
        ({"telemetry_lost": 0.02}, "2 % of the telemetry of "),
    ],
)
def test_nothing_is_claimed_of_a_run_that_was_not_measured_well(fault: dict[str, object], why: str) -> None:
    base, slow = run("base"), run("slow", shift_ms=900, seed=2)
    for found in (
        compare_runs(replace(base, **fault), slow, MARGIN, ()),  # type: ignore[arg-type]
        compare_runs(base, replace(slow, **fault), MARGIN, ()),  # type: ignore[arg-type]
    ):
        assert found.state == "undecided"
        assert why in found.sentence
        assert all(each.is_worse is None and not each.is_shown for each in found.differences)
        assert {row[-1] for _, group in grouped(found) for row in map(figure_row, group)} == {"not claimed"}
        assert any("no difference of the service is claimed" in line for line in footnotes(found))
    weakened = compare_runs(
        replace(base, telemetry_lost=0.005, is_under_way=True, lacks_old_turns=True), slow, MARGIN, ()
    )
    assert weakened.state == "worse"
    assert len(weakened.notes) == 3


def test_footnotes_state_that_turns_without_an_answer_raise_the_percentiles() -> None:
    base = run("base")
    sentence = "a turn that was not answered counts as longer than any wait"
    answered = compare_runs(base, run("other", seed=2), MARGIN, ())
    assert not any(sentence in line for line in footnotes(answered))
    for found in (
        compare_runs(base, run("silent", seed=2, unanswered=0.1), MARGIN, ()),
        compare_runs(run("silent", seed=2, unanswered=0.1), base, MARGIN, ()),
    ):
        assert any(sentence in line for line in footnotes(found))


def test_runs_that_were_asked_differently_say_so() -> None:
    one = {"target": "ws://a", "users": "10", "corpus": "speech", "seed": "1"}
    other = {"users": "20", "corpus": "speech", "seed": "2", "profile": "noise=babble", "target": "ws://a\x1b[2J"}
    found = asked_differences(one, other)
    assert difference_sentence(found) == (
        "the runs differ in: target ws://a / ws://a\\x1b[2J, users 10/20, seed 1/2, profile not said/noise=babble"
    )
    assert why_no_pairs(found) == "they were not sent the same audio: another seed"
    assert difference_sentence(asked_differences(one, one)) is None
    assert why_no_pairs(asked_differences(one, {**one, "users": "9"})) is None


def test_every_objective_that_counts_turns_has_its_good_turns() -> None:
    objectives = default_objectives()
    base, other = run("base"), run("other", seed=2)
    counted = [each for each in objectives if each.counts == "turns"]
    rng = np.random.default_rng(5)

    def with_missed(of: ComparedRun, share: float) -> ComparedRun:
        columns = {missed_column(each.name): packed_numbers(rng.random(of.turns.turns) < share) for each in counted}
        return replace(of, turns=replace(of.turns, numbers={**of.turns.numbers, **columns}))

    found = compare_runs(with_missed(base, 0.02), with_missed(other, 0.2), MARGIN, objectives)
    good = [each for each in found.differences if each.figure.name.startswith("good_")]
    assert [each.figure.name for each in good] == [f"good_{each.name}" for each in counted]
    assert all(each.is_worse for each in good)
    assert all(each.value == pytest.approx(-0.18, abs=0.04) for each in good)


def test_a_margin_on_another_figure() -> None:
    margin = RegressionMargin(20 * MS, "time_to_first_sentence", "p50")
    base, other = run("base"), run("other", shift_ms=100, seed=2)

    def renamed(of: ComparedRun) -> ComparedRun:
        numbers = {"time_to_first_sentence": of.turns.numbers["voice_to_voice"]}
        return replace(of, turns=replace(of.turns, numbers=numbers))

    found = compare_runs(renamed(base), renamed(other), margin, ())
    assert found.decisive.figure.name == "time_to_first_sentence_p50"
    assert found.differences[0] is found.decisive
    assert found.state == "worse"
    assert margin.sentence == "First sentence p50 at most 20 ms above the baseline"


def test_the_worst_of_several_counts() -> None:
    assert worst(["within", "worse", "undecided"]) == "worse"
    assert worst(["within", "undecided"]) == "undecided"
    assert worst(["within", "within"]) == "within"
    assert worst([]) == "undecided"


def test_footnotes_say_what_a_mark_rests_on_and_what_an_interval_without_one_means() -> None:
    found = compare_runs(run("base"), run("slow", shift_ms=400, seed=2), MARGIN, ())
    assert found.marked_over == sum(each.p_value is not None for each in found.differences) == 6
    assert status_text(found.decisive) == "worse"
    assert "worse: shown after Holm's correction over 6 figures" in footnotes(found)
    assert not any(line.startswith("possible") for line in footnotes(found))
    assert footnotes(found)[-1] == (
        "the margin: Voice to voice p95 at most 100 ms above the baseline; this figure is judged alone, by its own "
        "interval"
    )
    unmarked = replace(found.decisive, p_value=0.02, is_shown=False)
    possible = replace(
        found,
        decisive=unmarked,
        differences=tuple(
            unmarked if each is found.decisive else replace(each, is_shown=False) for each in found.differences
        ),
    )
    assert status_text(unmarked) == "possible"
    (line,) = (line for line in footnotes(possible) if line.startswith("possible: "))
    assert line == (
        "possible: the interval leaves out 0, as that of one figure in twenty does by chance; a difference is not "
        "shown after Holm's correction over 6 figures"
    )
    assert not any(line.startswith("worse") for line in footnotes(possible))


def test_a_difference_that_nothing_bounds_above_is_stated_and_explained() -> None:
    found = compare_runs(run("base"), run("slow", shift_ms=400, seed=2, unanswered=0.035), MARGIN, ())
    assert found.decisive.unbounded == "above"
    assert found.state == "worse", "whatever the upper bound is, the lower one lies above the margin"
    assert re.search(r" ms \(\+[\d.,]+ ms or more\): more than the margin of 100 ms$", found.sentence)
    assert re.fullmatch(r"\+[\d.,]+ ms or more", interval_text(found.decisive))
    assert any(line.startswith("or more, or less: ") for line in footnotes(found))
