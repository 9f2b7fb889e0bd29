"""Checks of a rollout: which take part, open turns, variances of whole calls, and the split of what is assigned."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from telemetry.model.durations import Duration
from telemetry.model.semconv import OUTCOMES
from telemetry.rollout import sentences
from telemetry.rollout.check_sample import (
    CheckSample,
    TooFewError,
    clustered_variance,
    effective_clusters,
    expect_clusters,
)
from telemetry.rollout.checks import CheckResult, applied_checks, check_result, check_results
from telemetry.rollout.cohort_comparison import ComparedCohorts, compare_cohorts, comparison_sentence, default_plan
from telemetry.rollout.cohort_turns import (
    CACHE_HIT,
    OUTCOME,
    CohortTurns,
    missed_column,
    open_column,
    packed_codes,
    packed_numbers,
)
from telemetry.rollout.completeness import AssignedUnits, SampleRatio, UnitCounts, sample_ratio, split_notes
from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from telemetry.rollout.plan import DEFAULT_CACHE_MISSES, Check, RolloutPlan, Stage
from telemetry.rollout.shares import ratio_difference
from telemetry.rollout.verdict import rollout_verdict
from telemetry.store.questions.rollouts import question_of
from tests.fixtures_rollouts import as_object
from tests.rollout_cohorts import MS, Regression, cohort, cohort_of, plan
from tests.unit.telemetry.rollout.test_rollout_cohort_comparison import size_of

NOW = 1_790_000_000_000_000_000
OWN = plan(margin_ms=300.0)
PLAN = replace(OWN, guardrails=(*OWN.guardrails, DEFAULT_CACHE_MISSES))
SENTENCE = "share of turns that no cache answered"
CANDIDATE = cohort("streaming", 3000, np.random.default_rng(1))
CONTROL = cohort("stable", 9000, np.random.default_rng(2))


def hits(of: CohortTurns, share: float, reporting: float = 1.0) -> CohortTurns:
    """The same turns, of which so many say whether a cache answered, and so many of those that one did."""
    rng = np.random.default_rng(of.turns)
    column = np.where(rng.random(of.turns) < reporting, rng.random(of.turns) < share, np.nan)
    return replace(of, numbers={**of.numbers, CACHE_HIT: packed_numbers(column)})


def look(candidate: CohortTurns, control: CohortTurns, of: RolloutPlan = PLAN) -> GateVerdict:
    return decide(of, RolloutEvidence(candidate, control, 0.0), first_history(of), NOW)


def test_fewer_hits_than_the_control_has_roll_back() -> None:
    outcome = look(hits(CANDIDATE, 0.15), hits(CONTROL, 0.3))
    assert outcome.verdict == "roll_back"
    assert outcome.reasons[0].startswith(f"{SENTENCE} is worse: 8")
    assert [check.check.kind for check in outcome.checks if check.status == "worse"] == ["cache_misses"]
    assert as_object(PLAN, outcome)["checks"][-1]["name"] == "cache_misses"


def test_as_many_hits_are_within_the_margin() -> None:
    outcome = look(hits(CANDIDATE, 0.3), hits(CONTROL, 0.3))
    assert outcome.verdict == "promote"
    assert outcome.checks[-1].check.margin == 0.05
    assert outcome.notes == ()


def test_check_without_reports_leaves_verdict_of_plan_without_it() -> None:
    outcome, without = look(CANDIDATE, CONTROL), look(CANDIDATE, CONTROL, OWN)
    assert outcome.verdict == "promote"
    assert (outcome.checks, outcome.notes, outcome.sentence) == (without.checks, (), without.sentence)
    assert as_object(PLAN, outcome)["checks"] == as_object(OWN, without)["checks"]


@pytest.mark.parametrize("silent", ["streaming", "stable"])
def test_note_names_cohort_that_does_not_report_it(silent: str) -> None:
    pair = [of if of.cohort == silent else hits(of, 0.3) for of in (CANDIDATE, CONTROL)]
    outcome = look(*pair)
    assert outcome.verdict == "promote"
    assert outcome.notes == (
        f"{SENTENCE} is not compared: no turn of {silent} reports it; it is a default, and holds nothing up",
    )
    assert outcome.checks == look(CANDIDATE, CONTROL, OWN).checks, "with the levels of a plan without it"


def test_turns_that_do_not_count_report_nothing() -> None:
    reported = hits(CANDIDATE, 0.3, reporting=0.02)
    says = ~np.isnan(np.frombuffer(reported.numbers[CACHE_HIT]))
    outcomes = np.where(says, OUTCOMES.index("invalid"), reported.code(OUTCOME))
    only_invalid = replace(reported, codes={**reported.codes, OUTCOME: packed_codes(outcomes)})
    applied = applied_checks(PLAN, only_invalid, hits(CONTROL, 0.3))
    assert [verdict.check.kind for verdict in applied.results] == [check.kind for check in OWN.checks]
    assert applied.plan == OWN


def test_value_that_few_turns_report_holds_nothing_up() -> None:
    outcome = look(hits(CANDIDATE, 0.3, reporting=0.001), hits(CONTROL, 0.3))
    assert outcome.verdict == "promote"
    assert len(outcome.notes) == 1
    assert outcome.notes[0].startswith(f"{SENTENCE} is not compared: ")
    assert outcome.notes[0].endswith("few turns of streaming report it; it is a default, and holds nothing up")


@pytest.mark.parametrize("of_candidate", [0.0, 0.3])
def test_a_control_that_no_cache_answers_cannot_be_undercut(of_candidate: float) -> None:
    """A service without a cache reports for every turn that no cache answered it."""
    outcome = look(hits(CANDIDATE, of_candidate), hits(CONTROL, 0.0))
    assert outcome.verdict == "promote"
    assert outcome.checks == look(CANDIDATE, CONTROL, OWN).checks
    assert outcome.notes == ()


def test_candidate_without_any_cache_hits_is_rolled_back() -> None:
    assert look(hits(CANDIDATE, 0.0), hits(CONTROL, 0.3)).verdict == "roll_back"


@pytest.mark.parametrize(
    ("reporting", "verdict", "notes"), [(0.55, "hold", 0), (0.45, "promote", 1), (1.0, "promote", 0)]
)
def test_candidate_that_reports_less_often_holds_until_rare(reporting: float, verdict: str, notes: int) -> None:
    """The turns that the candidate is silent about beyond the control's share could be misses; where it is silent about
    most of them, there is no such check, and a note says so."""
    outcome = look(hits(CANDIDATE, 0.3, reporting), hits(CONTROL, 0.3))
    assert (outcome.verdict, len(outcome.notes)) == (verdict, notes)


def test_a_check_that_the_plan_states_holds_as_before() -> None:
    stated = replace(OWN, guardrails=(*OWN.guardrails, replace(DEFAULT_CACHE_MISSES, is_optional=False)))
    outcome = look(CANDIDATE, hits(CONTROL, 0.3), stated)
    assert outcome.verdict == "hold"
    assert outcome.reasons == (
        f"{SENTENCE} cannot be compared: streaming: no turn reports it; a value that was not measured can never pass "
        "a check",
    )


def test_a_cohort_without_turns_reports_nothing() -> None:
    empty = cohort("streaming", 0, np.random.default_rng(1))
    assert applied_checks(PLAN, empty, hits(CONTROL, 0.3)).plan == OWN
    assert look(empty, hits(CONTROL, 0.3)).notes == ()


def test_the_question_asks_for_it() -> None:
    assert question_of(PLAN, None).reported == ("cache_hit",)
    assert question_of(OWN, None).reported == ()


def test_a_comparison_has_the_gates_own_results() -> None:
    candidate, control = hits(CANDIDATE, 0.15), hits(CONTROL, 0.3)
    of = ComparedCohorts(PLAN, candidate, control, (size_of(candidate), size_of(control)), 0.0, is_planned=True)
    comparison = compare_cohorts(of)
    assert comparison.results == look(candidate, control).checks == check_results(PLAN, candidate, control)
    silent = compare_cohorts(replace(of, candidate=CANDIDATE))
    assert silent.results == look(CANDIDATE, control).checks
    (row,) = [figure for figure in silent.figures if figure.row.name == SENTENCE]
    assert (row.row.status, row.decides) == ("unknown", False)


def test_comparison_without_plan_states_fewer_cache_hits() -> None:
    candidate, control = hits(CANDIDATE, 0.15), hits(CONTROL, 0.3)
    of = ComparedCohorts(
        default_plan("stable", "streaming"), candidate, control, (size_of(candidate), size_of(control)), 0.0
    )
    assert comparison_sentence(compare_cohorts(of)).sentence.startswith(
        f"streaming is worse than stable: {SENTENCE} is worse: "
    )


def test_earlier_verdict_lacks_the_check_and_figure_is_assumed() -> None:
    candidate, control = hits(CANDIDATE, 0.15), hits(CONTROL, 0.3)
    logged = rollout_verdict(OWN, look(candidate, control, OWN)).checks
    of = ComparedCohorts(
        PLAN, candidate, control, (size_of(candidate), size_of(control)), 0.0, is_planned=True, logged=logged
    )
    (row,) = [figure for figure in compare_cohorts(of).figures if figure.row.name == SENTENCE]
    assert row.is_assumed
    assert not row.decides


def test_the_cache_is_one_check_of_several() -> None:
    slower = cohort("streaming", 3000, np.random.default_rng(1), Regression(shift_ms=900))
    outcome = look(hits(slower, 0.15), hits(CONTROL, 0.3))
    assert {"quantile", "cache_misses"} <= {check.check.kind for check in outcome.checks if check.status == "worse"}


GOOD = Check("good_turns voice_to_voice", "good_turns", 0.03, within=1200 * MS)
NAMED = Check("objective fast", "objective", 0.03, objective="fast")
OPEN_PLAN = plan(guardrails=(GOOD, NAMED))


def judged_turns(name: str, good: int, bad: int, opened: int, check: Check) -> CohortTurns:
    """Turns of as many calls, so many of them good, bad and open by the objective of a check, in an even mix. An open
    one is invalid: nothing else counts it."""
    size = good + bad + opened
    kinds = np.random.default_rng(7).permutation(np.repeat([0.0, 1.0, np.nan], [good, bad, opened]))
    of = cohort_of(name, np.full(size, 500.0), np.arange(size))
    outcomes = np.where(np.isnan(kinds), 7, 0)
    objective = check.counted_by or ""
    columns = {missed_column(objective): packed_numbers(kinds), open_column(objective): packed_numbers(np.isnan(kinds))}
    return replace(of, numbers={**of.numbers, **columns}, codes={**of.codes, "outcome": packed_codes(outcomes)})


def result(candidate: tuple[int, int, int], control: tuple[int, int, int], check: Check = GOOD) -> CheckResult:
    cohorts = (judged_turns(OPEN_PLAN.candidate, *candidate, check), judged_turns(OPEN_PLAN.control, *control, check))
    return check_result(OPEN_PLAN, check, OPEN_PLAN.rollback_level(check), *cohorts)


@pytest.mark.parametrize("check", [GOOD, NAMED])
def test_candidate_may_not_advance_because_bad_turns_are_open(check: Check) -> None:
    assert result((3_800, 200, 0), (3_800, 200, 0), check).status == "within"
    assert result((3_600, 400, 0), (3_800, 200, 0), check).status == "worse"
    # The same turns, but the further bad ones were cut, interrupted, or are of unknown length.
    hidden = result((3_600, 200, 200), (3_800, 200, 0), check)
    assert (hidden.status, hidden.turns, hidden.eligible) == ("open", 3_800, 4_000)
    assert hidden.reason is not None
    assert hidden.reason.startswith("200 turns have no value, a larger share than of the control: ")
    assert sentences.undecided(hidden).endswith(f"; {hidden.reason}")
    assert hidden.upper is not None
    assert hidden.upper > check.margin
    # Nor because the control's good turns are: 8 % against 10 % of those that are known, and perhaps 5 % of all.
    assert result((3_680, 320, 0), (3_600, 400, 0), check).status == "within"
    assert result((3_680, 320, 0), (3_600, 400, 4_000), check).status == "open"
    assert result((3_800, 200, 4), (3_800, 200, 4), check).status == "within", "few of them decide nothing"
    assert result((3_800, 200, 400), (3_800, 200, 400), check).status == "within", "nor those that both have"


def test_candidate_may_not_advance_by_invalid_slow_turns() -> None:
    def heard(name: str, slow: int, invalid: int) -> CohortTurns:
        values = np.random.default_rng(3).permutation(np.repeat([500.0, 2000.0], [4000 - slow - invalid, slow]))
        of = cohort_of(name, np.append(values, np.full(invalid, 2000.0)), np.arange(4000))
        outcomes = np.repeat([0, 7], [4000 - invalid, invalid])
        return replace(of, codes={**of.codes, "outcome": packed_codes(outcomes)})

    control = heard(OPEN_PLAN.control, 150, 0)
    (known, *_), (hidden, *_), (alike, *_) = (
        check_results(OPEN_PLAN, heard(OPEN_PLAN.candidate, slow, invalid), of)
        for slow, invalid, of in ((150, 0, control), (150, 40, control), (150, 40, heard("stable", 150, 40)))
    )
    assert (known.status, hidden.status, alike.status) == ("within", "open", "within")
    assert (hidden.turns, hidden.eligible) == (3_960, 4_000)
    assert hidden.reason == (
        "40 turns have no value, a larger share than of the control: counted as beyond the margin they could turn it"
    )


@pytest.mark.parametrize("check", [GOOD, NAMED])
def test_candidate_is_not_worse_by_turns_that_may_be_good(check: Check) -> None:
    assert result((3_400, 600, 0), (3_800, 200, 0), check).status == "worse"
    assert result((3_400, 600, 40), (3_800, 200, 40), check).status == "worse"
    assert result((1_000, 200, 2_800), (3_800, 200, 0), check).status == "open"


@pytest.mark.slow
@given(
    st.tuples(st.integers(300, 3_000), st.integers(1, 300)),
    st.tuples(st.integers(300, 3_000), st.integers(1, 300)),
    st.integers(0, 900),
    st.integers(0, 900),
)
def test_open_turns_never_make_a_claim_nor_turn_one_around(
    candidate: tuple[int, int], control: tuple[int, int], of_candidate: int, of_control: int
) -> None:
    without = result((*candidate, 0), (*control, 0))
    compared = result((*candidate, of_candidate), (*control, of_control))
    assert compared.status in (without.status, "open")
    if compared.status == "within":
        # It holds by plain arithmetic with those open turns against the candidate that it has more of.
        known = sum(candidate) / (sum(candidate) + of_candidate), sum(control) / (sum(control) + of_control)
        more = max(0.0, 1 - known[0] / known[1]), max(0.0, 1 - known[1] / known[0])
        bad, bad_of_control = candidate[1] / sum(candidate), control[1] / sum(control)
        assert bad * (1 - more[0]) + more[0] - bad_of_control * (1 - more[1]) < GOOD.margin


def test_a_ratio_of_independent_turns_has_the_binomial_error() -> None:
    bad = np.repeat([1.0, 0.0], [60, 940])
    difference = ratio_difference(CheckSample(bad, np.arange(1000)), CheckSample(bad[::-1].copy(), np.arange(1000)))
    assert difference.value == 0
    # Never below it, and next to it where turns are independent.
    binomial = np.sqrt(2 * stats.binom.var(1000, 0.06)) / 1000
    assert binomial <= difference.standard_error < 1.02 * binomial


def test_no_bad_turn_among_a_hundred_is_no_certainty() -> None:
    none = CheckSample(np.zeros(100), np.arange(100))
    assert ratio_difference(none, none).standard_error > 0.01
    paired = CheckSample(np.zeros(100), np.arange(100), None, np.arange(100) % 25)
    assert ratio_difference(paired, paired).standard_error > 0.01


def test_call_with_many_turns_is_not_taken_for_all() -> None:
    # One call of 250 turns and 50 of 5; calls are slow or not as a whole.
    sizes = np.r_[250, np.full(50, 5)]
    clusters, rng = np.repeat(np.arange(51), sizes), np.random.default_rng(3)
    drawn = [np.repeat(rng.random(51) < 0.3, sizes).astype(float) for _ in range(400)]
    stated = [clustered_variance((values - values.mean()) / values.size, (clusters,)) for values in drawn]
    assert float(np.mean(stated)) >= 0.9 * float(np.var([values.mean() for values in drawn]))
    assert effective_clusters(clusters) == pytest.approx(500**2 / (250**2 + 50 * 25))


def test_the_variance_does_not_depend_on_how_calls_are_numbered() -> None:
    rng = np.random.default_rng(4)
    values, clusters = rng.lognormal(size=997), rng.integers(0, 90, 997)
    renumbered, order = rng.permutation(90)[clusters], rng.permutation(997)
    one = CheckSample(values, clusters, np.full(997, 3.7))
    other = CheckSample(values[order], renumbered[order], np.full(997, 3.7))
    assert ratio_difference(one, one) == ratio_difference(other, other)


def test_values_that_do_not_vary_say_nothing_of_their_error() -> None:
    same = CheckSample(np.full(100, 2.0), np.arange(100), np.full(100, 4.0))
    with pytest.raises(TooFewError, match="its values do not vary"):
        ratio_difference(same, same)


def test_too_few_clusters_are_refused_with_what_is_missing() -> None:
    with pytest.raises(TooFewError, match="needs 20 calls, has 10"):
        expect_clusters(CheckSample(np.arange(500.0), np.arange(500) // 50), 20)
    with pytest.raises(TooFewError, match="needs 20 utterances, has 5"):
        expect_clusters(CheckSample(np.arange(500.0), np.arange(500), None, np.arange(500) % 5), 20)
    expect_clusters(CheckSample(np.arange(500.0), np.arange(500) % 2, None, np.arange(500) % 20), 20)


LIMIT = 0.0005


def stage(share: float, control_share: float | None = None) -> Stage:
    return Stage("canary", share, 1 - share if control_share is None else control_share, Duration(), 1)


def split(
    candidate: int, control: int, share: float = 0.5, *, unnamed: tuple[int, int] = (0, 0), limit: float = LIMIT
) -> SampleRatio:
    units = AssignedUnits(candidate, unnamed[0]), AssignedUnits(control, unnamed[1])
    ratio_check = sample_ratio(stage(share), UnitCounts(candidate + control, 0, *units), "user", limit)
    assert ratio_check is not None
    return ratio_check


def probabilities(units: int, share: float) -> np.ndarray:
    """Those of all counts, from logarithms of factorials."""
    counts = np.arange(units + 1)
    log = np.array([math.lgamma(count + 1) for count in counts])
    return np.exp(log[-1] - log - log[::-1] + counts * math.log(share) + (units - counts) * math.log1p(-share))


def two_sided(units: int, share: float) -> np.ndarray:
    """The p-value of every count: all counts that are at most as likely."""
    of = probabilities(units, share)
    return np.array([of[of <= p_value * (1 + 1e-9)].sum() for p_value in of])


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
@pytest.mark.parametrize("units", [1, 7, 60, 430])
def test_the_split_is_tested_exactly(units: int, share: float) -> None:
    expected = two_sided(units, share)
    for candidate in {0, units // 20, units // 4, units // 2, units}:
        parts = split(candidate, units - candidate, share)
        assert parts.p_value == pytest.approx(expected[candidate], rel=1e-6)
        assert parts.p_value == parts.p_of_known
        assert parts.share == candidate / units


@pytest.mark.slow
@pytest.mark.parametrize(("units", "share"), [(430, 0.5), (430, 0.25), (2000, 0.05), (400, 0.7), (60, 0.5)])
def test_the_loss_that_it_states_is_found_as_often_as_it_says(units: int, share: float) -> None:
    """Simulated: units are assigned and lost one by one until so many are seen."""
    parts = split(round(units * share), units - round(units * share), share)
    assert parts.detectable_loss is not None
    assert parts.detectable_control_loss is not None
    rng = np.random.default_rng(units)
    p_values = two_sided(units, share)
    for of_candidate, of_control in ((parts.detectable_loss, 0.0), (0.0, parts.detectable_control_loss)):
        rejected = 0
        for _ in range(2000):
            is_candidate = rng.random(5 * units) < share
            is_kept = rng.random(is_candidate.size) >= np.where(is_candidate, of_candidate, of_control)
            rejected += p_values[np.count_nonzero(is_candidate[is_kept][:units])] < LIMIT
        assert rejected / 2000 == pytest.approx(0.8, abs=0.03)


def test_a_tenth_of_the_calls_lost_is_invisible_at_430() -> None:
    """The figures of the explanation."""
    parts = split(215, 215)
    assert parts.detectable_loss is not None
    assert math.ceil(100 * parts.detectable_loss) == 35
    of_some, of_more = split(3000, 3000).detectable_loss, split(3500, 3500).detectable_loss
    assert of_some is not None
    assert of_more is not None
    assert of_more < 0.1 < of_some
    assert split(215, 215).detectable_control_loss == parts.detectable_loss, "both are half"


@pytest.mark.parametrize(("units", "share"), [(1, 0.5), (10, 0.5), (100, 0.05)])
def test_a_split_of_few_units_shows_no_loss(units: int, share: float) -> None:
    """All of them lost: probability 0.95^100 = 0.6 % of none by chance is above the limit, too."""
    parts = split(0, units, share)
    assert (1 - share) ** units > LIMIT
    assert parts.detectable_loss is None
    assert not parts.is_mismatch


def test_a_loss_is_stated_in_two_digits_and_never_as_less() -> None:
    parts = split(500, 1600, 0.25)
    of_candidate, of_control = parts.detectable_loss, parts.detectable_control_loss
    assert of_candidate is not None
    assert of_control is not None
    (note,) = split_notes(parts, "new", "old", are_named=True)
    assert note == (
        f"in the split of 2,100 users, a loss of {math.ceil(100 * of_candidate)} % of those on new or of "
        f"{math.ceil(100 * of_control)} % of those on old would have been found with a probability of 80 %"
    )
    (of_many,) = split_notes(split(5_000_000, 5_000_000), "new", "old", are_named=True)
    assert re.search(r"a loss of 0\.\d\d % of those on new or of 0\.\d\d % of those on old would", of_many), of_many


def test_only_one_cohorts_loss_may_be_detectable() -> None:
    """None of 120 units on the candidate is possible by chance; none on the control is not."""
    parts = split(6, 114, 0.05)
    assert parts.detectable_loss is None
    assert parts.detectable_control_loss is not None
    (note,) = split_notes(parts, "new", "old", are_named=True)
    assert note.startswith("in the split of 120 users, a loss of ")
    assert note.endswith(
        "% of those on old would have been found with a probability of 80 %, "
        "and of those on new not even the loss of all"
    )
    (note,) = split_notes(split(2, 2), "new", "old", are_named=True)
    assert note == (
        "in the split of 4 users, no loss would have been found, not even of all units of one cohort: they are too few"
    )


def test_units_without_a_name_never_make_a_mismatch() -> None:
    alone = split(0, 500, 0.25)
    assert alone.is_mismatch
    of_candidate_unknown = split(0, 500, 0.25, unnamed=(400, 0))
    assert not of_candidate_unknown.is_mismatch
    assert of_candidate_unknown.is_open
    assert of_candidate_unknown.p_value == 1.0
    (note,) = split_notes(of_candidate_unknown, "new", "old", are_named=False)
    assert note == (
        "the split is not known: 0 % of 500 users that are known are on new, 25 % planned, and 400 calls that name no "
        "user could make up for that"
    )


def test_a_mismatch_that_they_cannot_make_up_for_is_one() -> None:
    parts = split(100, 900, 0.25, unnamed=(20, 40))
    assert parts.is_mismatch
    # The best that they can be: 20 more users of the candidate, none of the control.
    assert parts.p_value == split(120, 900, 0.25).p_value
    assert split(900, 100, 0.25, unnamed=(20, 40)).p_value == split(900, 140, 0.25).p_value
    assert split_notes(parts, "new", "old", are_named=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_p_value_is_the_largest_of_all_numbers_of_users(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known, unnamed = rng.integers(1, 60, 2), rng.integers(0, 12, 2)
    every = [
        split(int(known[0]) + one, int(known[1]) + other, 0.3).p_value
        for one in range(unnamed[0] + 1)
        for other in range(unnamed[1] + 1)
    ]
    parts = split(int(known[0]), int(known[1]), 0.3, unnamed=(int(unnamed[0]), int(unnamed[1])))
    assert parts.p_value == pytest.approx(max(every), rel=1e-9) or (parts.p_value == 1.0 and max(every) > 0.8)


def test_calls_without_user_make_a_loss_harder_to_detect() -> None:
    plain, with_unnamed = split(500, 500), split(500, 500, unnamed=(100, 0))
    assert plain.detectable_loss is not None
    assert with_unnamed.detectable_loss is not None
    assert with_unnamed.detectable_loss > plain.detectable_loss
    assert with_unnamed.detectable_control_loss == plain.detectable_control_loss
    # As found by trying: so few known ones that a hundred more would be too few as well.
    p_values = two_sided(1100, 0.5)
    most = max(left for left in range(500) if p_values[left + 100] < LIMIT)
    share = 0.5 * (1 - with_unnamed.detectable_loss) / (1 - 0.5 * with_unnamed.detectable_loss)
    assert probabilities(1000, share)[: most + 1].sum() == pytest.approx(0.8, abs=1e-6)
    assert (
        "in the split of 1,000 users, whatever users 100 unnamed calls are of, a loss of "
        in split_notes(with_unnamed, "new", "old", are_named=False)[0]
    )


@pytest.mark.slow
def test_frequent_callers_count_once_each() -> None:
    """Zipf: the calls of few users are most of all calls; users are split as planned in every draw."""
    rng = np.random.default_rng(3)
    of_users, of_calls = 0, 0
    for draw in range(300):
        is_candidate = rng.random(400) < 0.25
        calls = np.minimum(rng.zipf(1.6, 400), 2000)
        one, other = int(is_candidate.sum()), int((~is_candidate).sum())
        of_users += split(one, other, 0.25, limit=0.05).is_mismatch
        if draw < 60:  # so many calls take longer to test, and nearly every draw shows it
            candidate_calls, other_calls = int(calls[is_candidate].sum()), int(calls[~is_candidate].sum())
            of_calls += split(candidate_calls, other_calls, 0.25, limit=0.05).is_mismatch
    assert of_users / 300 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert of_calls / 60 > 0.5, "what a test over calls would have said"


def test_nothing_known_is_not_tested() -> None:
    nothing = UnitCounts(40, 0, AssignedUnits(0, 20), AssignedUnits(0, 20))
    assert sample_ratio(stage(0.5), nothing, "user", LIMIT) is None
    assert sample_ratio(stage(0.5), UnitCounts(), "call", LIMIT) is None
    assert sample_ratio(stage(0.5), UnitCounts(5, 5), "call", LIMIT) is None, "all of them met both"
    assert split_notes(None, "new", "old", are_named=False) == [
        "the split was not tested: users are assigned, and none is known"
    ]
    assert split_notes(None, "new", "old", are_named=True) == []


def test_shares_among_other_cohorts_are_those_of_the_two() -> None:
    counts = UnitCounts(1000, 0, AssignedUnits(20), AssignedUnits(980))
    ratio_check = sample_ratio(stage(0.02, 0.9), counts, "call", LIMIT)
    assert ratio_check is not None
    assert ratio_check.expected_share == pytest.approx(0.02 / 0.92)
    with pytest.raises(ValueError, match="stage canary has no control"):
        sample_ratio(stage(1.0), counts, "call", LIMIT)
