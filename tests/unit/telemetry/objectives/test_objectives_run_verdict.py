"""The verdict sentence: each part where it is shown, and nothing else."""

from dataclasses import replace

import pytest

from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import (
    MissCause,
    StageGrowth,
    clock_time,
    leading_miss,
    run_verdict,
)
from telemetry.objectives.slo import NotObservable, Verdict, judge, not_judged

MS = 1_000_000
SECOND = 1_000_000_000
NINE_PM = 1_795_122_000 * SECOND  # 2026-11-19 21:00 UTC
HEARD = Objective("voice-to-voice", "metric", 0.95, "voice_to_voice", 800.0 * MS, display_name="Answered in time")
WELL = Objective("good-turns", "outcome", 0.99, outcomes=("ok",))
CAUSE = MissCause(
    "voice-to-voice",
    turns=1200,
    first_unix_ns=NINE_PM,
    last_unix_ns=NINE_PM + 7200 * SECOND,
    cohorts=("candidate",),
    within=("control",),
    stage=StageGrowth("llm", 700.4 * MS, "p50"),
    since_unix_ns=NINE_PM + 53 * 60 * SECOND,
)


def verdicts(*counted: tuple[Objective, int, int]) -> tuple[list[Objective], list[Verdict]]:
    counts = {objective.name: (good, eligible) for objective, good, eligible in counted}
    objectives = [objective for objective, *_ in counted]
    return objectives, judge(objectives, lambda objective: EligibleTurns(*counts[objective.name]))


MISSED = verdicts((WELL, 1000, 1000), (HEARD, 700, 1000))


def test_every_part_that_is_shown_is_named() -> None:
    verdict = run_verdict(*MISSED, cause=CAUSE)
    assert verdict.state == "missed"
    assert verdict.sentence == (
        "Missing the objective “Answered in time” since 21:53 UTC: cohort candidate, LLM first token + 700 ms at p50; "
        "control is within it"
    )
    assert verdict.cause is CAUSE


def test_undetermined_parts_are_left_out_of_the_sentence() -> None:
    only_stage = replace(CAUSE, cohorts=(), within=(), since_unix_ns=None)
    text = "Missing the objective “Answered in time”: LLM first token + 700 ms at p50 in the turns that miss it"
    assert run_verdict(*MISSED, cause=only_stage).sentence == text
    since = "Missing the objective “Answered in time” since 21:53 UTC: LLM first token + 700 ms at p50 against before"
    assert run_verdict(*MISSED, cause=replace(CAUSE, cohorts=(), within=())).sentence == since
    nothing = "Missing the objective “Answered in time”: 70 % of 1,000 turns are good, 95 % asked"
    assert run_verdict(*MISSED, cause=MissCause("voice-to-voice")).sentence == nothing
    assert run_verdict(*MISSED).sentence == nothing
    # A cause that belongs to another objective is no cause of this miss.
    assert run_verdict(*MISSED, cause=replace(CAUSE, objective="good-turns")).sentence == nothing


def test_a_miss_that_ended_is_in_the_past() -> None:
    ended = replace(CAUSE, until_unix_ns=NINE_PM + 70 * 60 * SECOND)
    assert run_verdict(*MISSED, cause=ended).sentence.startswith(
        "Missed the objective “Answered in time” from 21:53 to 22:10 UTC: cohort candidate,"
    )


def test_cohorts_are_few_short_and_harmless() -> None:
    hostile = replace(
        CAUSE,
        cohorts=("\x1b[2Jboom\nMeeting all objectives", "b" * 500, "c", "d", "e"),
        within=("<script>", "y"),
        others=2,
    )
    sentence = run_verdict(*MISSED, cause=hostile).sentence
    assert "\x1b" not in sentence
    assert "\n" not in sentence
    assert f"cohorts \\x1b[2Jboom Meeting all objectives, {'b' * 59}…, c and 2 more," in sentence
    assert sentence.endswith("; <script> and y are within it, 2 other cohorts are too small to say")


def test_voice_to_voice_comes_before_what_is_missed_more() -> None:
    objectives, judged = verdicts((WELL, 0, 1000), (HEARD, 940, 1000))
    assert leading_miss(objectives, judged) is HEARD
    assert run_verdict(objectives, judged).sentence.endswith("; 1 other objective is missed too")
    tokens = replace(HEARD, name="tokens", metric="llm_first_token_latency")
    more = verdicts((tokens, 940, 1000), (WELL, 900, 1000))
    assert leading_miss(*more) is WELL
    assert leading_miss(*verdicts((HEARD, 1000, 1000))) is None


