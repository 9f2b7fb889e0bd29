"""The gate: promotion, holding and rolling back, and one sentence for all that may never promote."""

from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from telemetry.model.durations import Duration
from telemetry.model.errors import ConfigError
from telemetry.model.semconv import OUTCOMES, Outcome
from telemetry.rollout.cohort_turns import CALL, FALLBACK, OUTCOME, CohortTurns, packed_codes, packed_numbers
from telemetry.rollout.completeness import AssignedUnits, UnitCounts
from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from telemetry.rollout.plan import (
    Check,
    CheckKind,
    Completeness,
    Look,
    RolloutHistory,
    RolloutPlan,
    Stage,
    decode_history,
    encode_history,
)
from telemetry.rollout.plan_document import parse_plan
from telemetry.rollout.verdict import VerdictUnits
from tests.fixtures_rollouts import as_object
from tests.rollout_cohorts import MS, SAME, Regression, cohort, cohort_of, first_turns, plan, units_of

NOW = 1_790_000_000_000_000_000
TURNS = 4000
EMPTY = cohort_of("streaming", np.zeros(0), np.zeros(0, dtype=np.int64))


@cache
def made(name: str, turns: int, seed: int, regression: Regression = SAME) -> CohortTurns:
    return cohort(name, turns, np.random.default_rng(seed), regression)


def evidence(regression: Regression = SAME, turns: int = TURNS, **changes: object) -> RolloutEvidence:
    seen = RolloutEvidence(
        candidate=made("streaming", turns, 1, regression),
        control=made("stable", 3 * turns, 2),
        telemetry_lost=0.0,
        cohorts=("stable", "streaming"),
    )
    seen = replace(seen, **changes)  # type: ignore[arg-type]
    return seen if "units" in changes else replace(seen, units=units_of(seen.candidate, seen.control))


def look(of: RolloutPlan, seen: RolloutEvidence, history: RolloutHistory | None = None, now: int = NOW) -> GateVerdict:
    return decide(of, seen, first_history(of) if history is None else history, now)


def test_an_equal_candidate_is_promoted_when_its_turns_are_there() -> None:
    outcome = look(plan(), evidence())
    assert outcome.verdict == "promote"
    assert outcome.turns_needed == 0
    assert {result.status for result in outcome.checks} == {"within"}
    assert outcome.sentence.startswith("promote streaming at stage canary: p95 of voice to voice is within 100 ms: ")
    assert len(outcome.reasons) == len(plan().checks)


def test_early_look_holds_and_states_missing_turns() -> None:
    outcome = look(plan(), evidence(turns=500))
    assert outcome.verdict == "hold"
    assert outcome.turns_needed is not None
    assert outcome.turns_needed > 100
    assert "is not shown to be within 100 ms yet" in outcome.sentence
    assert outcome.turns_needed == max(result.turns_needed or 0 for result in outcome.checks)
    enough = look(plan(), evidence(turns=2 * (500 + outcome.turns_needed)))
    assert enough.verdict == "promote"


def test_a_slower_candidate_is_rolled_back_with_figures() -> None:
    outcome = look(plan(), evidence(Regression(shift_ms=200)))
    assert outcome.verdict == "roll_back"
    assert outcome.reasons[0].startswith("p95 of voice to voice is worse: ")
    (primary, *_) = outcome.checks
    assert primary.lower is not None
    assert primary.lower > 0
    assert primary.difference == pytest.approx(200 * MS, rel=0.25)


def test_candidate_slow_in_slowest_two_percent_fails_by_tail() -> None:
    of = replace(plan(), guardrails=(Check("tail voice_to_voice", "tail", 0.01),))
    outcome = look(of, evidence(Regression(tail=0.02, tail_ms=1500)))
    assert outcome.verdict == "roll_back"
    assert [result.check.kind for result in outcome.checks if result.status == "worse"] == ["tail"]


