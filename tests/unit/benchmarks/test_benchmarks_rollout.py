"""The simulation of rollouts distinguishes right from wrong decisions."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.benchmarks.rollout import peers
from tests.benchmarks.rollout.__main__ import main
from tests.benchmarks.rollout.figures import Row, Share, described
from tests.benchmarks.rollout.generator import SAME
from tests.benchmarks.rollout.scenarios import BIMODAL, Limit, Scenario, combinations, scenarios
from tests.benchmarks.rollout.simulate import Simulated, looks, plan_of

BY_NAME = {scenario.name: scenario for scenario in scenarios()}


@pytest.mark.slow
def test_the_rules_by_hand_are_wrong_where_it_is_right() -> None:
    same = peers.COMPARED[0]
    assert same.change == SAME
    wrong = {
        rule: sum(peers.by_rule(rule, same, number, 35).verdict == "roll_back" for number in range(10))
        for rule in peers.RULES
    }
    assert wrong["naive"] >= 1
    assert wrong["Mann-Whitney at each look"] >= 4
    assert wrong["Kayenta's judge"] >= 1
    assert wrong["anytime quantile sequence"] == 0


def test_the_ranks_are_those_of_the_test_by_mann_and_whitney() -> None:
    rng = np.random.default_rng(3)
    candidate, control = rng.normal(0.2, 1, 80), rng.normal(0, 1, 200)
    z = peers._slower(candidate, control, 0.0)
    known = stats.mannwhitneyu(candidate, control, alternative="greater", method="asymptotic", use_continuity=False)
    assert stats.norm.sf(z) == pytest.approx(known.pvalue, rel=1e-9)


def test_the_quantile_sequence_covers_the_quantile_at_every_look() -> None:
    # Of 200 samples, at 30 looks each: 5 % may miss it at any.
    truth, missed = stats.norm.ppf(peers.FRACTION), 0
    for seed in range(200):
        values = np.random.default_rng(seed).normal(size=600)
        bounds = (peers._bounds(np.sort(values[:turns])) for turns in range(20, 601, 20))
        missed += any(not low <= truth <= high for low, high in bounds)
    assert missed <= 14


def test_every_scenario_has_its_own_name_and_limits() -> None:
    assert len(BY_NAME) == len(scenarios())
    assert all(scenario.limits for scenario in scenarios())
    assert len(combinations()) == len(set(combinations())) == 20


def test_the_checks_are_those_of_a_plan_without_guardrails() -> None:
    plan = plan_of(BY_NAME["identical: bimodal; 25 %"], BIMODAL)
    assert (plan.primary.name, plan.primary.margin) == ("voice_to_voice p95", 200e6)
    assert "tail" in {check.kind for check in plan.guardrails}
    assert (plan.stages[0].share, plan.unit, plan.is_paired) == (0.25, "call", False)
    assert plan_of(BY_NAME["identical: users who call often; 25 %"], replace(BIMODAL, are_users=True)).unit == "user"


def test_looks_are_taken_every_50_to_100_turns_and_at_the_end() -> None:
    steps = list(looks(BY_NAME["identical: bimodal; 25 %"], 1234))
    assert steps[-1] == 1234
    assert all(50 <= step <= 100 for step in np.diff([0, *steps[:-1]]))
    assert list(looks(BY_NAME["identical, a look after every turn; 50 %"], 300)) == list(range(20, 301))


@pytest.mark.parametrize(
    ("number", "of", "low", "high"),
    # Of Newcombe, Stat. Med. 17 (1998), and by hand for none of ten.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (0, 10, 0.0, 0.2775)],
)
def test_the_interval_of_a_share_is_wilsons(number: int, of: int, low: float, high: float) -> None:
    assert Share(number, of).interval == pytest.approx((low, high), abs=5e-5)


def ended(*rollouts: Simulated, limits: tuple[Limit, ...] = (), onset: int = 0) -> Row:
    change = replace(SAME, onset=onset)
    return Row(Scenario("any", (BIMODAL,), change, 0.5, limits), rollouts)


def test_a_row_misses_a_limit_that_its_figure_is_beyond() -> None:
    rollouts = [Simulated("roll_back", 100)] * 3 + [Simulated("promote", 900)] * 7
    limits = (Limit("rolled back", most=0.02), Limit("promoted", least=0.6), Limit("turns to roll back", most=150))
    of = ended(*rollouts, limits=limits)
    assert of.missed() == (limits[0], limits[2])
    assert of.surely_missed() == (limits[0],)  # 3 of 10 are at least 10 %; that the median is late is not sure yet
    assert described(limits[0]) == "rolled back at most 2 %"
    assert (of.rolled_back.value, of.promoted.value, of.median_of_promoted()) == (0.3, 0.7, 900)
    sure = ended(*(rollouts * 10), limits=limits)
    assert sure.surely_missed() == (limits[0], limits[2])


def test_turns_to_roll_back_count_from_onset_only() -> None:
    early, late = Simulated("roll_back", 1400), Simulated("roll_back", 1600)
    assert ended(late, late, early, onset=1500).figure("turns to roll back") == 100
    assert ended(late, early, early, onset=1500).figure("turns to roll back") == math.inf


def test_a_forecast_that_says_nothing_is_no_good_one() -> None:
    limit = Limit("forecast at 25 %", 1 / 1.5, 1.5)
    good, silent = (Simulated("promote", 1000, forecasts=(forecast, 1.0)) for forecast in (1.2, None))
    assert ended(good, good, silent, limits=(limit,)).missed() == ()
    assert ended(good, silent, silent, limits=(limit,)).missed() == (limit,)
    assert ended(Simulated("hold", 5000), limits=(limit,)).missed() == (limit,)


@pytest.mark.slow
def test_command_prints_rows_and_ends_with_1_if_one_misses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, name = tmp_path / "rows.json", "p95 at the margin: bimodal; 5 %"
    small = ["--rollouts", "3", "--jobs", "1", "--json", str(to)]
    assert main(["--rows", name, *small]) == 0
    assert "1 of 1 rows keep their limits" in capsys.readouterr().out
    (only,) = json.loads(to.read_text())["rows"]
    assert (only["scenario"], only["rollouts"], only["promoted"], only["missed"]) == (name, 3, 0.0, [])
    impossible = replace(BY_NAME[name], limits=(Limit("promoted", least=0.5),))
    monkeypatch.setattr("tests.benchmarks.rollout.__main__.scenarios", lambda: (impossible,))
    assert main(["--no-peers", *small]) == 1
    assert "0 of 1 rows keep their limits" in capsys.readouterr().out
    (only,) = json.loads(to.read_text())["rows"]
    assert only["missed"] == ["promoted at least 50 %"]


def test_command_refuses_unknown_row(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rows", "no such row"])
    assert "no row has such a name" in capsys.readouterr().err
