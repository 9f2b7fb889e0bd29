"""A small edition of the simulation, with fixed seeds: the gate is right where the rules by hand are not."""

import pytest

from tests.benchmarks.rollout import MARGIN_MS, SCENARIOS, main, mann_whitney, naive, paired_saving, simulate
from tests.rollout_cohorts import plan

ROLLOUTS = range(100, 112)


def verdicts(scenario: str) -> list[str]:
    return [simulate(plan(MARGIN_MS), SCENARIOS[scenario], seed, 4000).verdict for seed in ROLLOUTS]


@pytest.mark.slow
def test_the_simulated_rollouts_end_as_they_should() -> None:
    identical = verdicts("identical")
    assert identical.count("promote") >= 10
    assert "roll_back" not in identical
    assert verdicts("at the margin").count("promote") <= 1
    assert set(verdicts("twice the margin")) == {"roll_back"}
    assert verdicts("slowest 2 % by 1.5 s").count("roll_back") >= 11


def test_the_rules_by_hand_are_wrong_where_it_is_right() -> None:
    assert sum(naive(seed, most_turns=3000) for seed in ROLLOUTS) >= 3
    assert sum(mann_whitney(seed, most_turns=3000) for seed in ROLLOUTS) >= 2


def test_the_same_audio_saves_turns() -> None:
    assert all(paired_saving(seed) > 1.5 for seed in ROLLOUTS)


def test_it_prints_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rollouts", "1"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*SCENARIOS, "naive rule", "Mann-Whitney"])