def test_candidate_slower_within_margin_is_promoted_once_shown() -> None:
    outcome = look(plan(margin_ms=200), evidence(Regression(shift_ms=60), turns=8000))
    assert outcome.checks[0].lower is not None
    assert outcome.checks[0].lower > 0
    assert outcome.checks[0].status == "within"
    assert outcome.verdict == "promote"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"telemetry_lost": 0.01}, "1 % of the telemetry is missing, and the plan allows none"),
        ({"telemetry_lost": None}, "nothing says whether telemetry was lost: these turns carry no sequence numbers"),
        ({"candidate": EMPTY}, "no turn of the candidate streaming has arrived; cohorts seen are stable, streaming"),
        (
            {"control": replace(EMPTY, cohort="stable")},
            "no turn of the control stable has arrived; cohorts seen are stable, streaming",
        ),
        (
            {"candidate": replace(made("streaming", TURNS, 1), newest_unix_ns=NOW + 120 * 10**9)},
            "turns of streaming began at 2026-09-21 14:15:20 UTC, and it is 2026-09-21 14:13:20 UTC",
        ),
        (
            {"other_plans": (replace(plan(), name="other", control="streaming", candidate="b"),)},
            "the plans streaming and other are both about the cohort streaming",
        ),
        ({"control": made("stable", TURNS, 2)}, "sample-ratio mismatch: "),
    ],
)
@pytest.mark.parametrize("regression", [SAME, Regression(shift_ms=400)], ids=["equal", "worse"])
def test_untrustworthy_evidence_can_only_hold(
    changes: dict[str, object], sentence: str, regression: Regression
) -> None:
    outcome = look(plan(), evidence(regression, **changes))
    assert outcome.verdict == "hold"
    assert outcome.reasons[0].startswith(sentence)


def test_too_many_invalid_turns_can_only_hold() -> None:
    candidate = made("streaming", TURNS, 1)
    outcomes = candidate.code(OUTCOME).copy()
    outcomes[::50] = 7  # invalid
    spoiled = replace(candidate, codes={**candidate.codes, OUTCOME: packed_codes(outcomes)})
    outcome = look(plan(), evidence(candidate=spoiled))
    assert outcome.verdict == "hold"
    assert outcome.reasons == (
        "2 % of the turns of streaming are invalid, and the plan allows 1 %: these turns say nothing about the service",
    )
    assert outcome.candidate_turns == TURNS * 49 // 50


def ended(of: CohortTurns, which: NDArray[np.bool_], outcome: Outcome, *, has_value: bool = False) -> CohortTurns:
    """The cohort, some of whose turns ended otherwise, without their values unless they had been measured before."""
    outcomes, values = of.code(OUTCOME), np.array(of.number("voice_to_voice"))
    outcomes[which] = OUTCOMES.index(outcome)
    values[which & (not has_value)] = np.nan
    codes = {**of.codes, OUTCOME: packed_codes(outcomes)}
    return replace(of, codes=codes, numbers={**of.numbers, "voice_to_voice": packed_numbers(values)})


@pytest.mark.parametrize("outcome", ["cut", "pending"])
def test_unfinished_slow_turns_can_hold_and_never_promote(outcome: Outcome) -> None:
    """A candidate that is rolled back for its slow turns is not promoted because they were cut before an answer."""
    of = plan(guardrails=())
    slow = cohort("streaming", TURNS, np.random.default_rng(1), Regression(at_random=0.06, tail_ms=3000))
    values = np.array(slow.number("voice_to_voice"))
    is_slow = values > 2500 * MS
    assert look(of, evidence(candidate=slow)).verdict == "roll_back"
    held = look(of, evidence(candidate=ended(slow, is_slow, outcome)))
    assert held.verdict == "hold"
    assert f"{np.count_nonzero(is_slow)} turns have no value, a larger share than of the control" in held.sentence


@pytest.mark.parametrize("outcome", ["cut", "pending"])
def test_as_many_unfinished_turns_as_in_control_hold_nothing(outcome: Outcome) -> None:
    both = [made("streaming", TURNS, 1), made("stable", 3 * TURNS, 2)]
    candidate, control = [ended(side, np.arange(side.turns) % 25 == 0, outcome) for side in both]
    assert look(plan(), evidence(candidate=candidate, control=control)).verdict == "promote"


