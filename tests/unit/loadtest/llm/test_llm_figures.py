"""Intervals of percentiles against the binomial distribution counted out, steady rates, saturation by its rule."""

from math import comb

import pytest

from loadtest.llm.figures import (
    MIN_COUNT_FOR,
    Rate,
    figure,
    needed_for_bounds,
    rate_in_steady_state,
    saturation,
    steady_rate,
)


def chance_below(count: int, n: int, fraction: float) -> float:
    """That fewer than `count` of n values lie below a quantile."""
    return sum(comb(n, k) * fraction**k * (1 - fraction) ** (n - k) for k in range(count))


@pytest.mark.parametrize("n", [6, 15, 36, 75, 105, 400])
@pytest.mark.parametrize("name", MIN_COUNT_FOR)
def test_each_side_of_an_interval_is_wrong_in_two_and_a_half_percent_at_most_and_the_nearest_such_rank(
    n: int, name: str
) -> None:
    found = figure(range(1, n + 1)).at(name)
    if n < MIN_COUNT_FOR[name]:
        assert found is None
        return
    assert found is not None
    fraction = int(name[1:]) / 100
    lower, upper = int(found.lower or 0), int(n + 1 if found.upper is None else found.upper)
    # The quantile lies below the value of rank r where fewer than r values lie below it.
    assert chance_below(lower, n, fraction) <= 0.025 < chance_below(lower + 1, n, fraction)
    assert 1 - chance_below(upper, n, fraction) <= 0.025 if found.upper is not None else True
    assert 1 - chance_below(min(upper, n + 1) - 1, n, fraction) > 0.025


def test_a_percentile_is_a_figure_from_so_many_values_on() -> None:
    for n, known in (
        (1, ["p50"]),
        (9, ["p50"]),
        (10, ["p50", "p90"]),
        (19, ["p50", "p90"]),
        (20, 3),
        (99, 3),
        (100, 4),
    ):
        names = list(figure(range(n)).percentiles)
        assert names == known if isinstance(known, list) else len(names) == known
    assert figure([None, None]).n == 0
    assert figure([]).as_object()["p50"] is None


@pytest.mark.parametrize(("fraction", "needed"), [(0.9, 36), (0.95, 72), (0.99, 368)])
def test_an_upper_bound_needs_as_many_values_as_help_says(fraction: float, needed: int) -> None:
    name = f"p{round(fraction * 100)}"
    assert needed_for_bounds(fraction) == needed
    assert figure(range(needed)).percentiles[name].upper is not None
    assert figure(range(max(needed - 1, MIN_COUNT_FOR[name]))).percentiles[name].upper is None


def evenly(begin: float, end: float, per_s: float) -> list[float]:
    return [begin + (place + 0.5) / per_s for place in range(round((end - begin) * per_s))]


def test_the_beginning_is_left_out_of_a_steady_rate() -> None:
    found = steady_rate([*evenly(0, 2, 1), *evenly(2, 10, 10)], 10)
    assert found is not None
    assert (found.value, found.lower, found.upper) == (10, 10, 10)
    assert (found.left_out_s, found.is_steady) == (2, True)


def test_a_rate_that_grows_to_the_end_is_not_steady() -> None:
    found = steady_rate([moment for at in range(10) for moment in evenly(at, at + 1, 5 + 3 * at)], 10)
    assert found is not None
    assert not found.is_steady


def test_an_interval_of_a_rate_is_that_of_the_mean_of_its_batches_by_students_t() -> None:
    # Ten batches of 9 and 11 in turn: mean 10, standard deviation sqrt(10/9), t(0.975; 9) = 2.262.
    found = steady_rate([moment for at in range(10) for moment in evenly(at, at + 1, 9 + 2 * (at % 2))], 10)
    assert found is not None
    assert found.left_out_s == 0
    assert found.upper - found.value == pytest.approx(2.262157 * (10 / 9) ** 0.5 / 10**0.5, rel=1e-6)


def test_no_good_answer_is_a_goodput_of_zero_and_too_few_answers_are_no_rate() -> None:
    steady = steady_rate(evenly(0, 10, 10), 10)
    assert steady is not None
    assert rate_in_steady_state(steady, [], 10).value == 0
    assert steady_rate([1.0] * 9, 10) is None


def level(value: float) -> Rate:
    return Rate(value, value, value, 0.0, True, (value * 0.99, value * 1.01) * 5)


def test_saturation_is_the_least_level_with_nine_tenths_of_the_highest_rate() -> None:
    found = saturation({1: level(10), 2: level(19), 4: level(37), 8: level(40), 16: level(39)}, seed=1)
    assert found is not None
    assert (found.level, found.lower, found.upper, found.is_reached) == (4, 4, 4, True)


def test_a_rate_that_grows_to_the_last_level_is_not_saturated_and_two_levels_say_nothing() -> None:
    found = saturation({1: level(10), 2: level(20), 4: level(40)}, seed=1)
    assert found is not None
    assert not found.is_reached
    assert saturation({1: level(10), 2: level(20)}, seed=1) is None


def test_an_uncertain_saturation_has_an_interval_over_the_levels_between() -> None:
    noisy = Rate(36.0, 30.0, 42.0, 0.0, True, (30.0, 42.0) * 5)
    found = saturation({1: level(10), 2: noisy, 4: level(40), 8: level(40)}, seed=1)
    assert found is not None
    assert (found.lower, found.upper) == (2, 4)
