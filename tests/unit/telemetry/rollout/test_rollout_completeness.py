"""The split of what is assigned: tested over units that are known and met one cohort, with the loss that it shows."""

import math
import re

import numpy as np
import pytest

from telemetry.model.durations import Duration
from telemetry.rollout.completeness import AssignedUnits, SampleRatio, UnitCounts, sample_ratio, split_notes
from telemetry.rollout.plan import Stage

LIMIT = 0.0005


def stage(share: float, control_share: float | None = None) -> Stage:
    return Stage("canary", share, 1 - share if control_share is None else control_share, Duration(), 1)


def split(
    candidate: int, control: int, share: float = 0.5, *, unnamed: tuple[int, int] = (0, 0), limit: float = LIMIT
) -> SampleRatio:
    units = AssignedUnits(candidate, unnamed[0]), AssignedUnits(control, unnamed[1])
    found = sample_ratio(stage(share), UnitCounts(candidate + control, 0, *units), "user", limit)
    assert found is not None
    return found


def probabilities(units: int, share: float) -> np.ndarray:
    """Those of all counts, from logarithms of factorials."""
    counts = np.arange(units + 1)
    log = np.array([math.lgamma(each + 1) for each in counts])
    return np.exp(log[-1] - log - log[::-1] + counts * math.log(share) + (units - counts) * math.log1p(-share))


