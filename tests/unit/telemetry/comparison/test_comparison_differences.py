"""Differences between runs: intervals by simulation and bootstrap, and the verdicts worse, within or undecided."""

import re
from dataclasses import replace

import numpy as np
import pytest

from telemetry.comparison.differences import (
    PAIRED_SHARE_LEAST,
    FigureDifference,
    Pairing,
    difference,
    marked,
    pairing,
)
from telemetry.comparison.figures import ComparedFigure, quantile_figure
from telemetry.comparison.runs import ComparedRun, asked_differences, difference_sentence, why_no_pairs
from telemetry.comparison.sentences import figure_row, footnotes, grouped, interval_text, status_text
from telemetry.comparison.verdict import RegressionMargin, compare_runs, worst
from telemetry.model.semconv import OUTCOMES
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.check_sample import Floats
from telemetry.rollout.cohort_turns import (
    AUDIO,
    CACHE_HIT,
    CALL,
    OUTCOME,
    CohortTurns,
    missed_column,
    packed_codes,
    packed_numbers,
)
from telemetry.rollout.plan import Check
from tests.rollout_cohorts import MS, cohort_of, latencies_ms

P50, P95 = quantile_figure("voice_to_voice", "p50"), quantile_figure("voice_to_voice", "p95")
BY_CALL = Pairing(False)
SHIFT_MS = 50.0


def run(rng: np.random.Generator, turns: int, shift_ms: float = 0.0) -> CohortTurns:
    values, calls = latencies_ms(rng, turns)
    return cohort_of("run", values + shift_ms, calls)


def same_audio(rng: np.random.Generator, turns: int, utterances: int = 60) -> tuple[CohortTurns, CohortTurns]:
    """Two runs that send the same utterances in the same order, each utterance slow or fast in both."""
    effect_ms = rng.normal(0, 200, utterances)
    audio = rng.permutation(np.arange(turns) % utterances)
    both: list[CohortTurns] = []
    for shift_ms in (0.0, SHIFT_MS):
        values, calls = latencies_ms(rng, turns)
        both.append(cohort_of("run", values + effect_ms[audio] + shift_ms, calls, None, audio))
    return both[0], both[1]


@pytest.mark.slow
def test_interval_of_paired_runs_holds_true_difference() -> None:
    held: list[bool] = []
    for seed in range(300):
        baseline, candidate = same_audio(np.random.default_rng(seed), 300)
        pairs = pairing(baseline, candidate)
        assert pairs.is_paired
        result = difference(P50, baseline, candidate, pairs)
        if result.lower is not None and result.upper is not None:
            held.append(result.lower <= SHIFT_MS * MS <= result.upper)
    assert len(held) > 0.9 * 300
    # 95 % of 300 simulations is 0.925 to 0.975 in two standard errors.
    assert 0.925 <= np.mean(held) <= 0.99


def bootstrapped(of: CohortTurns, fraction: float, rng: np.random.Generator, times: int = 1000) -> Floats:
    """The quantile when whole calls are drawn with replacement, by numpy alone."""
    values, calls = of.number("voice_to_voice"), of.code(CALL)
    assert values is not None
    by_call = [values[calls == call] for call in np.unique(calls)]
    draws = rng.integers(0, len(by_call), (times, len(by_call)))
    return np.array([np.quantile(np.concatenate([by_call[i] for i in drawn]), fraction) for drawn in draws])


@pytest.mark.parametrize(("figure", "fraction"), [(P50, 0.5), (P95, 0.95)])
def test_the_interval_is_that_of_a_bootstrap_by_call(figure: ComparedFigure, fraction: float) -> None:
    rng = np.random.default_rng(11)
    baseline, candidate = run(rng, 2000), run(rng, 2000, SHIFT_MS)
    result = difference(figure, baseline, candidate, BY_CALL)
    assert result.lower is not None
    assert result.upper is not None
    drawn = bootstrapped(candidate, fraction, rng) - bootstrapped(baseline, fraction, rng)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (result.upper - result.lower) == pytest.approx(high - low, rel=0.25)
    assert result.value == pytest.approx(float(np.median(drawn)), abs=0.25 * (high - low))


