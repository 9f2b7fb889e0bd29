"""What is said is decided by the seed alone."""

from collections import Counter

from loadtest.caller.plan import CallPlan, Limits
from loadtest.swarm.planner import Planner
from tests.unit.loadtest_caller.caller_world import MS, make_clip

CLIPS = [make_clip(text=f"clip {index}") for index in range(7)]


def _plans(count: int, *, seed: int = 1, process: str = "", patience_s: float | None = None) -> list[CallPlan]:
    planner = Planner(
        CLIPS,
        (b"-",),
        turns_per_call=3,
        think_s=1.0,
        patience_s=patience_s,
        limits=Limits(),
        manual_turns=False,
        seed=seed,
        process=process,
    )
    return [planner.plan(f"call-{index}") for index in range(count)]


def _said(plans: list[CallPlan]) -> list[str]:
    return [turn.clip.rendered.utterance.text for plan in plans for turn in plan.turns]


def test_the_same_seed_says_the_same_and_another_does_not() -> None:
    assert _said(_plans(20)) == _said(_plans(20))
    assert _plans(20) == _plans(20)
    assert _said(_plans(20)) != _said(_plans(20, seed=2))


def test_two_processes_of_one_swarm_do_not_say_the_same() -> None:
    assert _said(_plans(20, process="worker-0")) != _said(_plans(20, process="worker-1"))


def test_all_clips_are_said_before_one_is_said_again() -> None:
    said = _said(_plans(7))  # 21 turns over 7 clips
    for deal in (said[:7], said[7:14], said[14:]):
        assert len(set(deal)) == 7
    assert set(Counter(said).values()) == {3}


def test_think_time_varies_around_its_mean() -> None:
    thinks = [turn.think_ns / MS for plan in _plans(100) for turn in plan.turns]
    assert 500 <= min(thinks) < 600
    assert 1_400 < max(thinks) <= 1_500
    assert abs(sum(thinks) / len(thinks) - 1_000) < 60


def test_patience_is_a_distribution_around_its_median() -> None:
    drawn = sorted(
        turn.patience_ns / MS
        for plan in _plans(300, patience_s=2.0)
        for turn in plan.turns
        if turn.patience_ns is not None
    )
    assert len(drawn) == 900
    assert 1_850 < drawn[450] < 2_150
    assert drawn[90] < 1_200
    assert drawn[810] > 3_500
    assert all(turn.patience_ns is None for plan in _plans(3) for turn in plan.turns)
