"""The boundary, beside Brownian motions that were drawn, and beside published values."""

import math

import numpy as np
import pytest
from scipy import stats

from telemetry.rollout.sequential import (
    LARGEST_LEVEL,
    boundary,
    critical_value,
    crossing_probability,
    holm,
    planned_information,
    sequential_p_value,
    stretch,
)


def integrated_crossing(critical: float, horizon: float = 1e4, ratio: float = 1.08, points: int = 400) -> float:
    """The chance that a Brownian motion crosses the boundary up to a horizon, by numerical integration: exact up to
    t = 1 (reflection), then the density of what has not crossed is carried on in steps; within a step the boundary is a
    chord, which lies below it, and is crossed as a bridge crosses it."""
    time, level = 1.0, critical
    at = np.linspace(-8.0, critical, points)
    density = stats.norm.pdf(at) - stats.norm.pdf(2 * critical - at)
    while time < horizon:
        after = time * ratio
        level_after = critical * math.sqrt(after * (1 + math.log(after)))
        to = np.linspace(-8.0 * math.sqrt(after), level_after, points)
        variance = after - time
        kernel = stats.norm.pdf((to[None, :] - at[:, None]) / math.sqrt(variance)) / math.sqrt(variance)
        kernel *= -np.expm1(-2 * (level - at)[:, None] * (level_after - to)[None, :] / variance)
        weights = np.full(points, at[1] - at[0])
        weights[[0, -1]] /= 2
        density, at, time, level = (density * weights) @ kernel, to, after, level_after
    return 1 - float(np.trapezoid(density, at))


@pytest.mark.parametrize("error_level", [LARGEST_LEVEL, 0.05, 0.001])
def test_the_chance_to_ever_cross_stays_below_its_level(error_level: float) -> None:
    crossed = integrated_crossing(critical_value(error_level))
    assert 0.9 * error_level < crossed <= error_level


def test_motions_that_were_drawn_cross_it_as_often_as_was_integrated() -> None:
    critical, paths = 1.7, 4000
    rng = np.random.default_rng(7)
    times = np.concatenate([np.linspace(0, 1, 500)[1:], np.geomspace(1, 100, 500)[1:]])
    gaps = np.diff(times, prepend=0.0)
    motion = np.cumsum(rng.normal(size=(paths, times.size)) * np.sqrt(gaps), axis=1)
    level = np.array([critical * stretch(each) * math.sqrt(each) for each in times])
    # Looking in steps misses crossings as if the boundary were 0.5826 of a step's deviation higher (Siegmund).
    crossed = float((motion >= level - 0.5826 * np.sqrt(gaps)).any(axis=1).mean())
    assert crossed == pytest.approx(integrated_crossing(critical, 100.0), abs=0.017)


@pytest.mark.parametrize("level", [0.15, 0.05, 0.025, 0.001, 1e-9])
def test_the_critical_value_is_the_one_of_its_level(level: float) -> None:
    assert crossing_probability(critical_value(level)) == pytest.approx(level, rel=1e-9)


def test_the_boundary_asks_most_of_the_first_looks_and_is_lowest_at_the_plan() -> None:
    bounds = [boundary(0.05, information) for information in (0.01, 0.1, 0.5, 1.0, 2.0, 9.0)]
    assert bounds[:4] == sorted(bounds[:4], reverse=True)
    assert bounds[3:] == sorted(bounds[3:])
    assert bounds[3] == critical_value(0.05)
    assert boundary(0.05, 0) == math.inf


@pytest.mark.parametrize("information", [0.04, 0.5, 1.0, 3.0])
def test_the_p_value_is_the_level_whose_boundary_is_met(information: float) -> None:
    assert sequential_p_value(boundary(0.03, information), information) == pytest.approx(0.03, rel=1e-6)
    assert sequential_p_value(-1.0, information) == 1.0
    assert sequential_p_value(5.0, 0.0) == 1.0


def test_at_the_planned_information_an_equal_candidate_passes_with_the_planned_power() -> None:
    margin, power = 50.0, 0.9
    error = 1 / math.sqrt(planned_information(margin, 0.05, power))
    room = margin - boundary(0.05, 1.0) * error
    assert stats.norm.cdf(room / error) == pytest.approx(power)


def test_levels_powers_and_margins_that_mean_nothing_are_refused() -> None:
    for level in (0.0, 0.16, -1.0):
        with pytest.raises(ValueError, match=r"above 0 and is at most 0\.15"):
            critical_value(level)
    for margin, power in ((0.0, 0.9), (1.0, 1.0), (1.0, 0.2)):
        with pytest.raises(ValueError, match="margin above 0"):
            planned_information(margin, 0.05, power)
    with pytest.raises(ValueError, match="0 or more"):
        crossing_probability(-0.1)


def test_holm_stops_at_the_first_that_is_not_rejected() -> None:
    # The classic example: 0.005, 0.011, 0.02 of four are rejected one after the other, 0.04 > 0.05 / 1 is not reached.
    found = holm({"a": 0.02, "b": 0.005, "c": 0.04, "d": 0.011}, 0.05)
    assert found == {"a": True, "b": True, "c": True, "d": True}
    assert holm({"a": 0.03, "b": 0.005, "c": 0.04, "d": 0.011}, 0.05) == {"a": False, "b": True, "c": False, "d": True}
    assert holm({}, 0.05) == {}
