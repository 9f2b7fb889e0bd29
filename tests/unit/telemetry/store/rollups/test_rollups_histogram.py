"""Histograms: which bucket a value lies in, quantiles against numpy, sums in any grouping."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.store.rollups.buckets import COUNTS, DURATIONS, EXACT_UP_TO_NS, MILLISECOND_NS, RATIOS, Scale
from telemetry.store.rollups.histogram import Histogram, counted_by_group

FRACTIONS = (0.0, 0.5, 0.95, 0.99, 1.0)
DURATIONS_NS = st.one_of(
    st.integers(-(10**7), 10**7),
    st.integers(-(10**10), 10**10),
    st.integers(-(4 * 10**18), 4 * 10**18),
    st.integers(0, 2_000).map(lambda ms: ms * MILLISECOND_NS),
)
RATES = st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.floats(-1e3, -1e-3))


def histogram_of(values: list[float] | list[int], scale: Scale) -> Histogram:
    array = np.array(values)
    (found,) = [each for _, each in counted_by_group(np.zeros(len(values), dtype=np.int64), array, scale)]
    return found


def neighbors(values: list[float] | list[int], fraction: float) -> list[float]:
    """The two values between which a quantile lies."""
    position = fraction * (len(values) - 1)
    ordered = sorted(values)
    return [float(ordered[int(np.floor(position))]), float(ordered[int(np.ceil(position))])]


@given(st.lists(DURATIONS_NS, min_size=1, max_size=60))
def test_each_duration_lies_within_the_edges_of_its_bucket(values: list[int]) -> None:
    low, high = DURATIONS.edges(DURATIONS.buckets(np.array(values)))
    for value, least, most in zip(values, low, high, strict=True):
        size = abs(value)
        assert least - size * 1e-9 <= value <= most + size * 1e-9
        assert most - least <= max(10_000, 0.0101 * size)  # 1 %, with the rounding of the edges


def test_buckets_keep_the_order_of_values() -> None:
    sizes = np.concatenate([np.arange(3_000) * 9_973, np.geomspace(1, 4e18, 5_000).astype(np.int64)])
    values = np.unique(np.concatenate([-sizes, sizes]))
    for scale in (DURATIONS, COUNTS, RATIOS):
        assert (np.diff(scale.buckets(values)) >= 0).all()


@given(st.lists(DURATIONS_NS, min_size=1, max_size=80), st.integers(1, EXACT_UP_TO_NS // MILLISECOND_NS))
def test_values_up_to_a_whole_millisecond_are_counted_exactly(values: list[int], threshold_ms: int) -> None:
    threshold = threshold_ms * MILLISECOND_NS
    near = [*values, threshold - 1, threshold, threshold + 1]
    (bucket,) = DURATIONS.buckets(np.array([threshold]))
    assert histogram_of(near, DURATIONS).up_to(int(bucket)) == sum(value <= threshold for value in near)


@given(st.lists(DURATIONS_NS.filter(lambda value: abs(value) < 2**53), min_size=1, max_size=120))
def test_quantiles_of_durations_are_within_one_bucket_of_numpys(values: list[int]) -> None:
    found = histogram_of(values, DURATIONS).quantiles(DURATIONS, FRACTIONS)
    assert found is not None
    for fraction, estimate in zip(FRACTIONS, found, strict=True):
        allowed = max(10_000.0, *(0.0101 * abs(value) for value in neighbors(values, fraction)))
        assert estimate == pytest.approx(float(np.quantile(np.array(values), fraction)), abs=allowed)


@given(st.lists(RATES, min_size=1, max_size=120))
def test_quantiles_of_rates_are_within_one_percent_of_numpys(values: list[float]) -> None:
    found = histogram_of(values, RATIOS).quantiles(RATIOS, FRACTIONS)
    assert found is not None
    for fraction, estimate in zip(FRACTIONS, found, strict=True):
        allowed = max(0.0101 * abs(value) for value in neighbors(values, fraction))
        assert estimate == pytest.approx(float(np.quantile(np.array(values), fraction)), abs=allowed)


def test_the_ends_and_a_single_value_are_exact() -> None:
    assert histogram_of([0, 0, 1, 2, 2, 3, 1000], COUNTS).quantiles(COUNTS, (0.0, 0.5, 1.0)) == [0.0, 2.0, 1000.0]
    assert histogram_of([7_654_321_987], DURATIONS).quantiles(DURATIONS, (0.0, 0.5, 1.0)) == [7_654_321_987.0] * 3
    assert Histogram.empty().quantiles(DURATIONS, FRACTIONS) is None


@given(st.lists(st.lists(DURATIONS_NS, min_size=1, max_size=20), min_size=1, max_size=6), st.randoms())
def test_sums_in_any_grouping_are_the_histogram_of_all(groups: list[list[int]], dice: random.Random) -> None:
    parts = [histogram_of(values, DURATIONS) for values in groups]
    whole = histogram_of([value for values in groups for value in values], DURATIONS)
    dice.shuffle(parts)
    half = len(parts) // 2
    nested = Histogram.added([Histogram.added(parts[:half]), Histogram.added(parts[half:])])
    for found in (Histogram.added(parts), nested):
        assert found.buckets.tolist() == whole.buckets.tolist()
        assert found.counts.tolist() == whole.counts.tolist()
        assert (found.low, found.high, found.n) == (whole.low, whole.high, whole.n)