def test_pairing_narrows_what_the_utterances_make_wide() -> None:
    widths: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(40):
        baseline, candidate = same_audio(np.random.default_rng(seed), 600)
        for is_paired in (True, False):
            result = difference(P50, baseline, candidate, Pairing(is_paired))
            assert result.is_paired is is_paired
            widths[is_paired].append((result.upper or 0.0) - (result.lower or 0.0))
    assert np.mean(widths[True]) < 0.9 * np.mean(widths[False])


def test_runs_are_paired_only_if_most_of_both_is_same_audio() -> None:
    rng = np.random.default_rng(1)
    values, calls = latencies_ms(rng, 400)
    here = np.arange(400) % 40

    def paired_with(audio: np.ndarray) -> Pairing:
        return pairing(cohort_of("a", values, calls, None, here), cohort_of("b", values, calls, None, audio))

    assert paired_with(here) == Pairing(True, 40, 1.0)
    assert paired_with(here + 1000).reason == "no utterance was heard by both"
    mostly = paired_with(np.where(np.arange(400) < 400 * (PAIRED_SHARE_LEAST - 0.1), here, here + 1000))
    assert not mostly.is_paired
    assert mostly.reason == "only 70 % of the turns have audio that both heard"
    few = paired_with(np.arange(400) % 19)
    assert (few.is_paired, few.utterances, few.reason) == (False, 19, "needs 20 utterances heard by both, has 19")
    assert pairing(cohort_of("a", values, calls), cohort_of("b", values, calls)).reason is not None
    assert pairing(cohort_of("a", values, calls), cohort_of("b", values, calls), "why not") == Pairing(
        False, reason="why not"
    )


def test_a_figure_that_cannot_be_paired_is_taken_by_call() -> None:
    values, calls = latencies_ms(np.random.default_rng(1), 400)
    # Ten utterances have a value: too few to pair by, and enough turns.
    only_some = np.where(np.arange(400) % 40 < 10, values, np.nan)
    runs = [cohort_of("run", only_some + shift, calls, None, np.arange(400) % 40) for shift in (0, 5)]
    result = difference(P50, runs[0], runs[1], pairing(runs[0], runs[1]))
    assert (result.is_paired, result.turns) == (False, (100, 100))
    assert result.lower is not None


def test_too_few_turns_have_figures_and_no_interval() -> None:
    rng = np.random.default_rng(2)
    result = difference(P95, run(rng, 60), run(rng, 600), BY_CALL)
    assert result.baseline is not None
    assert result.value == pytest.approx((result.candidate or 0) - result.baseline)
    assert (result.lower, result.upper, result.reason) == (None, None, "needs 100 turns with a value, has 60")
    fewer = difference(P95, run(rng, 15), run(rng, 600), BY_CALL)
    assert (fewer.baseline, fewer.value) == (None, None)
    assert not fewer.is_shown
    one_call = cohort_of("run", rng.normal(500, 9, 300), np.zeros(300, dtype=np.int64))
    assert difference(P50, one_call, run(rng, 300), BY_CALL).reason == "needs 20 calls, has 1"


def test_run_without_spread_is_known_exactly_and_other_is_not() -> None:
    constant = cohort_of("run", np.full(300, 500.0), np.arange(300))
    result = difference(P50, constant, constant, BY_CALL)
    assert (result.value, result.lower, result.upper, result.p_value, result.bounds) == (
        0,
        0,
        0,
        1,
        "+0.0 ms to +0.0 ms",
    )
    varied = difference(P50, constant, run(np.random.default_rng(1), 300), BY_CALL)
    assert varied.lower is not None
    assert varied.upper is not None
    assert 500 * MS + varied.lower < (varied.candidate or 0) < 500 * MS + varied.upper