def test_calls_that_never_began_hold_as_those_of_one_cohort_only() -> None:
    sound = evidence()
    candidate, control = (replace(of, unbegun_turns=of.turns // 20) for of in (sound.candidate, sound.control))
    assert look(plan(), replace(sound, candidate=candidate, control=control)).verdict == "promote"
    held = look(plan(), replace(sound, candidate=candidate))
    assert held.verdict == "hold"
    assert "have no value, a larger share than of the control" in held.sentence
    # A call that never began is not an error of the service.
    assert look(plan(), replace(sound, control=control)).verdict != "roll_back"


def test_a_value_counts_though_its_turn_was_cut_later() -> None:
    candidate = made("streaming", TURNS, 1, Regression(shift_ms=200))
    cut = ended(candidate, np.ones(TURNS, np.bool_), "cut", has_value=True)
    outcome = look(plan(guardrails=()), evidence(candidate=cut))
    assert outcome.checks[0].status == "worse"
    assert outcome.checks[0].turns == np.count_nonzero(~np.isnan(np.array(candidate.number("voice_to_voice"))))


@pytest.mark.parametrize("kind", ["no_reply", "errors", "abandonment"])
def test_turns_that_were_cut_may_have_ended_in_any_way(kind: CheckKind) -> None:
    check = Check(kind, kind, 0.03)
    of = plan(guardrails=(check,))
    cut = ended(made("streaming", TURNS, 1), np.arange(TURNS) % 20 == 0, "cut")
    by_kind = {entry.check.kind: entry for entry in look(of, evidence(candidate=cut)).checks}
    assert by_kind[kind].status == "open"
    assert by_kind[kind].reason is not None
    assert (by_kind[kind].turns, by_kind[kind].eligible) == (TURNS * 19 // 20, TURNS)


def test_a_plan_that_is_edited_midway_holds() -> None:
    first = look(plan(), evidence(turns=500))
    edited = look(plan(margin_ms=1000), evidence(), first.history)
    assert edited.verdict == "hold"
    assert edited.reasons == ("the plan was edited after 1 look: restore it, or begin a rollout of another name",)
    assert look(plan(), evidence(), first.history, NOW + 1).verdict == "promote"
    other = look(plan(), evidence(), replace_history(first.history, plan="other"))
    assert other.reasons[0].startswith("the history is of the rollout other, not of streaming")


def replace_history(history: RolloutHistory, **changes: object) -> RolloutHistory:
    return RolloutHistory(**({name: getattr(history, name) for name in history.__struct_fields__} | changes))  # type: ignore[arg-type]


def test_a_clock_that_goes_back_holds() -> None:
    first = look(plan(), evidence(turns=500))
    again = look(plan(), evidence(), first.history, NOW - 1)
    assert again.verdict == "hold"
    assert again.reasons[0].startswith("the clock went back: ")
    assert look(plan(), evidence(), again.history, NOW - 1).verdict == "hold"
    to_come = replace_history(first.history, stage_since_unix_ns=NOW + 10**9)
    assert "which has not come yet" in look(plan(), evidence(), to_come).reasons[0]


def test_turns_that_vanish_hold() -> None:
    first = look(plan(), evidence(Regression(shift_ms=30)))
    chosen = replace(evidence(), candidate=first_turns(made("streaming", TURNS, 1), TURNS - 1))
    again = look(plan(), chosen, first.history, NOW + 1)
    assert again.verdict == "hold"
    assert again.reasons[0].startswith("1 turn of streaming that an earlier look saw are gone")
    # Looking once more does not make it good.
    assert look(plan(), chosen, again.history, NOW + 2).verdict == "hold"


def test_rolled_back_stays_rolled_back() -> None:
    worse = look(plan(), evidence(Regression(shift_ms=200), turns=3000))
    assert worse.verdict == "roll_back"
    better = look(plan(), evidence(turns=8000), worse.history, NOW + 1)
    assert better.verdict == "roll_back"
    assert better.reasons[0].startswith("rolled back at 2026-09-21 14:13:20 UTC; begin another rollout")


def test_a_stage_waits_for_its_time_and_its_turns() -> None:
    stages = (Stage("canary", 0.25, 0.75, Duration.parse("1h"), 5000), Stage("all", 1.0, 0.0, Duration(), 100))
    of = replace(plan(), stages=stages, begins_unix_ns=NOW - 1800 * 10**9)
    outcome = look(of, evidence())
    assert outcome.verdict == "hold"
    assert outcome.turns_needed == 5000 - outcome.candidate_turns
    assert outcome.reasons == (
        "4,000 turns of streaming are there, and the stage asks for 5,000 turns",
        "the stage lasts at least 1h from 2026-09-21 13:43:20 UTC",
    )
    assert outcome.next_stage == stages[1]
    last = look(of, evidence(), first_history(of).at_stage("all", NOW))
    assert last.verdict == "hold"
    assert last.reasons[0].startswith("all callers are on streaming: there is no control left")


def test_failed_calls_without_cohort_could_be_the_candidates() -> None:
    # Of 4,000 turns of the candidate: 1 % and a little more.
    few, many = (look(plan(), evidence(unassigned_turns=turns)) for turns in (40, 41))
    assert few.verdict == "promote"
    sentence = "40 turns of calls that name no cohort got no answer, and could all be of streaming; they count nowhere"
    assert sentence in few.notes
    assert (many.verdict, len(many.reasons)) == ("hold", 1)
    assert many.reasons[0] == (
        "41 turns of calls that name no cohort got no answer, and could all be of streaming (1.01 % of its turns), "
        "and the plan allows 1 %: let every call name its cohort, or, if calls fail alike in all cohorts, allow more "
        "with completeness.unassigned_turns"
    )
    # Its own limit, and no other one: 41 of 4,041 are less than 1.1 %, and 45 of 4,045 more.
    limited = replace(plan(), completeness=Completeness(unassigned_turns=0.011))
    allowed, too_many = (look(limited, evidence(unassigned_turns=turns)) for turns in (41, 45))
    assert (allowed.verdict, too_many.verdict) == ("promote", "hold")
    assert allowed.notes[-1].startswith("41 turns of calls that name no cohort got no answer")
    others = replace(plan(), completeness=Completeness(invalid_turns=0.5))
    assert look(others, evidence(unassigned_turns=41)).verdict == "hold"


def test_turns_that_time_out_later_are_no_promotion_before() -> None:
    # A fifth of the turns get no reply, and time out after ten seconds: until then only the others are seen.
    text = 'name = "s"\nunit = "call"\n[cohorts]\ncontrol = "stable"\ncandidate = "streaming"\n'
    stages = parse_plan(f'{text}[[stages]]\nname = "canary"\nshare = 0.25\n', "plan.toml").stages
    of = replace(plan(), stages=stages)
    early = look(of, evidence(), first_history(of, NOW), NOW + 10 * 10**9)
    assert early.sentence.startswith("hold streaming at stage canary: the stage lasts at least 5m from ")
    late = look(of, evidence(Regression(no_reply=0.2)), first_history(of, NOW), NOW + 20 * 10**9)
    assert late.verdict == "roll_back"


def test_unmeasured_value_can_never_pass() -> None:
    of = replace(plan(), guardrails=(Check("wer", "wer", 0.01),))
    outcome = look(of, evidence())
    assert outcome.verdict == "hold"
    assert outcome.turns_needed is None
    assert outcome.reasons == (
        "word error rate cannot be compared: streaming: no turn reports it; "
        "a value that was not measured can never pass a check",
    )


def test_fallbacks_count_over_the_turns_that_report_them() -> None:
    def with_fallbacks(of: CohortTurns, share: float, seed: int) -> CohortTurns:
        chosen = np.random.default_rng(seed).random(of.turns)
        column = np.where(chosen < 0.5, np.nan, (chosen > 1 - share / 2).astype(float))
        return replace(of, numbers={**of.numbers, FALLBACK: packed_numbers(column)})

    of = replace(plan(), guardrails=(Check("fallback", "fallback", 0.02),))
    seen = evidence()
    more = replace(seen, candidate=with_fallbacks(seen.candidate, 0.2, 3), control=with_fallbacks(seen.control, 0.1, 4))
    outcome = look(of, more)
    assert outcome.verdict == "roll_back"
    fallback = outcome.checks[1]
    assert fallback.candidate == pytest.approx(0.2, abs=0.03)
    assert fallback.control == pytest.approx(0.1, abs=0.03)


def test_slices_say_where_and_change_nothing() -> None:
    seen = evidence(turns=8000)
    values = seen.candidate.number("voice_to_voice")
    assert values is not None
    routes = {of.cohort: np.random.default_rng(9).integers(0, 3, of.turns) for of in (seen.candidate, seen.control)}
    slow = np.where(routes["streaming"] == 2, values + 300 * MS, values)
    labels = {"route": ("cache", "cloud", "local")}

    def sliced(of: CohortTurns) -> CohortTurns:
        return replace(of, codes={**of.codes, "route": packed_codes(routes[of.cohort])}, labels=labels)

    candidate = replace(sliced(seen.candidate), numbers={"voice_to_voice": packed_numbers(slow)})
    split = replace(seen, candidate=candidate, control=sliced(seen.control))
    of = replace(plan(margin_ms=2000), slices=("route",), guardrails=(Check("tail voice_to_voice", "tail", 0.9),))
    outcome = look(of, split)
    assert [slice_verdict.value for slice_verdict in outcome.slices if slice_verdict.is_worse] == ["local"]
    assert [slice_verdict.value for slice_verdict in outcome.slices] == ["cache", "cloud", "local"]
    without = look(replace(of, slices=()), split)
    assert (outcome.verdict, outcome.reasons) == (without.verdict, without.reasons)


def test_a_slice_without_spread_is_no_slice_that_is_worse() -> None:
    seen = evidence(turns=2000)

    def with_constant(of: CohortTurns, shift_ms: float) -> CohortTurns:
        """Every fourth turn takes 250 ms, the others those of the cohort and a shift."""
        values, constant = of.number("voice_to_voice"), np.arange(of.turns) % 4 == 0
        assert values is not None
        mixed = np.where(constant, 250 * MS, values + shift_ms * MS)
        codes = {**of.codes, "route": packed_codes(np.where(constant, 0, 1)), OUTCOME: packed_codes(np.zeros(of.turns))}
        numbers = {**of.numbers, "voice_to_voice": packed_numbers(mixed)}
        return replace(of, numbers=numbers, codes=codes, labels={"route": ("cache", "cloud")})

    of = replace(plan(), slices=("route",), guardrails=())
    for shift_ms in (0.0, 400.0):
        both = replace(
            seen, candidate=with_constant(seen.candidate, shift_ms), control=with_constant(seen.control, 0.0)
        )
        slices = {slice_verdict.value: slice_verdict for slice_verdict in look(of, both).slices}
        assert slices["cache"].result.p_value == 1.0
        assert not slices["cache"].is_worse
        assert slices["cloud"].is_worse is (shift_ms > 0)


def test_users_that_are_not_known_are_noted() -> None:
    of = replace(plan(), unit="user")
    seen = evidence(units=UnitCounts(1000, 0, AssignedUnits(0, 250), AssignedUnits(0, 750), 1000))
    every = seen.candidate.turns + seen.control.turns
    outcome = look(of, seen)
    assert outcome.notes == (
        f"callers are assigned by user and {every:,} turns of {every:,} name no user: the variance is clustered by "
        "call there, so the bounds are too narrow where users call often",
        "the split was not tested: users are assigned, and none is known",
    )
    assert (outcome.verdict, outcome.sample_ratio) == ("promote", None)

    def naming_all_but(unnamed: int) -> RolloutEvidence:
        candidate = replace(seen.candidate, unnamed_turns=unnamed)
        units = UnitCounts(1000, 0, AssignedUnits(250 - unnamed, unnamed), AssignedUnits(750), unnamed)
        return replace(seen, candidate=candidate, control=replace(seen.control, unnamed_turns=0), units=units)

    (split,) = look(of, naming_all_but(0)).notes
    assert split.startswith("in the split of 1,000 users, a loss of ")
    some = look(of, naming_all_but(7))
    assert f"and 7 turns of {every:,} name no user" in some.notes[0]
    assert some.notes[1].startswith("in the split of 993 users, whatever users 7 unnamed calls are of, a loss of ")
    assert some.verdict == "promote"


@pytest.mark.parametrize(
    ("candidate", "control", "verdict"),
    [
        (AssignedUnits(0, 250), AssignedUnits(750), "promote"),
        (AssignedUnits(250), AssignedUnits(0, 750), "promote"),
        (AssignedUnits(60, 20), AssignedUnits(750), "hold"),
        (AssignedUnits(250), AssignedUnits(300, 20), "hold"),
    ],
)
def test_unknown_users_of_one_cohort_may_explain_a_mismatch(
    candidate: AssignedUnits, control: AssignedUnits, verdict: str
) -> None:
    unnamed = candidate.unnamed_calls + control.unnamed_calls
    seen = evidence(units=UnitCounts(1000, 0, candidate, control, unnamed))
    named = [
        replace(of, unnamed_turns=5 if named.unnamed_calls else 0)
        for of, named in ((seen.candidate, candidate), (seen.control, control))
    ]
    outcome = look(replace(plan(), unit="user"), replace(seen, candidate=named[0], control=named[1]))
    assert outcome.verdict == verdict
    if verdict == "hold":
        assert outcome.reasons[0].startswith("sample-ratio mismatch: ")
        assert " users that are known are on streaming, 25 % planned" in outcome.reasons[0]
    else:
        assert outcome.notes[1].startswith("the split is not known: ")


def test_units_that_met_both_are_no_part_of_the_split() -> None:
    """The plan: a twentieth of 10,000. The 100 that met both would be a mismatch if each cohort counted them."""
    counts = UnitCounts(10_000, 100, AssignedUnits(495), AssignedUnits(9405))
    outcome = look(plan(share=0.05), evidence(units=counts))
    assert outcome.verdict == "promote"
    assert outcome.sample_ratio is not None
    assert outcome.sample_ratio.p_value > 0.9
    assert "100 of 10,000 calls met both cohorts, of which the plan allows 1 %" in outcome.notes
    doubled = replace(counts, candidate=AssignedUnits(595), control=AssignedUnits(9505))
    assert look(plan(share=0.05), evidence(units=doubled)).verdict == "hold"


def test_units_are_read_from_a_verdict_as_they_were_written() -> None:
    counts = UnitCounts(1000, 3, AssignedUnits(240, 7), AssignedUnits(740, 10), 17)
    value = as_object(plan(unit="user"), look(plan(unit="user"), evidence(units=counts)))
    assert msgspec.convert(value["units"], VerdictUnits).counts == counts
    assert value["units"]["seen"] == 1000
    assert 0 < value["sample_ratio"]["detectable_control_loss"] < value["sample_ratio"]["detectable_loss"] < 1


def test_few_users_are_too_few_whatever_their_calls() -> None:
    seen = evidence()
    users = seen.candidate.code("call") % 5
    few = replace(seen.candidate, codes={**seen.candidate.codes, "call": packed_codes(users)}, unnamed_turns=0)
    outcome = look(replace(plan(), unit="user"), replace(seen, candidate=few))
    assert outcome.verdict == "hold"
    assert {check.reason for check in outcome.checks} == {"streaming: needs 6 users, has 5"}


def test_services_without_sequence_can_be_promoted_with_note() -> None:
    outcome = look(replace(plan(), source="service"), evidence(telemetry_lost=None))
    assert outcome.verdict == "promote"
    assert outcome.notes[1:] == ("nothing says whether telemetry was lost: these turns carry no sequence numbers",)


def test_paired_cohorts_are_compared_by_utterance() -> None:
    rng = np.random.default_rng(3)
    audio = np.arange(1200) % 600 + 2**30  # as large as a store's codes may be
    hard = rng.normal(0, 300, 600)[audio - 2**30]

    def heard(name: str, shift: float) -> CohortTurns:
        return cohort_of(name, 800 + hard + shift + rng.normal(0, 20, 1200), np.arange(1200), None, audio)

    of = replace(plan(60.0, share=0.5), guardrails=(Check("no_reply", "no_reply", 0.05),))
    same = RolloutEvidence(heard("streaming", 0.0), heard("stable", 0.0), 0.0)
    assert look(of, same).verdict == "hold"
    assert look(replace(of, is_paired=True), same).verdict == "promote"
    slower = RolloutEvidence(heard("streaming", 150.0), heard("stable", 0.0), 0.0)
    assert look(replace(of, is_paired=True), slower).verdict == "roll_back"
    apart = replace(same.candidate, codes={**same.candidate.codes, "audio": packed_codes(audio + 10_000)})
    outcome = look(replace(of, is_paired=True), replace(same, candidate=apart))
    assert outcome.verdict == "hold"
    assert "no utterance was heard by both cohorts" in outcome.reasons[0]


def test_a_history_survives_its_file_and_refuses_others() -> None:
    history = look(plan(), evidence(turns=500)).history
    assert decode_history(encode_history(history), "a.json") == history
    assert history.last_look == Look(
        at_unix_ns=NOW, stage="canary", candidate_turns=500, control_turns=1500, verdict="hold"
    )
    for content in (b"", b"{}", b"[1]", encode_history(history)[:-10], b"\xff"):
        with pytest.raises(ConfigError, match=r"a\.json: does not hold the history of a rollout"):
            decode_history(content, "a.json")


def test_calls_are_counted_not_turns() -> None:
    # Twice as many turns a call is no mismatch: the flag decides by call.
    longer = replace(made("stable", 6 * TURNS, 5))
    calls = longer.code(CALL) // 2
    seen = evidence(control=replace(longer, codes={**longer.codes, CALL: packed_codes(calls)}))
    outcome = look(plan(), seen)
    assert outcome.sample_ratio is not None
    assert outcome.sample_ratio.share == pytest.approx(0.25, abs=0.02)
    assert outcome.verdict == "promote"
