"""The bad tail of a metric, and what may be claimed about an objective."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.reports.judged_objectives import judged_objectives, missed_first, tail_sentence
from telemetry.model.bounds import MeasuredWithin
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, judge, not_judged
from tests.unit.loadtest.reports import reports_material as material

MS = material.MS
PROMISE = Objective("v2v", "metric", 0.95, metric="voice_to_voice", threshold=800 * MS, display_name="In time")


def tail(objective: Objective = PROMISE, metric: str = "voice_to_voice", n: int = 200, **figures: Any) -> str | None:
    counted = {key: figures.pop(key) for key in ("unanswered", "approximate", "measured_within") if key in figures}
    stats = material.stats(metric, n, **{key: value * MS for key, value in figures.items()}, **counted)
    whole = material.summary()
    return tail_sentence(objective, replace(whole, metrics={**whole.metrics, metric: stats}))


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ({"p50": 600, "p95": 700, "p99": 790, "max": 800}, None),  # at the threshold is within it
        (
            {"p50": 600, "p95": 640, "p99": 4_100, "max": 5_000},
            "p99 is bad: 4,100 ms (the slowest 1 % of the turns); p95 is within: 640 ms",
        ),
        (
            {"p50": 600, "p95": 801, "p99": 4_100, "max": 5_000},
            "p95 is bad: 801 ms (the slowest 5 % of the turns); p50 is within: 600 ms",
        ),
        ({"p50": 900, "p95": 1_000, "max": 1_100}, "p50 is bad: 900 ms (at least half of the turns)"),
        ({"p50": 600, "p95": 640, "p99": 700, "max": 900}, "the slowest turn took 900 ms; p99 is within: 700 ms"),
        ({"p50": 600, "max": 900}, "the slowest turn took 900 ms; p50 is within: 600 ms"),
        ({}, None),
    ],
)
def test_the_bad_tail_is_named_with_what_is_within(figures: dict[str, float], sentence: str | None) -> None:
    assert tail(**figures) == sentence


def test_tail_states_its_turns_and_that_it_is_estimate() -> None:
    beyond = {"p50": 600, "p95": 900, "max": 5_000}
    assert tail(**beyond, unanswered=3) == (
        "p95 is bad: 900 ms (the slowest 5 % of the answered turns); p50 is within: 600 ms"
    )
    assert tail(**beyond, approximate=True) == (
        "p95 is bad: ≈ 900 ms (the slowest 5 % of the turns); p50 is within: ≈ 600 ms"
    )
    calls = replace(PROMISE, metric="connect")
    assert tail(calls, "connect", p50=900) == "p50 is bad: 900 ms (at least half of the calls)"


def test_an_objective_on_one_cohort_has_the_tail_of_that_cohort() -> None:
    # Of the cohort "streaming": p50 487 ms, p95 687 ms; of "control": 612 and 812 ms.
    assert tail(replace(PROMISE, cohort="streaming"), p95=2_000) is None
    assert tail(replace(PROMISE, cohort="control"), p95=700) == (
        "p95 is bad: 812 ms (the slowest 5 % of the turns); p50 is within: 612 ms"
    )
    for narrowed in ({"cohort": "nobody"}, {"noise_profile": "babble"}, {"cohort": "control", "route": "cloud"}):
        assert tail(replace(PROMISE, **narrowed), p95=2_000) is None, "no figures of just these turns"


def test_no_tail_without_threshold_or_if_more_is_better() -> None:
    assert tail_sentence(Objective("ok", "outcome", 0.99, outcomes=("ok",)), material.summary()) is None
    faster = Objective("speed", "metric", 0.95, metric="tokens_per_s", threshold=10.0)
    assert tail_sentence(faster, material.summary()) is None


def test_claim_comes_with_title_and_tail_and_missed_ones_first() -> None:
    objectives = [replace(PROMISE, name=name, display_name=title) for name, title in (("a", "First"), ("b", None))]
    whole = material.summary()
    verdicts = judge(
        objectives, lambda objective: EligibleTurns(200, 200) if objective.name == "a" else EligibleTurns(100, 200)
    )
    met, missed = judged_objectives(objectives, verdicts, whole)
    assert (met.title, met.claim, met.counts_sentence) == (
        "First",
        "met",
        "200 of 200 turns good · error budget left 100 %",
    )
    assert (missed.title, missed.claim) == ("b", "missed")
    assert met.tail == "p99 is bad: 1,204 ms (the slowest 1 % of the turns); p95 is within: 800 ms"
    assert missed_first([met, missed]) == [missed, met]
    assert judged_objectives([], verdicts, whole)[0].tail is None


def test_limited_few_or_lost_turns_give_no_claim() -> None:
    objectives = [next(objective for objective in default_objectives() if objective.metric == "voice_to_voice")]
    good = judge(objectives, lambda _: EligibleTurns(176, 181))
    whole = material.summary()
    limited = not_judged(objectives, good, "the generator was the limit")
    few = judge(objectives, lambda _: EligibleTurns(4, 4))
    lost = judge(objectives, lambda _: EligibleTurns(176, 181), lost=30)
    assert judge(objectives, lambda _: EligibleTurns(176, 181), lost=1)[0].met, "176 of 182 would still be enough"
    for verdicts, claim, reason in (
        (limited, "not judged", "the generator was the limit"),
        (few, "undecided", "4 of 20 turns; 16 more needed"),
        (lost, "undecided", "30 turns are open (30 telemetry lost)"),
    ):
        (judged,) = judged_objectives(objectives, verdicts, whole)
        assert (judged.claim, judged.tail, judged.counts_sentence) == (claim, None, None)
        assert reason in judged.sentence
    missed = judge(objectives, lambda _: EligibleTurns(1, 181), lost=30)
    assert missed[0].met is False, "what is missed stays missed"


def test_text_of_others_stays_on_its_line() -> None:
    objective = replace(PROMISE, display_name="In\x1b[31m time\nverdict: met")
    (judged,) = judged_objectives([objective], judge([objective], lambda _: EligibleTurns(4, 4)), material.summary())
    assert judged.title == "In\\x1b[31m time verdict: met"


def test_a_tail_says_within_what_it_was_measured() -> None:
    within = MeasuredWithin((590 * MS, 600 * MS), (860 * MS, 900 * MS), None, (5_000 * MS, 5_100 * MS))
    figures = {"p50": 600, "p95": 900, "max": 5_000}
    assert tail(**figures, measured_within=within) == (
        "p95 is bad: 900 ms (measured within 860–900; the slowest 5 % of the turns);"
        " p50 is within: 600 ms (measured within 590–600)"
    )
    assert tail(p50=600, max=5_000, measured_within=within) == (
        "the slowest turn took 5,000 ms (measured within 5,000–5,100); p50 is within: 600 ms (measured within 590–600)"
    )


def test_share_has_sampling_interval_that_changes_no_claim() -> None:
    whole = material.summary()
    (met,) = judge([PROMISE], lambda _: EligibleTurns(192, 200))
    (judged,) = judged_objectives([PROMISE], [replace(met, sampling=(0.921, 0.98))], whole)
    assert judged.claim == "met"
    assert judged.sampling_sentence == (
        "96 % good; 95 % sampling interval by call 92.1 % to 98 %, which does not change the verdict"
    )
    (alone,) = judged_objectives([PROMISE], [met], whole)
    assert alone.sampling_sentence == "96 % good; the sampling interval needs two calls"
    silent = not_judged([PROMISE], [replace(met, sampling=(0.921, 0.98))], "the generator was the limit")
    assert judged_objectives([PROMISE], silent, whole)[0].sampling_sentence is None
    (nothing,) = judge([PROMISE], lambda _: EligibleTurns(0, 0))
    assert judged_objectives([PROMISE], [nothing], whole)[0].sampling_sentence is None
