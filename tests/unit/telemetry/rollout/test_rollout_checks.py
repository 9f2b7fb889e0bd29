"""Checks of a rollout: which take part, and how open turns count in them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.model.semconv import OUTCOMES
from telemetry.rollout import sentences
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
from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from telemetry.rollout.plan import DEFAULT_CACHE_MISSES, Check, RolloutPlan
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
    found = look(hits(CANDIDATE, 0.15), hits(CONTROL, 0.3))
    assert found.verdict == "roll_back"
    assert found.reasons[0].startswith(f"{SENTENCE} is worse: 8")
    assert [each.check.kind for each in found.checks if each.status == "worse"] == ["cache_misses"]
    assert as_object(PLAN, found)["checks"][-1]["name"] == "cache_misses"


def test_as_many_hits_are_within_the_margin() -> None:
    found = look(hits(CANDIDATE, 0.3), hits(CONTROL, 0.3))
    assert found.verdict == "promote"
    assert found.checks[-1].check.margin == 0.05
    assert found.notes == ()


def test_where_no_turn_reports_it_the_verdict_is_that_of_a_plan_without_it() -> None:
    found, without = look(CANDIDATE, CONTROL), look(CANDIDATE, CONTROL, OWN)
    assert found.verdict == "promote"
    assert (found.checks, found.notes, found.sentence) == (without.checks, (), without.sentence)
    assert as_object(PLAN, found)["checks"] == as_object(OWN, without)["checks"]


@pytest.mark.parametrize("silent", ["streaming", "stable"])
def test_where_one_cohort_does_not_report_it_a_note_says_which(silent: str) -> None:
    pair = [of if of.cohort == silent else hits(of, 0.3) for of in (CANDIDATE, CONTROL)]
    found = look(*pair)
    assert found.verdict == "promote"
    assert found.notes == (
        f"{SENTENCE} is not compared: no turn of {silent} reports it; it is a default, and holds nothing up",
    )
    assert found.checks == look(CANDIDATE, CONTROL, OWN).checks, "with the levels of a plan without it"


def test_turns_that_do_not_count_report_nothing() -> None:
    reported = hits(CANDIDATE, 0.3, reporting=0.02)
    says = ~np.isnan(np.frombuffer(reported.numbers[CACHE_HIT]))
    outcomes = np.where(says, OUTCOMES.index("invalid"), reported.code(OUTCOME))
    only_invalid = replace(reported, codes={**reported.codes, OUTCOME: packed_codes(outcomes)})
    found = applied_checks(PLAN, only_invalid, hits(CONTROL, 0.3))
    assert [each.check.kind for each in found.results] == [each.kind for each in OWN.checks]
    assert found.plan == OWN


def test_what_is_reported_by_too_few_holds_nothing_up_either() -> None:
    found = look(hits(CANDIDATE, 0.3, reporting=0.001), hits(CONTROL, 0.3))
    assert found.verdict == "promote"
    assert len(found.notes) == 1
    assert found.notes[0].startswith(f"{SENTENCE} is not compared: ")
    assert found.notes[0].endswith("few turns of streaming report it; it is a default, and holds nothing up")


@pytest.mark.parametrize("of_candidate", [0.0, 0.3])
def test_a_control_that_no_cache_answers_cannot_be_undercut(of_candidate: float) -> None:
    """As of a service that says of every turn that no cache answered it, because it has none."""
    found = look(hits(CANDIDATE, of_candidate), hits(CONTROL, 0.0))
    assert found.verdict == "promote"
    assert found.checks == look(CANDIDATE, CONTROL, OWN).checks
    assert found.notes == ()


def test_a_candidate_that_no_cache_answers_any_more_is_rolled_back() -> None:
    assert look(hits(CANDIDATE, 0.0), hits(CONTROL, 0.3)).verdict == "roll_back"


@pytest.mark.parametrize(
    ("reporting", "verdict", "notes"), [(0.55, "hold", 0), (0.45, "promote", 1), (1.0, "promote", 0)]
)
def test_a_candidate_that_reports_it_less_often_holds_until_it_hardly_does(
    reporting: float, verdict: str, notes: int
) -> None:
    """The turns that the candidate is silent about beyond the control's share could be misses; where it is silent about
    most of them, there is no such check, and a note says so."""
    found = look(hits(CANDIDATE, 0.3, reporting), hits(CONTROL, 0.3))
    assert (found.verdict, len(found.notes)) == (verdict, notes)


def test_a_check_that_the_plan_states_holds_as_before() -> None:
    stated = replace(OWN, guardrails=(*OWN.guardrails, replace(DEFAULT_CACHE_MISSES, is_optional=False)))
    found = look(CANDIDATE, hits(CONTROL, 0.3), stated)
    assert found.verdict == "hold"
    assert found.reasons == (
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
    found = compare_cohorts(of)
    assert found.results == look(candidate, control).checks == check_results(PLAN, candidate, control)
    silent = compare_cohorts(replace(of, candidate=CANDIDATE))
    assert silent.results == look(CANDIDATE, control).checks
    (row,) = [each for each in silent.figures if each.row.name == SENTENCE]
    assert (row.row.status, row.decides) == ("unknown", False)


def test_a_comparison_without_a_plan_says_that_caches_answer_less() -> None:
    candidate, control = hits(CANDIDATE, 0.15), hits(CONTROL, 0.3)
    of = ComparedCohorts(
        default_plan("stable", "streaming"), candidate, control, (size_of(candidate), size_of(control)), 0.0
    )
    assert comparison_sentence(compare_cohorts(of)).sentence.startswith(
        f"streaming is worse than stable: {SENTENCE} is worse: "
    )


def test_the_verdict_of_an_earlier_version_has_no_such_check_and_the_figure_is_shown_beside_it() -> None:
    candidate, control = hits(CANDIDATE, 0.15), hits(CONTROL, 0.3)
    logged = rollout_verdict(OWN, look(candidate, control, OWN)).checks
    of = ComparedCohorts(
        PLAN, candidate, control, (size_of(candidate), size_of(control)), 0.0, is_planned=True, logged=logged
    )
    (row,) = [each for each in compare_cohorts(of).figures if each.row.name == SENTENCE]
    assert row.is_assumed
    assert not row.decides


def test_the_cache_is_one_check_of_several() -> None:
    slower = cohort("streaming", 3000, np.random.default_rng(1), Regression(shift_ms=900))
    found = look(hits(slower, 0.15), hits(CONTROL, 0.3))
    assert {"quantile", "cache_misses"} <= {each.check.kind for each in found.checks if each.status == "worse"}


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
def test_a_candidate_may_not_go_on_because_its_bad_turns_are_open(check: Check) -> None:
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


@pytest.mark.parametrize("check", [GOOD, NAMED])
def test_a_candidate_is_not_worse_because_of_turns_that_may_have_been_good(check: Check) -> None:
    assert result((3_400, 600, 0), (3_800, 200, 0), check).status == "worse"
    assert result((3_400, 600, 40), (3_800, 200, 40), check).status == "worse"
    assert result((1_000, 200, 2_800), (3_800, 200, 0), check).status == "open"


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
    found = result((*candidate, of_candidate), (*control, of_control))
    assert found.status in (without.status, "open")
    if found.status == "within":
        # It holds by plain arithmetic with those open turns against the candidate that it has more of.
        known = sum(candidate) / (sum(candidate) + of_candidate), sum(control) / (sum(control) + of_control)
        more = max(0.0, 1 - known[0] / known[1]), max(0.0, 1 - known[1] / known[0])
        bad, bad_of_control = candidate[1] / sum(candidate), control[1] / sum(control)
        assert bad * (1 - more[0]) + more[0] - bad_of_control * (1 - more[1]) < GOOD.margin
