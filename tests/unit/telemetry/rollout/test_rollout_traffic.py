"""When the turns that a verdict waits for will be there."""

import pytest

from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.plan import Look, RolloutHistory
from telemetry.rollout.progress import forecast


def history(*looks: tuple[int, int], stage: str = "canary") -> RolloutHistory:
    taken = tuple(
        Look(at_unix_ns=at_s * NS_PER_S, stage=stage, candidate_turns=turns, control_turns=0, verdict="hold")
        for at_s, turns in looks
    )
    return RolloutHistory(plan="p", fingerprint="f", stage=stage, stage_since_unix_ns=None, looks=taken)


def test_the_rate_is_that_of_the_looks_at_this_stage() -> None:
    found = forecast(history((100, 10), (110, 20), (140, 50)), 80)
    assert found is not None
    assert found.turns_per_s == pytest.approx(1.0)
    assert found.due_unix_ns == 220 * NS_PER_S


def test_looks_of_long_ago_and_of_other_stages_do_not_count() -> None:
    slow_then_fast = history((0, 0), (100_000, 10), (100_010, 30))
    found = forecast(slow_then_fast, 20)
    assert found is not None
    assert found.turns_per_s == pytest.approx(2.0)
    other = history((0, 0), (10, 1000), stage="before")
    here = RolloutHistory(
        plan="p",
        fingerprint="f",
        stage="canary",
        stage_since_unix_ns=None,
        looks=(*other.looks, *history((20, 5)).looks),
    )
    assert forecast(here, 20) is None


@pytest.mark.parametrize(
    "looks", [(), ((10, 100),), ((10, 100), (20, 100)), ((20, 100), (10, 200)), ((10, 1), (20, 5))]
)
def test_without_a_rate_there_is_no_forecast(looks: tuple[tuple[int, int], ...]) -> None:
    assert forecast(history(*looks), 100) is None


def test_what_is_not_known_is_not_forecast() -> None:
    assert forecast(history((0, 0), (10, 100)), None) is None