def test_too_few_turns_are_undecided() -> None:
    verdict = run_verdict(*verdicts((WELL, 9, 9), (HEARD, 9, 9)))
    assert (verdict.state, verdict.sentence) == (
        "undecided",
        "Undecided: 9 of the 100 turns that the 99 % objective needs; 91 more needed",
    )
    none = run_verdict(*verdicts((HEARD, 0, 0)))
    assert none.sentence == "Undecided: 0 of the 20 turns that the 95 % objective needs; 20 more needed"
    # What is missed already is missed, whatever else is open.
    assert run_verdict(*verdicts((WELL, 9, 9), (HEARD, 0, 30))).state == "missed"


def test_a_service_that_keeps_its_callers_meets_nothing() -> None:
    for judged in (verdicts((HEARD, 1000, 1000)), verdicts((HEARD, 9, 9)), verdicts()):
        kept = run_verdict(*judged, kept="5 of 400 calls never began")
        assert (kept.state, kept.sentence) == ("missed", "Missed: 5 of 400 calls never began")
    assert run_verdict(*MISSED, kept="5 of 400 calls never began").sentence.endswith("; 5 of 400 calls never began")
    limited = run_verdict(*verdicts((HEARD, 9, 9)), kept="5 of 400 calls never began", limited="the generator was lost")
    assert limited.sentence == "Not judged: the generator was lost"


def test_objective_hidden_by_wire_is_undecided() -> None:
    def count(objective: Objective) -> EligibleTurns:
        if objective is WELL:
            return EligibleTurns(100, 100)
        raise NotObservable("audio only")

    verdict = run_verdict([WELL, HEARD], judge([WELL, HEARD], count))
    assert verdict.sentence == "Undecided: this wire does not show “Answered in time”; 1 other is met"


def test_a_limited_generator_claims_nothing() -> None:
    objectives, judged = MISSED
    why = "12 of 100 turns are invalid: the generator was the limit"
    limited = run_verdict(objectives, not_judged(objectives, judged, "x"), cause=CAUSE, limited=why)
    assert (limited.state, limited.sentence, limited.cause) == ("not_judged", f"Not judged: {why}", None)
    # Even where somebody forgot to say why.
    assert run_verdict(objectives, not_judged(objectives, judged, "the limit"), cause=CAUSE).sentence == (
        "Not judged: the limit"
    )
    assert run_verdict([], []).state == "not_judged"


def test_met_objectives_come_with_their_turns() -> None:
    met = verdicts((WELL, 1000, 1000), (HEARD, 990, 1000))
    assert run_verdict(*met).sentence == "Meeting all 2 objectives over 1,000 turns"
    opened = judge([HEARD], lambda _: EligibleTurns(990, 1000), lost=60)
    assert [verdict.met for verdict in opened] == [None]
    assert run_verdict([HEARD], opened).sentence == (
        "Undecided: 60 turns are open (60 telemetry lost): 93.4 % to 99.1 % of 1060 turns are good;"
        " more turns cannot decide it while as many are open"
    )
    few = judge([HEARD], lambda _: EligibleTurns(990, 1000), lost=4)
    assert run_verdict([HEARD], few).sentence == (
        "Meeting the objective over 1,000 turns, even if all 4 unmeasured turns had been slow"
    )
    one = verdicts((HEARD, 990, 1000))
    assert run_verdict(*one).sentence == "Meeting the objective over 1,000 turns"


@pytest.mark.parametrize(("missing", "met"), [(0, True), (10, True), (11, None)])
def test_lost_turns_count_as_bad_ones(missing: int, met: bool | None) -> None:
    (verdict,) = judge([HEARD], lambda _: EligibleTurns(960, 1000), lost=missing)
    assert verdict.met is met


def test_moments_say_what_tells_them_apart() -> None:
    assert clock_time(NINE_PM) == "21:00 UTC"
    assert clock_time(NINE_PM, NINE_PM + 300 * SECOND) == "21:00:00 UTC"
    assert clock_time(NINE_PM, NINE_PM + 4 * 3600 * SECOND) == "2026-11-19 21:00 UTC"
