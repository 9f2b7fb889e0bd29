"""Paired differences against exact values, and the checks of a request for them."""

import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any, cast

import numpy as np
import pytest

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.pairing.differences import PairedValues, difference, paired, pairs_needed, standard_error
from loadtest.pairing.job import (
    LOOK_EVERY,
    PairedRun,
    PairOfTurns,
    PairRequest,
    Variant,
    check_decision,
    named_variants,
    work_of,
)
from loadtest.pairing.view import paired_object

MS = 1e6


def drawn(seed: int, pairs: int, by_ms: float, utterances: int = 24) -> PairedValues:
    """Pairs of an assistant whose turns depend on the utterance, and one that is slower by so much."""
    source = np.random.default_rng(seed)
    of_utterance = source.normal(0, 60, utterances)
    spoken = np.concatenate([source.permutation(utterances) for _ in range(pairs // utterances + 1)])[:pairs]
    control, variant = (500 + of_utterance[spoken] + source.lognormal(3.5, 0.6, pairs) for _ in range(2))
    return PairedValues(control * MS, (variant + by_ms) * MS, spoken)


def fixed_sample_interval(values: PairedValues, quantile: float) -> tuple[float, float] | None:
    """The 95 % interval for one look that was planned beforehand; None where there is no standard error."""
    value, error = difference(values, quantile).value, standard_error(values, quantile)
    return None if error is None or value is None else (value - 1.96 * error, value + 1.96 * error)


def test_difference_is_of_quantiles_not_quantile_of_differences() -> None:
    # Medians 3 and 4 differ by 1, while the median of the differences is 2.
    rows = [
        (f"u{n}", (control,) * 3, (variant,) * 3)
        for n, (control, variant) in enumerate([(1, 3), (3, 2), (5, 7), (3, 4), (2, 9)])
    ]
    result = difference(paired(rows * 6), 0.5)
    assert (result.control, result.variant) == (3, 4)
    assert result.too_few == "5 of 8 utterances"
    assert np.median([b[0] - a[0] for _, a, b in rows]) == 2


def test_interval_covers_true_difference_and_shrinks_with_pairs() -> None:
    widths = []
    for pairs in (60, 240, 960):
        result = difference(drawn(7, pairs, 20), 0.5)
        assert result.lower is not None
        assert result.upper is not None
        assert result.lower < 20 * MS < result.upper
        widths.append(result.upper - result.lower)
    assert widths == sorted(widths, reverse=True)


def test_interval_reaches_as_far_as_both_sides_were_measured() -> None:
    """Each of the control's values may be 3 ms less, each of the variant's 2 ms more: the difference is at most 5 ms
    more and, since none may be otherwise, not less."""
    exact = drawn(7, 240, 20)
    within = np.stack([exact.control - 3 * MS, exact.control, exact.variant, exact.variant + 2 * MS])
    measured = difference(PairedValues(exact.control, exact.variant, exact.utterances, within), 0.5)
    result = difference(exact, 0.5)
    assert measured.value == result.value
    assert (result.lower, result.upper) == (measured.lower, pytest.approx((measured.upper or 0) - 5 * MS))


def test_standard_error_agrees_with_the_theory_of_the_median() -> None:
    # Of n normal values the median has the standard error sigma * sqrt(pi / 2 / n); of two independent samples, times
    # sqrt(2). Each pair has an utterance of its own here.
    source, pairs, sigma = np.random.default_rng(3), 4_000, 50.0
    values = PairedValues(source.normal(0, sigma, pairs), source.normal(0, sigma, pairs), np.arange(pairs))
    interval = fixed_sample_interval(values, 0.5)
    assert interval is not None
    expected = 2 * 1.96 * sigma * math.sqrt(math.pi / 2 / pairs) * math.sqrt(2)
    assert interval[1] - interval[0] == pytest.approx(expected, rel=0.15)


@pytest.mark.slow
def test_repeated_looks_rarely_show_a_difference_of_zero() -> None:
    """A path that is looked at all the time leaves its interval in at most one run of twenty; with one look's interval
    it would in far more."""
    left, left_by_one_look = 0, 0
    for seed in range(60):
        whole = drawn(seed, 240, 0)
        looks = [PairedValues(whole.control[:n], whole.variant[:n], whole.utterances[:n]) for n in range(30, 241, 15)]
        results = [difference(look, 0.5) for look in looks]
        left += any((result.lower or 0) > 0 or (result.upper or 0) < 0 for result in results)
        single = [interval for look in looks if (interval := fixed_sample_interval(look, 0.5)) is not None]
        left_by_one_look += any(low > 0 or high < 0 for low, high in single)
    assert left <= 3
    assert left_by_one_look > left


@pytest.mark.nightly
def test_interval_at_stopping_has_0_in_465_of_500_equal_runs() -> None:
    held = 0
    for seed in range(500):
        whole = drawn(seed, 200, 0)
        for pairs in range(20, 201, LOOK_EVERY):
            look = PairedValues(whole.control[:pairs], whole.variant[:pairs], whole.utterances[:pairs])
            result = difference(look, 0.5)
            if result.decision(15 * MS) != "undecided":
                break
        assert result.lower is not None
        assert result.upper is not None
        held += result.lower <= 0 <= result.upper
    assert held >= 465


def test_interval_is_little_wider_than_that_of_one_planned_look() -> None:
    values = drawn(5, 400, 0)
    result, planned = difference(values, 0.5), fixed_sample_interval(values, 0.5)
    assert result.lower is not None
    assert result.upper is not None
    assert planned is not None
    assert 1 < (result.upper - result.lower) / (planned[1] - planned[0]) <= 1.7


@pytest.mark.parametrize(("by_ms", "decision"), [(60, "slower"), (-60, "faster"), (0, "no difference worth having")])
def test_decision_follows_from_the_interval(by_ms: float, decision: str) -> None:
    assert difference(drawn(11, 960, by_ms), 0.5).decision(25 * MS) == decision
    assert difference(drawn(11, 40, 0), 0.5).decision(1 * MS) == "undecided"


def test_too_few_pairs_have_no_interval() -> None:
    assert (pairs_needed(0.5), pairs_needed(0.95), pairs_needed(0.99)) == (20, 100, 500)
    result = difference(drawn(1, 99, 0), 0.95)
    assert (result.too_few, result.value, result.decision(1)) == ("99 of 100 pairs", None, "undecided")


def test_unanswered_turns_are_later_than_every_answer() -> None:
    values = drawn(2, 120, 0)
    variant = values.variant.copy()
    variant[:30] = np.inf
    result = difference(PairedValues(values.control, variant, values.utterances), 0.5)
    assert result.value is not None
    assert result.value > 0
    variant[:90] = np.inf
    gone = difference(PairedValues(values.control, variant, values.utterances), 0.5)
    assert gone.variant is None
    assert gone.too_few == "50 % of the turns or more were not answered"


def test_confidence_of_one_look_is_that_of_normal_distribution() -> None:
    assert NormalDist().inv_cdf(0.975) == pytest.approx(1.96, abs=1e-3)


def test_targets_have_the_names_that_they_are_given_or_letters() -> None:
    assert named_variants(["ws://h/a?x=1", "new=ws://h/b"]) == (
        Variant("a", "ws://h/a?x=1"),
        Variant("new", "ws://h/b"),
    )


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        (["ws://h/a"], "two targets are needed"),
        (["x=ws://h/a", "x=ws://h/b"], "the name 'x' is given twice"),
        (["here", "ws://h/b"], "the target 'here' is not an address"),
        (["=ws://h/a", "ws://h/b"], "is not an address"),
    ],
)
def test_targets_that_cannot_be_used_are_named(targets: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        named_variants(targets)


def test_decision_settings_are_checked() -> None:
    assert check_decision("voice_to_voice", 0.95, 50, 100) == []
    assert check_decision("wer", 0.9, 0, 5)[0].startswith("--metric 'wer' is not a duration of a turn")
    assert len(check_decision("wer", 0.9, 0, 5)) == 3
    assert check_decision("voice_to_voice", 0.99, 50, 100) == ["--pairs 100 is too few: p99 needs 500"]


def test_all_faults_of_a_command_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: app(["pair", "ws://h/a", "--smallest", "0", "--snr", "loud"])) == ExitCode.USAGE
    error = capsys.readouterr().err
    for part in ("--smallest 0 is too small", "two targets are needed", "--snr 'loud'"):
        assert part in error, json.dumps(error)


def turn(**known: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("wer_errors", "wer_words", "fallback", "cache_hit", "cache_tier", "route", "answer_words", "answer_whole")
    )
    return {"outcome": "ok", "values": {}, "work": {}, **nothing, **known}


def compared(*turns: tuple[dict[str, Any], dict[str, Any]], metric: str = "voice_to_voice") -> list[dict[str, Any]]:
    """Return the differences of both variants in a comparison of these turns."""
    variants = (Variant("a", "ws://h/a"), Variant("b", "ws://h/b"))
    request = PairRequest(cast("Any", None), variants, Path("store"), metric, 0.5, 20.0, 100)
    pairs = [PairOfTurns(f"u{number}", both) for number, both in enumerate(turns)]
    return paired_object(PairedRun("run", variants, request, pairs))["variants"]


def timed(metric: str, ms: float, **known: Any) -> dict[str, Any]:
    return turn(values={metric: [ms * MS] * 3}, **known)


@pytest.mark.parametrize("metric", ["voice_to_voice", "asr_final_latency"])
def test_a_variant_that_answers_half_is_not_faster_by_any_metric(metric: str) -> None:
    both = [(timed(metric, 400 + place), timed(metric, 300 + place)) for place in range(40)]
    assert compared(*both, metric=metric)[1]["decision"] == "faster"
    silent = [(control, turn(outcome="timeout") if place % 2 else value) for place, (control, value) in enumerate(both)]
    outcome = compared(*silent, metric=metric)[1]
    assert outcome["differences"][0]["pairs"] == 40
    assert outcome["decision"] != "faster"


@pytest.mark.parametrize(("spoiled", "spoken"), [(0, 20), (1, 21), (5, 25), (25, 25)])
@pytest.mark.parametrize("fault", [None, turn(outcome="invalid")])
def test_an_invalid_pair_is_followed_by_one_more(fault: dict[str, Any] | None, spoiled: int, spoken: int) -> None:
    variants = (Variant("a", "ws://h/a"), Variant("b", "ws://h/b"))
    run = PairedRun("run", variants, PairRequest(cast("Any", None), variants, Path("store"), "", 0.5, 20.0, 20))
    while not run.is_enough:
        run.pairs.append(PairOfTurns("u", (turn(), fault if len(run.pairs) < spoiled else turn(outcome="timeout"))))
    assert len(run.pairs) == spoken


@pytest.mark.parametrize("lost", [None, turn(), turn(outcome="cut"), turn(outcome="invalid")])
def test_turns_missing_in_one_variant_alone_decide_nothing(lost: dict[str, Any] | None) -> None:
    def decided(ms: float, missing: tuple[int, int]) -> dict[str, Any]:
        places = range(60)
        control, variant = ([timed("voice_to_voice", of + place % 7) for place in places] for of in (400.0, 400.0 + ms))
        for turns, every in zip((control, variant), missing, strict=True):
            for place in places:
                if every and place % every == 1:
                    turns[place] = cast("Any", lost)
        return compared(*zip(control, variant, strict=True))[1]

    for ms, known in ((-100, "faster"), (100, "slower"), (0, "no difference worth having")):
        assert decided(ms, (0, 0))["decision"] == known
        # As many in both turn nothing.
        assert decided(ms, (3, 3))["decision"] == known
        for missing in ((0, 2), (2, 0)):
            harmless = {-100: (2, 0), 100: (0, 2)}.get(ms) == missing
            outcome = decided(ms, missing)
            assert outcome["decision"] == (known if harmless else "undecided")
            assert ("30 turns of " in outcome["sentence"]) is not harmless


def test_target_that_refuses_half_of_its_calls_is_no_faster() -> None:
    both = [(timed("connect", 400 + place), timed("connect", 300 + place)) for place in range(40)]
    assert compared(*both, metric="connect")[1]["decision"] == "faster"
    refused = [(control, turn(outcome="error") if place % 2 else value) for place, (control, value) in enumerate(both)]
    assert compared(*refused, metric="connect")[1]["decision"] != "faster"


@pytest.mark.slow
def test_interrupted_unheard_reply_is_no_reply_in_pair() -> None:
    # Callers patch their whole process.
    asked = """
from types import SimpleNamespace as Of
from loadtest.swarm.paired_callers import _figures
from tests.fixtures_turns import client_turn
exchange = Of(timeline=Of(answer=None), service=Of(metadata={}))
broken = {"outcome": "interrupted", "failure_kind": "interrupted"}
print(*(_figures(client_turn(0, **broken, **each), exchange)["outcome"] for each in ({}, {"voice_to_voice_ms": None})))
"""
    process = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["interrupted", "no_reply"]


def test_words_are_pooled_over_the_turns_and_not_their_rates() -> None:
    short, long = turn(wer_errors=1, wer_words=1), turn(wer_errors=0, wer_words=9)
    assert compared((short, turn()), (long, turn()))[0]["word_error_rate"] == 0.1
    assert compared((turn(), turn()))[0]["word_error_rate"] is None


def test_quality_cost_and_work_are_given_with_differences() -> None:
    gap = {"underrun_worst": [200e6, 200e6, 200e6]}
    hit = turn(cache_hit=True, cache_tier="edge", route="cache", answer_words=4, answer_whole=True)
    miss = turn(cache_hit=False, cache_tier="edge", route="cloud", answer_words=8, answer_whole=False, values=gap)
    miss["work"] = {"output_tokens": 10.0, "wasted_tokens": None}
    outcome = compared((turn(), hit), (turn(), miss), (turn(), turn()))[1]
    assert outcome["cache_hits_by_tier"] == {"edge": 0.5}
    assert (outcome["whole_answers"], outcome["answer_words"], outcome["audible_gaps"]) == (0.5, 6, 1.0)
    assert outcome["routes"] == {"local": 0, "cloud": 0.5, "rule": 0, "cache": 0.5}
    assert outcome["work"] == {"output_tokens": 10}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ('{"wasted_tokens": 3, "note": "x", "flag": true, "far": 1e999}', {"wasted_tokens": 3}),
        ("", {}),
        ("[1]", {}),
        ("{", {}),
    ],
)
def test_only_numbers_of_a_report_of_work_are_kept(text: str, numbers: dict[str, float]) -> None:
    assert work_of(text) == numbers