def two_sided(units: int, share: float) -> np.ndarray:
    """The p-value of every count: all counts that are at most as likely."""
    of = probabilities(units, share)
    return np.array([of[of <= each * (1 + 1e-9)].sum() for each in of])


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
@pytest.mark.parametrize("units", [1, 7, 60, 430])
def test_the_split_is_tested_exactly(units: int, share: float) -> None:
    expected = two_sided(units, share)
    for candidate in {0, units // 20, units // 4, units // 2, units}:
        found = split(candidate, units - candidate, share)
        assert found.p_value == pytest.approx(expected[candidate], rel=1e-6)
        assert found.p_value == found.p_of_known
        assert found.share == candidate / units


@pytest.mark.slow
@pytest.mark.parametrize(("units", "share"), [(430, 0.5), (430, 0.25), (2000, 0.05), (400, 0.7), (60, 0.5)])
def test_the_loss_that_it_states_is_found_as_often_as_it_says(units: int, share: float) -> None:
    """Simulated: units are assigned and lost one by one until so many are seen."""
    found = split(round(units * share), units - round(units * share), share)
    assert found.detectable_loss is not None
    assert found.detectable_control_loss is not None
    rng = np.random.default_rng(units)
    p_values = two_sided(units, share)
    for of_candidate, of_control in ((found.detectable_loss, 0.0), (0.0, found.detectable_control_loss)):
        rejected = 0
        for _ in range(2000):
            is_candidate = rng.random(20 * units) < share
            is_kept = rng.random(is_candidate.size) >= np.where(is_candidate, of_candidate, of_control)
            rejected += p_values[np.count_nonzero(is_candidate[is_kept][:units])] < LIMIT
        assert rejected / 2000 == pytest.approx(0.8, abs=0.03)


def test_a_tenth_of_the_calls_lost_is_invisible_at_430() -> None:
    """The figures of the explanation."""
    found = split(215, 215)
    assert found.detectable_loss is not None
    assert math.ceil(100 * found.detectable_loss) == 35
    of_some, of_more = split(3000, 3000).detectable_loss, split(3500, 3500).detectable_loss
    assert of_some is not None
    assert of_more is not None
    assert of_more < 0.1 < of_some
    assert split(215, 215).detectable_control_loss == found.detectable_loss, "both are half"


@pytest.mark.parametrize(("units", "share"), [(1, 0.5), (10, 0.5), (100, 0.05)])
def test_a_split_of_few_units_shows_no_loss(units: int, share: float) -> None:
    """All of them lost: probability 0.95^100 = 0.6 % of none by chance is above the limit, too."""
    found = split(0, units, share)
    assert (1 - share) ** units > LIMIT
    assert found.detectable_loss is None
    assert not found.is_mismatch


def test_a_loss_is_stated_in_two_digits_and_never_as_less() -> None:
    found = split(500, 1600, 0.25)
    of_candidate, of_control = found.detectable_loss, found.detectable_control_loss
    assert of_candidate is not None
    assert of_control is not None
    (note,) = split_notes(found, "new", "old", are_named=True)
    assert note == (
        f"in the split of 2,100 users, a loss of {math.ceil(100 * of_candidate)} % of those on new or of "
        f"{math.ceil(100 * of_control)} % of those on old would have been found with a probability of 80 %"
    )
    (of_many,) = split_notes(split(5_000_000, 5_000_000), "new", "old", are_named=True)
    assert re.search(r"a loss of 0\.\d\d % of those on new or of 0\.\d\d % of those on old would", of_many), of_many


def test_only_one_cohorts_loss_may_be_detectable() -> None:
    """Of 120 units none on the candidate is possible by chance; none on the control is not."""
    found = split(6, 114, 0.05)
    assert found.detectable_loss is None
    assert found.detectable_control_loss is not None
    (note,) = split_notes(found, "new", "old", are_named=True)
    assert note.startswith("in the split of 120 users, a loss of ")
    assert note.endswith(
        "% of those on old would have been found with a probability of 80 %, "
        "and of those on new not even the loss of all"
    )
    (note,) = split_notes(split(2, 2), "new", "old", are_named=True)
    assert note == (
        "in the split of 4 users, no loss would have been found, not even of all units of one cohort: they are too few"
    )


def test_units_without_a_name_never_make_a_mismatch() -> None:
    alone = split(0, 500, 0.25)
    assert alone.is_mismatch
    of_candidate_unknown = split(0, 500, 0.25, unnamed=(400, 0))
    assert not of_candidate_unknown.is_mismatch
    assert of_candidate_unknown.is_open
    assert of_candidate_unknown.p_value == 1.0
    (note,) = split_notes(of_candidate_unknown, "new", "old", are_named=False)
    assert note == (
        "the split is not known: 0 % of 500 users that are known are on new, 25 % planned, and 400 calls that name no "
        "user could make up for that"
    )


def test_a_mismatch_that_they_cannot_make_up_for_is_one() -> None:
    found = split(100, 900, 0.25, unnamed=(20, 40))
    assert found.is_mismatch
    # The best that they can be: 20 more users of the candidate, none of the control.
    assert found.p_value == split(120, 900, 0.25).p_value
    assert split(900, 100, 0.25, unnamed=(20, 40)).p_value == split(900, 140, 0.25).p_value
    assert split_notes(found, "new", "old", are_named=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_p_value_is_the_largest_of_all_numbers_of_users(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known, unnamed = rng.integers(1, 60, 2), rng.integers(0, 12, 2)
    every = [
        split(int(known[0]) + one, int(known[1]) + other, 0.3).p_value
        for one in range(unnamed[0] + 1)
        for other in range(unnamed[1] + 1)
    ]
    found = split(int(known[0]), int(known[1]), 0.3, unnamed=(int(unnamed[0]), int(unnamed[1])))
    assert found.p_value == pytest.approx(max(every), rel=1e-9) or (found.p_value == 1.0 and max(every) > 0.8)


def test_a_loss_is_harder_to_see_beside_calls_without_a_user() -> None:
    plain, beside = split(500, 500), split(500, 500, unnamed=(100, 0))
    assert plain.detectable_loss is not None
    assert beside.detectable_loss is not None
    assert beside.detectable_loss > plain.detectable_loss
    assert beside.detectable_control_loss == plain.detectable_control_loss
    # As found by trying: so few known ones that a hundred more would be too few as well.
    p_values = two_sided(1100, 0.5)
    most = max(left for left in range(500) if p_values[left + 100] < LIMIT)
    share = 0.5 * (1 - beside.detectable_loss) / (1 - 0.5 * beside.detectable_loss)
    assert probabilities(1000, share)[: most + 1].sum() == pytest.approx(0.8, abs=1e-6)
    assert (
        "in the split of 1,000 users, whatever users 100 unnamed calls are of, a loss of "
        in split_notes(beside, "new", "old", are_named=False)[0]
    )


@pytest.mark.slow
def test_users_who_call_often_are_one_each() -> None:
    """Zipf: the calls of few users are most of all calls; users are split as planned in every draw."""
    rng = np.random.default_rng(3)
    of_users, of_calls = 0, 0
    for _ in range(300):
        is_candidate = rng.random(400) < 0.25
        calls = np.minimum(rng.zipf(1.6, 400), 2000)
        one, other = int(is_candidate.sum()), int((~is_candidate).sum())
        of_users += split(one, other, 0.25, limit=0.05).is_mismatch
        of_calls += split(int(calls[is_candidate].sum()), int(calls[~is_candidate].sum()), 0.25, limit=0.05).is_mismatch
    assert of_users / 300 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert of_calls / 300 > 0.5, "what a test over calls would have said"


def test_nothing_known_is_not_tested() -> None:
    nothing = UnitCounts(40, 0, AssignedUnits(0, 20), AssignedUnits(0, 20))
    assert sample_ratio(stage(0.5), nothing, "user", LIMIT) is None
    assert sample_ratio(stage(0.5), UnitCounts(), "call", LIMIT) is None
    assert sample_ratio(stage(0.5), UnitCounts(5, 5), "call", LIMIT) is None, "all of them met both"
    assert split_notes(None, "new", "old", are_named=False) == [
        "the split was not tested: users are assigned, and none is known"
    ]
    assert split_notes(None, "new", "old", are_named=True) == []


def test_shares_beside_other_cohorts_are_those_of_the_two() -> None:
    counts = UnitCounts(1000, 0, AssignedUnits(20), AssignedUnits(980))
    found = sample_ratio(stage(0.02, 0.9), counts, "call", LIMIT)
    assert found is not None
    assert found.expected_share == pytest.approx(0.02 / 0.92)
    with pytest.raises(ValueError, match="stage canary has no control"):
        sample_ratio(stage(1.0), counts, "call", LIMIT)
