"""Exact statistics against independent implementations."""

import math

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.model.stats import (
    minimum_for_target,
    percentile,
    shown_percentile,
)

VALUES = st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=200)


@given(VALUES, st.floats(0, 1))
def test_percentile_is_numpys(values: list[int], fraction: float) -> None:
    found = percentile(values, fraction)
    assert found is not None
    assert math.isclose(found, float(np.quantile(values, fraction)), rel_tol=1e-9, abs_tol=1e-3)
    assert min(values) <= found <= max(values)


def test_percentile_is_duckdbs() -> None:
    values = [float(value * value % 1009) for value in range(500)]
    statement = "select quantile_cont(v, ?) from (select unnest(?) v)"
    with duckdb.connect() as connection:
        for fraction in (0.5, 0.95, 0.99):
            (expected,) = connection.execute(statement, [fraction, values]).fetchone()
            assert percentile(values, fraction) == pytest.approx(expected, rel=1e-12)


def test_percentile_at_hand() -> None:
    assert percentile([], 0.5) is None
    assert percentile([7], 0.99) == 7.0
    assert [percentile([40, 10, 20, 30], fraction) for fraction in (0, 0.5, 1)] == [10.0, 25.0, 40.0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1], 95)


@pytest.mark.parametrize(("name", "needed"), [("p50", 1), ("p95", 20), ("p99", 100)])
def test_too_few_is_no_figure(name: str, needed: int) -> None:
    assert shown_percentile(range(needed - 1), name) is None
    assert shown_percentile(range(needed), name) is not None
    with pytest.raises(KeyError):
        shown_percentile([1], "p42")


@pytest.mark.parametrize(
    ("target", "needed"), [(0.5, 20), (0.9, 20), (0.95, 20), (0.96, 25), (0.99, 100), (0.995, 200), (0.999, 1000)]
)
def test_minimum_for_target(target: float, needed: int) -> None:
    assert minimum_for_target(target) == needed


@pytest.mark.parametrize("target", [0, 1, -1, 95, math.nan])
def test_a_target_is_a_ratio(target: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        minimum_for_target(target)
