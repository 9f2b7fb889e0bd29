"""The boundary, beside Brownian motions that were drawn and integrated, and beside the published formula."""

import math

import numpy as np
import pytest
from scipy import stats

from telemetry.rollout.sequential import (
    LARGEST_LEVEL,
    MIXTURE_TURNS,
    boundary,
    holm,
    sequential_p_value,
    turns_until_shown,
)


def drawn_crossings(error_level: float, turns: int, paths: int, seed: int) -> float:
    """How many of sums of independent steps, looked at after each of so many turns, ever cross the boundary."""
    rng = np.random.default_rng(seed)
    limits = np.array([boundary(error_level, n) * math.sqrt(n) for n in range(1, turns + 1)])
    crossed = 0
    for _ in range(paths // 500):
        sums = np.cumsum(rng.normal(size=(500, turns)), axis=1)
        crossed += int((sums >= limits).any(axis=1).sum())
    return crossed / paths


@pytest.mark.parametrize("error_level", [LARGEST_LEVEL, 0.05])
def test_the_chance_to_ever_cross_stays_below_its_level_with_a_look_after_every_turn(error_level: float) -> None:
    crossed = drawn_crossings(error_level, 3000, 4000, 7)
    assert crossed <= error_level
    assert crossed > 0.4 * error_level, "a boundary that is never crossed shows nothing either"


@pytest.mark.parametrize("error_level", [0.05, 0.0125])
def test_on_the_boundary_the_mixture_of_drifts_is_as_likely_as_the_level_says(error_level: float) -> None:
    # Robbins: the likelihood of a motion under normally distributed positive drifts, over that without drift, is
    # integrated here; on the boundary it is at least 1 / level, whose chance is the level at most (Ville).
    for turns in (30, 200, 4000):
        at = boundary(error_level, turns) * math.sqrt(turns)
        drifts = np.linspace(0, 12 / math.sqrt(MIXTURE_TURNS), 200_001)
        prior = 2 * stats.norm.pdf(drifts, scale=1 / math.sqrt(MIXTURE_TURNS))
        ratio = float(np.trapezoid(prior * np.exp(drifts * at - drifts**2 * turns / 2), drifts))
        assert 1 / error_level <= ratio < 1.4 / error_level


def test_the_boundary_is_lowest_at_about_four_hundred_turns() -> None:
    bounds = {turns: boundary(0.025, turns) for turns in (10, 50, 100, 200, 400, 1000, 5000)}
    assert min(bounds, key=lambda turns: bounds[turns]) == 400
    assert bounds[5000] < 1.1 * bounds[200] < 1.1 * 1.03 * bounds[400]
    assert bounds[10] > 1.3 * bounds[200]
    assert boundary(0.05, 0) == math.inf


@pytest.mark.parametrize("turns", [20, 200, 5000])
@pytest.mark.parametrize("level", [0.15, 0.05, 0.001, 1e-12])
def test_a_p_value_is_the_level_whose_boundary_is_reached(turns: int, level: float) -> None:
    assert sequential_p_value(boundary(level, turns), turns) == pytest.approx(level, rel=1e-9)


def test_nothing_is_shown_by_no_difference_nor_by_no_turn() -> None:
    assert sequential_p_value(0.0, 500) == sequential_p_value(-3.0, 500) == sequential_p_value(5.0, 0) == 1.0
    assert sequential_p_value(math.inf, 500) == 0.0
    assert sequential_p_value(30.0, 500) > 0.0


def test_a_forecast_is_where_the_same_difference_meets_the_boundary() -> None:
    shown_at = turns_until_shown(1.5, 400, 0.05)
    assert shown_at is not None
    assert 400 < shown_at < 2000
    assert turns_until_shown(10.0, 400, 0.05) == 400
    assert turns_until_shown(0.0, 400, 0.05) is None
    assert turns_until_shown(-1.0, 400, 0.05) is None
    assert turns_until_shown(1e-9, 400, 0.05) is None, "more turns than anybody has"


def test_half_of_drawn_motions_are_there_by_the_forecast() -> None:
    # A motion whose drift is 2 standard errors at 400 turns.
    rng, drift = np.random.default_rng(3), 2.0 / math.sqrt(400)
    turns = np.arange(1, 6001)
    limits = np.array([boundary(0.05, n) * math.sqrt(n) for n in turns])
    motions = np.cumsum(rng.normal(drift, 1.0, size=(400, 6000)), axis=1)
    median = float(np.median(np.argmax(motions >= limits, axis=1))) + 1
    forecast = turns_until_shown(2.0, 400, 0.05)
    assert forecast is not None
    assert median / 1.3 < forecast < median * 1.3


@pytest.mark.parametrize("level", [0.0, -0.1, 0.16, math.nan])
def test_a_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="an error level lies above 0"):
        boundary(level, 100)


def test_holm_rejects_in_order_until_one_does_not() -> None:
    found = holm({"a": 0.001, "b": 0.02, "c": 0.04, "d": 0.5}, 0.05)
    assert found == {"a": True, "b": False, "c": False, "d": False}
    assert holm({"a": 0.01, "b": 0.02}, 0.05) == {"a": True, "b": True}
    assert holm({}, 0.05) == {}