def test_unanswered_turn_is_slower_than_any_other() -> None:
    values, calls = latencies_ms(np.random.default_rng(3), 400)
    missing = np.arange(400) % 10 == 0
    all_answered, some = cohort_of("a", values, calls), cohort_of("b", values, calls, missing)
    result = difference(P50, all_answered, some, BY_CALL)
    assert result.candidate == pytest.approx(np.quantile(np.where(missing, np.inf, values * MS), 0.5))
    p95 = difference(P95, all_answered, some, BY_CALL)
    assert (p95.candidate, p95.lower) == (None, None)
    assert "not answered" in (p95.reason or "")


def test_shares_know_their_direction() -> None:
    codes = {OUTCOME: packed_codes(np.full(400, OUTCOMES.index("ok"))), CALL: packed_codes(np.arange(400) // 4)}

    def hits(share: float) -> CohortTurns:
        return CohortTurns("run", 400, {CACHE_HIT: packed_numbers(np.arange(400) % 100 < 100 * share)}, codes)

    fewer_good = ComparedFigure("good", "Good", "turns", column=CACHE_HIT, higher_is_better=True)
    (compared,) = marked([difference(fewer_good, hits(0.9), hits(0.5), BY_CALL)])
    assert (compared.value, compared.is_shown, compared.is_worse) == (pytest.approx(-0.4), True, True)
    assert marked([difference(fewer_good, hits(0.5), hits(0.9), BY_CALL)])[0].is_worse is False
    neither = ComparedFigure("hits", "Hits", "answers", column=CACHE_HIT, higher_is_better=None)
    (differs,) = marked([difference(neither, hits(0.5), hits(0.9), BY_CALL)])
    assert (differs.is_shown, differs.is_worse) == (True, None)
    bad = ComparedFigure("bad", "Bad", "turns", column=CACHE_HIT, is_complement=True)
    assert difference(bad, hits(0.9), hits(0.5), BY_CALL).candidate == pytest.approx(0.5)
    errors = ComparedFigure("errors", "Errors", "turns", Check("Errors", "errors", 0.0))
    assert difference(errors, hits(0.5), hits(0.5), BY_CALL).candidate == 0
    gone = ComparedFigure("gone", "Gone", "answers", column="gone")
    assert difference(gone, hits(0.5), hits(0.5), BY_CALL).reason == "no turn of the baseline has a value"


def of_p_values(*p_values: float | None, lower: float = 1.0, is_claimed: bool = True) -> list[FigureDifference]:
    return [
        FigureDifference(
            quantile_figure("voice_to_voice", statistic),
            value=2.0,
            lower=lower,
            upper=3.0,
            p_value=p_value,
            is_claimed=is_claimed,
        )
        for statistic, p_value in zip(("p50", "p95", "p99"), p_values, strict=False)
    ]


def test_figures_are_marked_by_holm_over_those_with_p_value() -> None:
    """The smallest of three is held to 5 % / 3, the next to 5 % / 2, the last to 5 %."""

    def shown(*p_values: float | None) -> list[bool]:
        return [result.is_shown for result in marked(of_p_values(*p_values))]

    assert shown(0.016, 0.024, 0.049) == [True, True, True]
    assert shown(0.049, 0.016, 0.026) == [False, True, False]
    assert shown(0.017, 0.017, 0.017) == [False, False, False]
    assert shown(0.024, None, 0.9) == [True, False, False]
    assert shown(0.026, None, 0.9) == [False, False, False]
    assert shown(0.049) == [True]
    assert marked([]) == ()


def test_figure_with_0_in_interval_or_without_claim_is_unmarked() -> None:
    assert [result.is_shown for result in marked(of_p_values(1e-9, lower=0.0))] == [False]
    assert [result.is_shown for result in marked(of_p_values(1e-9, is_claimed=False))] == [False]
    assert marked(of_p_values(1e-9))[0].is_worse


@pytest.mark.parametrize(
    ("lower", "upper", "text", "side"),
    [
        (20.0, 180.0, "+20.0 ms to +180 ms", None),
        (20.0, float("inf"), "+20.0 ms or more", "above"),
        (-float("inf"), 120.0, "+120 ms or less", "below"),
        (None, None, "–", None),
    ],
)
def test_a_side_that_nothing_bounds_is_put_in_words(
    lower: float | None, upper: float | None, text: str, side: str | None
) -> None:
    bounds = [None if bound_ms is None else bound_ms * MS for bound_ms in (lower, upper)]
    shown = FigureDifference(P95, value=50.0 * MS, lower=bounds[0], upper=bounds[1])
    assert (shown.bounds, shown.unbounded) == (text, side)


def test_unanswered_turns_near_percentile_remove_upper_bound() -> None:
    rng = np.random.default_rng(4)
    values, calls = latencies_ms(rng, 1000)
    silent = cohort_of("b", values, calls, np.arange(1000) % 25 == 0)
    result = difference(P95, run(rng, 1000), silent, BY_CALL)
    assert result.unbounded == "above"
    assert result.bounds.endswith(" or more")


MARGIN = RegressionMargin()


def named_run(
    name: str, turns: int = 1500, shift_ms: float = 0.0, seed: int = 1, unanswered: float = 0.0
) -> ComparedRun:
    rng = np.random.default_rng(seed)
    values, calls = latencies_ms(rng, turns)
    of = cohort_of(name, values + shift_ms, calls, rng.random(turns) < unanswered)
    return ComparedRun(name, of, {"target": "ws://one", "users": "10", "corpus": "speech", "seed": "1"})


def test_a_regression_a_run_within_the_margin_and_one_between() -> None:
    base = named_run("base")
    worse = compare_runs(base, named_run("slow", shift_ms=400, seed=2), MARGIN, ())
    assert worse.state == "worse"
    assert worse.decisive.lower is not None
    assert worse.decisive.lower > 100 * MS
    assert worse.sentence.startswith("regression: Voice to voice p95 of slow is ")
    assert worse.sentence.endswith("more than the margin of 100 ms")
    same = compare_runs(base, named_run("same", turns=6000, seed=2), RegressionMargin(250 * MS), ())
    assert same.state == "within"
    assert same.sentence.startswith("within the margin of 250 ms: ")
    between = compare_runs(base, named_run("between", shift_ms=100, seed=3), MARGIN, ())
    assert between.state == "undecided"
    assert "the interval holds the margin of 100 ms" in between.sentence
    better = compare_runs(base, named_run("better", shift_ms=-300, seed=2), MARGIN, ())
    assert better.state == "within"


@pytest.mark.slow
def test_a_run_at_the_margin_is_seldom_within_it_or_a_regression() -> None:
    states = [
        compare_runs(
            named_run("base", turns=500, seed=2 * seed),
            named_run("at", turns=500, shift_ms=100, seed=2 * seed + 1),
            MARGIN,
            (),
        ).state
        for seed in range(200)
    ]
    # 2.5 % each; of 200, 5 % is three standard errors beyond it.
    assert states.count("within") <= 10
    assert states.count("worse") <= 10


def test_too_few_turns_decide_nothing() -> None:
    comparison = compare_runs(named_run("base"), named_run("short", turns=50, shift_ms=900, seed=2), MARGIN, ())
    assert comparison.state == "undecided"
    assert comparison.sentence == (
        "undecided: Voice to voice p95 cannot be compared: needs 100 turns with a value, has 50"
    )


def test_run_that_stops_answering_is_worse_at_any_percentile() -> None:
    base = named_run("base")
    comparison = compare_runs(base, named_run("silent", unanswered=0.5, seed=2), MARGIN, ())
    assert comparison.state == "worse"
    assert "were not answered, 0 % of base" in comparison.sentence
    all_gone = compare_runs(base, named_run("gone", unanswered=1.0, seed=2), MARGIN, ())
    assert all_gone.state == "worse"
    # Not where the baseline answered as few, nor where a handful of calls say so.
    assert compare_runs(
        named_run("also", unanswered=0.5), named_run("silent", unanswered=0.5, seed=2), MARGIN, ()
    ).state == ("undecided")
    assert compare_runs(base, named_run("few", turns=8, unanswered=0.5, seed=2), MARGIN, ()).state == "undecided"


def without_values(of: ComparedRun, every: int, metric: str = "voice_to_voice") -> ComparedRun:
    values = of.turns.number(metric)
    assert values is not None
    known = np.where(np.arange(values.size) % every == 0, np.nan, values)
    return replace(of, turns=replace(of.turns, numbers={**of.turns.numbers, metric: packed_numbers(known)}))


def test_values_missing_in_one_run_turn_no_claim_into_another() -> None:
    base, margin = named_run("base", turns=3000), RegressionMargin(250 * MS)
    same, slow = named_run("same", turns=6000, seed=2), named_run("slow", turns=3000, shift_ms=600, seed=2)
    assert compare_runs(base, same, margin, ()).state == "within"
    assert compare_runs(base, slow, margin, ()).state == "worse"
    lacking = compare_runs(base, without_values(same, 10), margin, ())
    assert lacking.state == "undecided"
    assert lacking.sentence.endswith(
        ": 600 turns of same more than of base have no value, and as waits longer than any they could turn it"
    )
    assert compare_runs(without_values(base, 10), slow, margin, ()).state == "undecided"
    # Few could turn nothing, and neither could as many in both.
    assert compare_runs(base, without_values(same, 1000), margin, ()).state == "within"
    assert compare_runs(without_values(base, 10), without_values(same, 10), margin, ()).state == "within"
    assert compare_runs(base, without_values(slow, 10), margin, ()).state == "worse"


@pytest.mark.parametrize("outcome", ["cut", "pending", "invalid"])
def test_turns_cut_in_one_run_alone_turn_no_claim_into_another(outcome: str) -> None:
    def ended(of: ComparedRun, every: int) -> ComparedRun:
        of, places = without_values(of, every), np.arange(of.turns.turns)
        codes = np.where(places % every == 0, OUTCOMES.index(outcome), of.turns.code(OUTCOME))
        return replace(of, turns=replace(of.turns, codes={**of.turns.codes, OUTCOME: packed_codes(codes)}))

    base, margin = named_run("base", turns=3000), RegressionMargin(250 * MS)
    same, slow = named_run("same", turns=6000, seed=2), named_run("slow", turns=3000, shift_ms=600, seed=2)
    lacking = compare_runs(base, ended(same, 3), margin, ())
    assert lacking.state == "undecided"
    assert "2,000 turns of same more than of base have no value" in lacking.sentence
    assert compare_runs(ended(base, 3), slow, margin, ()).state == "undecided"
    assert compare_runs(base, ended(same, 1000), margin, ()).state == "within"
    assert compare_runs(ended(base, 10), ended(same, 10), margin, ()).state == "within"
    assert compare_runs(base, ended(slow, 10), margin, ()).state == "worse"


@pytest.mark.parametrize("is_paired", [False, True])
def test_lost_turns_and_calls_not_begun_may_have_been_slow(is_paired: bool) -> None:
    base, margin = named_run("base", turns=3000), RegressionMargin(250 * MS)
    same, slow = named_run("same", turns=6000, seed=2), named_run("slow", turns=3000, shift_ms=600, seed=2)
    if is_paired:
        base, same, slow = (
            replace(of, turns=replace(of.turns, codes={**of.turns.codes, AUDIO: packed_codes(audio % 60)}))
            for of, audio in ((of, np.arange(of.turns.turns)) for of in (base, same, slow))
        )
        assert compare_runs(base, same, margin, ()).paired.is_paired
    lacking = compare_runs(base, replace(same, unmeasured=600), margin, ())
    assert lacking.state == "undecided"
    assert "600 turns of same more than of base have no value" in lacking.sentence
    assert compare_runs(replace(base, unmeasured=300), slow, margin, ()).state == "undecided"
    # Few could turn nothing, and neither could as many in both.
    assert compare_runs(base, replace(same, unmeasured=6), margin, ()).state == "within"
    assert compare_runs(replace(base, unmeasured=300), replace(same, unmeasured=600), margin, ()).state == "within"
    assert compare_runs(base, replace(slow, unmeasured=600), margin, ()).state == "worse"


def test_a_stage_that_one_run_lacks_on_some_turns_is_undecided() -> None:
    def of_stage(of: ComparedRun) -> ComparedRun:
        return replace(of, turns=replace(of.turns, numbers={"llm_ttft": of.turns.numbers["voice_to_voice"]}))

    base, same = of_stage(named_run("base", turns=3000)), of_stage(named_run("same", turns=6000, seed=2))
    margin = RegressionMargin(250 * MS, "llm_ttft")
    assert compare_runs(base, same, margin, ()).state == "within"
    assert compare_runs(base, without_values(same, 10, "llm_ttft"), margin, ()).state == "undecided"


def test_a_figure_is_not_marked_better_by_values_that_it_lacks() -> None:
    slow, quick = named_run("slow", turns=3000, shift_ms=300), named_run("quick", turns=3000, seed=2)
    known, lacking = (compare_runs(slow, of, MARGIN, ()) for of in (quick, without_values(quick, 10)))
    better, turned = ([status_text(result) for result in of.differences[:3]] for of in (known, lacking))
    assert (better, turned) == (["better"] * 3, ["better", "missing values", "missing values"])
    assert any(line.startswith("missing values: turns without a value") for line in footnotes(lacking))


@pytest.mark.parametrize("metric", ["barge_in_stop", "endpointing"])
def test_turns_without_answer_say_nothing_of_what_no_run_shows(metric: str) -> None:
    margin = RegressionMargin(250 * MS, metric)
    comparison = compare_runs(named_run("base"), named_run("silent", unanswered=0.5, seed=2), margin, ())
    assert comparison.state == "undecided"


def test_a_turn_that_owes_no_value_lacks_none() -> None:
    def connected(of: ComparedRun, every: int) -> ComparedRun:
        numbers = {"connect": of.turns.numbers["voice_to_voice"]}
        return without_values(replace(of, turns=replace(of.turns, numbers=numbers)), every, "connect")

    base, other = connected(named_run("base", turns=6000), 100), connected(named_run("same", turns=6000, seed=2), 3)
    assert compare_runs(base, other, RegressionMargin(250 * MS, "connect"), ()).state == "within"


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
    base, slow = named_run("base"), named_run("slow", shift_ms=900, seed=2)
    for comparison in (
        compare_runs(replace(base, **fault), slow, MARGIN, ()),  # type: ignore[arg-type]
        compare_runs(base, replace(slow, **fault), MARGIN, ()),  # type: ignore[arg-type]
    ):
        assert comparison.state == "undecided"
        assert why in comparison.sentence
        assert all(result.is_worse is None and not result.is_shown for result in comparison.differences)
        assert {row[-1] for _, group in grouped(comparison) for row in map(figure_row, group)} == {"not claimed"}
        assert any("no difference of the service is claimed" in line for line in footnotes(comparison))
    weakened = compare_runs(
        replace(base, telemetry_lost=0.005, is_under_way=True, lacks_old_turns=True), slow, MARGIN, ()
    )
    assert weakened.state == "worse"
    assert len(weakened.notes) == 3


def test_footnotes_state_that_unanswered_turns_raise_percentiles() -> None:
    base = named_run("base")
    sentence = "a turn that was not answered counts as longer than any wait"
    answered = compare_runs(base, named_run("other", seed=2), MARGIN, ())
    assert not any(sentence in line for line in footnotes(answered))
    for comparison in (
        compare_runs(base, named_run("silent", seed=2, unanswered=0.1), MARGIN, ()),
        compare_runs(named_run("silent", seed=2, unanswered=0.1), base, MARGIN, ()),
    ):
        assert any(sentence in line for line in footnotes(comparison))


def test_runs_that_were_asked_differently_say_so() -> None:
    one = {"target": "ws://a", "users": "10", "corpus": "speech", "seed": "1"}
    other = {"users": "20", "corpus": "speech", "seed": "2", "profile": "noise=babble", "target": "ws://a\x1b[2J"}
    differing = asked_differences(one, other)
    assert difference_sentence(differing) == (
        "the runs differ in: target ws://a / ws://a\\x1b[2J, users 10/20, seed 1/2, profile not said/noise=babble"
    )
    assert why_no_pairs(differing) == "they were not sent the same audio: another seed"
    assert difference_sentence(asked_differences(one, one)) is None
    assert why_no_pairs(asked_differences(one, {**one, "users": "9"})) is None


def test_every_objective_that_counts_turns_has_its_good_turns() -> None:
    objectives = default_objectives()
    base, other = named_run("base"), named_run("other", seed=2)
    counted = [objective for objective in objectives if objective.counts == "turns"]
    rng = np.random.default_rng(5)

    def with_missed(of: ComparedRun, share: float) -> ComparedRun:
        columns = {
            missed_column(objective.name): packed_numbers(rng.random(of.turns.turns) < share) for objective in counted
        }
        return replace(of, turns=replace(of.turns, numbers={**of.turns.numbers, **columns}))

    comparison = compare_runs(with_missed(base, 0.02), with_missed(other, 0.2), MARGIN, objectives)
    good = [result for result in comparison.differences if result.figure.name.startswith("good_")]
    assert [result.figure.name for result in good] == [f"good_{objective.name}" for objective in counted]
    assert all(result.is_worse for result in good)
    assert all(result.value == pytest.approx(-0.18, abs=0.04) for result in good)


def test_a_margin_on_another_figure() -> None:
    margin = RegressionMargin(20 * MS, "time_to_first_sentence", "p50")
    base, other = named_run("base"), named_run("other", shift_ms=100, seed=2)

    def renamed(of: ComparedRun) -> ComparedRun:
        numbers = {"time_to_first_sentence": of.turns.numbers["voice_to_voice"]}
        return replace(of, turns=replace(of.turns, numbers=numbers))

    comparison = compare_runs(renamed(base), renamed(other), margin, ())
    assert comparison.decisive.figure.name == "time_to_first_sentence_p50"
    assert comparison.differences[0] is comparison.decisive
    assert comparison.state == "worse"
    assert margin.sentence == "First sentence p50 at most 20 ms above the baseline"


def test_the_worst_of_several_counts() -> None:
    assert worst(["within", "worse", "undecided"]) == "worse"
    assert worst(["within", "undecided"]) == "undecided"
    assert worst(["within", "within"]) == "within"
    assert worst([]) == "undecided"


def test_footnotes_explain_marks_and_intervals_without_mark() -> None:
    comparison = compare_runs(named_run("base"), named_run("slow", shift_ms=400, seed=2), MARGIN, ())
    assert comparison.marked_over == sum(result.p_value is not None for result in comparison.differences) == 6
    assert status_text(comparison.decisive) == "worse"
    assert "worse: shown after Holm's correction over 6 figures" in footnotes(comparison)
    assert not any(line.startswith("possible") for line in footnotes(comparison))
    assert footnotes(comparison)[-1] == (
        "the margin: Voice to voice p95 at most 100 ms above the baseline; this figure is judged alone, by its own "
        "interval"
    )
    unmarked = replace(comparison.decisive, p_value=0.02, is_shown=False)
    possible = replace(
        comparison,
        decisive=unmarked,
        differences=tuple(
            unmarked if result is comparison.decisive else replace(result, is_shown=False)
            for result in comparison.differences
        ),
    )
    assert status_text(unmarked) == "possible"
    (line,) = (line for line in footnotes(possible) if line.startswith("possible: "))
    assert line == (
        "possible: the interval leaves out 0, as that of one figure in twenty does by chance; a difference is not "
        "shown after Holm's correction over 6 figures"
    )
    assert not any(line.startswith("worse") for line in footnotes(possible))


def test_difference_without_upper_bound_is_stated_and_explained() -> None:
    comparison = compare_runs(named_run("base"), named_run("slow", shift_ms=400, seed=2, unanswered=0.035), MARGIN, ())
    assert comparison.decisive.unbounded == "above"
    assert comparison.state == "worse", "whatever the upper bound is, the lower one lies above the margin"
    assert re.search(r" ms \(\+[\d.,]+ ms or more\): more than the margin of 100 ms$", comparison.sentence)
    assert re.fullmatch(r"\+[\d.,]+ ms or more", interval_text(comparison.decisive))
    assert any(line.startswith("or more, or less: ") for line in footnotes(comparison))
