"""The simulated turns are what their parameters say."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from telemetry.rollout.cohort_turns import CACHE_HIT, CALL, CohortTurns
from tests.benchmarks.rollout.generator import (
    MS,
    SAME,
    BothCohorts,
    Change,
    Service,
    both_cohorts,
    quantile_ms,
)

TURNS = 40_000
STEADY = Service(is_drifting=False)


def turns_of(service: Service, change: Change = SAME, *, share: float = 0.5, turns: int = TURNS) -> BothCohorts:
    return both_cohorts(service, change, share, turns, np.random.default_rng(7))


def values_ms(of: CohortTurns) -> NDArray[np.float64]:
    values = of.number("voice_to_voice")
    assert values is not None
    return values / MS


def beyond(of: CohortTurns, threshold_ms: float) -> float:
    """The share of its turns; those without a value are not counted."""
    values = values_ms(of)
    return float(np.mean(values[~np.isnan(values)] > threshold_ms))


def test_same_seed_gives_same_turns_and_another_seed_others() -> None:
    one, again = turns_of(Service(), turns=500), turns_of(Service(), turns=500)
    assert one.candidate == again.candidate
    assert one.control == again.control
    other = both_cohorts(Service(), SAME, 0.5, 500, np.random.default_rng(8))
    assert other.candidate.numbers != one.candidate.numbers


@pytest.mark.parametrize(("share", "control"), [(0.05, 19.0), (0.25, 3.0), (0.5, 1.0)])
def test_the_control_has_its_share_of_turns_at_each_look(share: float, control: float) -> None:
    both = turns_of(Service(), share=share, turns=5000)
    assert both.candidate.turns == 5000
    assert (np.diff(both.control_turns) >= 0).all()
    assert both.control_turns[-1] <= both.control.turns
    assert both.control_turns[-1] / 5000 == pytest.approx(control, rel=0.1)
    candidate, others = both.first(700)
    assert (candidate.turns, others.turns) == (700, both.control_turns[699])
    assert values_ms(candidate).tobytes() == values_ms(both.candidate)[:700].tobytes()
    assert len(others.codes[CALL]) == 4 * others.turns


def test_two_humps_are_those_of_hits_and_misses() -> None:
    of = turns_of(STEADY).control
    hit = of.number(CACHE_HIT)
    assert hit is not None
    assert hit.mean() == pytest.approx(0.3, abs=0.02)
    values = values_ms(of)
    assert np.nanmedian(values[hit == 1]) == pytest.approx(320, rel=0.03)
    assert np.nanmedian(values[hit == 0]) == pytest.approx(715, rel=0.03)
    assert turns_of(Service(hits=None), turns=100).control.number(CACHE_HIT) is None


@pytest.mark.parametrize("correlation", [0.25, 0.5])
def test_turns_of_a_call_are_as_alike_as_their_correlation(correlation: float) -> None:
    of = turns_of(Service(hits=None, is_drifting=False, correlation=correlation)).control
    calls, values = of.code(CALL), values_ms(of)
    # Ranks turned into normal values again: stalls, drawn for each turn alone, take a tenth of the correlation.
    known = ~np.isnan(values)
    calls, ranks = calls[known], np.argsort(np.argsort(values[known]))
    normal = ndtri((ranks + 0.5) / ranks.size)
    sums, sizes = np.bincount(calls, normal), np.bincount(calls)
    pairs = (sums**2).sum() - (normal**2).sum()
    assert pairs / (sizes * (sizes - 1)).sum() == pytest.approx(0.91 * correlation, abs=0.02)


def test_calls_have_2_to_20_turns_or_up_to_200() -> None:
    short, long = (np.bincount(turns_of(Service(calls=calls)).control.code(CALL)) for calls in ("to 20", "to 200"))
    assert (short.max(), long.max() > 100) == (20, True)
    assert long.max() <= 200
    assert np.median(long[long > 0]) < 8


def test_the_users_of_calls_follow_zipfs_law() -> None:
    plain, users = turns_of(Service()).control, turns_of(Service(are_users=True)).control
    assert users.are_users_known
    assert not plain.are_users_known
    assert users.calls < 0.7 * plain.calls
    turns = np.sort(np.bincount(users.code(CALL)))[::-1]
    assert turns[0] > 20 * np.median(turns[turns > 0])


def test_atoms_and_steps_are_where_they_belong() -> None:
    values = values_ms(turns_of(replace(STEADY, atoms=((0.036, 1800.0),))).control)
    assert np.mean(values[~np.isnan(values)] == 1800) == pytest.approx(0.036, abs=0.004)
    stepped = values_ms(turns_of(replace(STEADY, rounded_ms=250)).control)
    assert set(np.unique(stepped[~np.isnan(stepped)] % 250)) == {0.0}


def test_an_hour_is_slower_for_both_cohorts() -> None:
    both = turns_of(Service(hits=None, correlation=0.0), turns=3600)  # six hours
    hours = [np.array_split(values_ms(of), 6) for of in both.first(3600)]
    medians = np.array([[np.nanmedian(hour) for hour in of] for of in hours])
    assert np.corrcoef(medians)[0, 1] > 0.9
    assert medians[1].max() / medians[1].min() > 1.15


@pytest.mark.parametrize(
    ("change", "fraction", "later_ms", "expected"),
    [
        (SAME, 0.95, 0, 0.05),
        (Change(shift_ms=200), 0.95, 200, 0.05),
        (Change(slowest=0.02, later_ms=1500), 0.99, 0, 0.02),
        (Change(slowest=0.04, later_ms=1500), 0.99, 0, 0.04),
        (Change(at_random=0.01, later_ms=6000), 0.99, 0, 0.0199),
    ],
)
def test_a_candidate_at_its_margin_is_just_there(
    change: Change, fraction: float, later_ms: float, expected: float
) -> None:
    of = turns_of(STEADY, change).candidate
    assert beyond(of, quantile_ms(STEADY, fraction) + later_ms) == pytest.approx(expected, abs=0.004)


def test_values_that_are_missing_are_the_slow_ones() -> None:
    plain, lacking = turns_of(STEADY), turns_of(STEADY, Change(missing=0.6))
    p90 = quantile_ms(STEADY, 0.9)
    assert beyond(lacking.candidate, p90) == pytest.approx(0.04 / 0.94, abs=0.01)
    assert np.isnan(values_ms(lacking.candidate)).mean() == pytest.approx(0.065, abs=0.01)
    assert values_ms(lacking.candidate)[values_ms(plain.candidate) <= p90].size > 0.85 * TURNS
    assert np.isnan(values_ms(lacking.control)).mean() == pytest.approx(0.005, abs=0.002)


def test_a_change_begins_at_its_onset() -> None:
    of = turns_of(STEADY, Change(onset=1500, unanswered=0.5, creep_ms=1)).candidate
    silent, values = of.has_outcome("no_reply"), values_ms(of)
    assert silent[:1500].mean() < 0.02
    assert silent[1500:].mean() == pytest.approx(0.5, abs=0.02)
    assert np.isnan(values[silent]).all()
    before = turns_of(STEADY).candidate
    answered = ~silent & ~np.isnan(values_ms(before))
    later = (values - values_ms(before))[answered]
    assert np.allclose(later, np.maximum(0, np.flatnonzero(answered) - 1500), atol=1e-3)


def test_turns_are_lost_in_both_cohorts_alike() -> None:
    whole, lossy = (turns_of(replace(STEADY, lost=lost), turns=20_000) for lost in (0.0, 0.3))
    lengths = [np.bincount(of.control.code(CALL)) for of in (whole, lossy)]
    means = [column[column > 0].mean() for column in lengths]
    assert means[1] / means[0] == pytest.approx(0.7, abs=0.05)
    assert lossy.control_turns[-1] / 20_000 == pytest.approx(1, abs=0.1)
