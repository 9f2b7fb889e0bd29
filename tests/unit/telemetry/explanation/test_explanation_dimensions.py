"""A dimension that was planted is found and ranked first; in noise none is, whatever its number of values and however
much the turns of a call are alike."""

import numpy as np
import pytest
from scipy import stats

from telemetry.explanation.dimensions import (
    NOT_REPORTED,
    Dimension,
    ExplainedDimension,
    _chance,
    pearson,
    rank_dimensions,
)

TURNS, PER_CALL = 1200, 4
CALLS = np.arange(TURNS) // PER_CALL
# How many values each has, and whether a call keeps its value for all of its turns.
SHAPES = {
    "domain": (4, False),
    "length": (3, False),
    "noise": (5, False),
    "route": (3, False),
    "cache": (2, False),
    "model": (2, True),
    "region": (3, True),
    "utterance": (300, False),
    "worker": (8, True),
}


def dimensions(chance: np.random.Generator, **changed: Dimension) -> dict[str, Dimension]:
    found: dict[str, Dimension] = {}
    for name, (values, is_of_call) in SHAPES.items():
        codes = chance.integers(values, size=TURNS)
        codes = codes[CALLS * PER_CALL] if is_of_call else codes
        found[name] = Dimension(codes, tuple(f"{name} {value}" for value in range(values)))
    return {**found, **changed}


def slow_calls(chance: np.random.Generator, share: float) -> np.ndarray:
    """Turns of calls that are slow as a whole."""
    return (chance.random(CALLS[-1] + 1) < share)[CALLS]


def by_name(found: list[ExplainedDimension]) -> dict[str, ExplainedDimension]:
    return {each.name: each for each in found}


@pytest.mark.parametrize("name", SHAPES)
def test_a_planted_dimension_comes_first_with_its_value(name: str) -> None:
    chance = np.random.default_rng(7)
    known = dimensions(chance)
    codes = known[name].codes.copy()
    if name == "utterance":
        codes[chance.random(TURNS) < 0.04] = 17  # one clip of 300, heard 48 times or so
    is_value = codes == min(17, SHAPES[name][0] - 1)
    is_slow = (chance.random(TURNS) < 0.05) | (is_value & (chance.random(TURNS) < 0.6))
    found = rank_dimensions(is_slow, CALLS, {**known, name: Dimension(codes, known[name].labels)})
    first = found[0]
    assert (first.name, first.is_shown) == (name, True)
    assert first.value is not None
    assert first.value.label == known[name].labels[min(17, SHAPES[name][0] - 1)]
    assert first.value.selected == np.count_nonzero(is_slow & is_value)
    assert first.value.share_selected == pytest.approx((is_slow & is_value).sum() / is_slow.sum())
    assert first.value.share_others == pytest.approx((~is_slow & is_value).sum() / (~is_slow).sum())
    assert first.strength > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.04, 0.2, 0.5])
def test_in_noise_no_dimension_is_shown(share: float) -> None:
    """Whole calls are slow, by chance: of 200 runs with nine dimensions each, no more show one than the 5 % of Holm's
    correction (16 are three standard errors above), and the 300 clips no more often than others."""
    shown: list[str] = []
    for seed in range(200):
        chance = np.random.default_rng(seed)
        found = rank_dimensions(slow_calls(chance, share), CALLS, dimensions(chance))
        shown += [each.name for each in found if each.is_shown]
    assert len(shown) <= 16, shown
    assert shown.count("utterance") <= 4


def test_a_worker_of_a_few_slow_calls_is_chance_and_would_not_be_without_the_calls() -> None:
    """Eight turns a call: two slow calls of one worker are 16 slow turns, which as independent turns would be shown."""
    calls = np.arange(1600) // 8
    worker = calls % 10
    is_slow = np.isin(calls, [3, 13, 21, 32, 45, 57, 66])
    of_calls = rank_dimensions(is_slow, calls, {"worker": Dimension(worker, tuple("abcdefghij"))})[0]
    of_turns = rank_dimensions(is_slow, np.arange(1600), {"worker": Dimension(worker, tuple("abcdefghij"))})[0]
    assert not of_calls.is_shown
    assert of_turns.is_shown
    assert of_calls.p_value > 0.05 > of_turns.p_value


def test_the_statistic_is_that_of_scipy() -> None:
    chance = np.random.default_rng(2)
    codes = chance.integers(6, size=900)
    is_slow = chance.random(900) < 0.1 + 0.05 * (codes == 2)
    table = np.array([np.bincount(codes[is_slow == side], minlength=6) for side in (True, False)])
    reference = stats.chi2_contingency(table, correction=False)
    assert pearson(is_slow, codes) == pytest.approx(reference.statistic)
    found = rank_dimensions(is_slow, np.arange(900), {"x": Dimension(codes, tuple("abcdef"))})[0]
    # Of six values and one dimension: twice the smaller chance of that of all values and of that of the one.
    one = 6 * stats.binom.sf(table[0, 2] - 1, table[:, 2].sum(), is_slow.mean())
    assert found.p_value == pytest.approx(2 * min(reference.pvalue, one), rel=0.15)
    cramer = stats.contingency.association(table, method="cramer")
    assert found.strength == pytest.approx(np.sqrt(max(0.0, cramer**2 - 5 / 900)), rel=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_in_sparse_tables_the_chance_is_that_of_permutations(seed: int) -> None:
    """Hundreds of values have a turn or two each."""
    chance = np.random.default_rng(seed)
    codes = chance.integers(250, size=500)
    is_slow = chance.random(500) < 0.1
    permuted = np.array([pearson(chance.permutation(is_slow), codes) for _ in range(3000)])
    reference = float((permuted >= pearson(is_slow, codes)).mean())
    assert _chance(pearson(is_slow, codes), np.bincount(codes)[np.unique(codes)].astype(float), int(is_slow.sum())) == (
        pytest.approx(reference, abs=0.03)
    )


def test_what_cannot_be_asked_says_why() -> None:
    chance = np.random.default_rng(1)
    nothing = Dimension(np.full(TURNS, NOT_REPORTED), ())
    one = Dimension(np.zeros(TURNS, dtype=np.int64), ("only",))
    is_slow = slow_calls(chance, 0.2)
    found = by_name(rank_dimensions(is_slow, CALLS, dimensions(chance, domain=nothing, region=one)))
    assert (found["domain"].untried, found["domain"].values) == ("not reported", 0)
    assert (found["region"].untried, found["region"].values) == ("one value", 1)
    few = by_name(rank_dimensions(np.arange(TURNS) < 5, CALLS, dimensions(chance)))
    assert {each.untried for each in few.values()} == {"too few turns"}
    same_call = by_name(rank_dimensions(is_slow, np.zeros(TURNS, dtype=np.int64), dimensions(chance)))
    assert {each.untried for each in same_call.values()} == {"too few turns"}
    assert rank_dimensions(is_slow[:0], CALLS[:0], {"x": Dimension(CALLS[:0], ())})[0].untried == "not reported"
    with pytest.raises(ValueError, match="x: 2 codes for 1200 turns"):
        rank_dimensions(is_slow, CALLS, {"x": Dimension(CALLS[:2], ())})


def test_turns_without_a_value_are_a_value_of_their_own() -> None:
    chance = np.random.default_rng(1)
    codes = np.where(CALLS % 3 == 0, NOT_REPORTED, 0)
    is_slow = (chance.random(TURNS) < 0.05) | ((codes == NOT_REPORTED) & (chance.random(TURNS) < 0.5))
    found = rank_dimensions(is_slow, CALLS, {"model": Dimension(codes, ("large",))})[0]
    assert found.is_shown
    assert found.value is not None
    assert found.value.label is None


def test_thousands_of_values_are_asked_together() -> None:
    chance = np.random.default_rng(1)
    codes = np.arange(TURNS * 3) // 2
    calls = np.arange(TURNS * 3) // 4
    found = rank_dimensions(
        chance.random(TURNS * 3) < 0.1, calls, {"utterance": Dimension(codes, tuple(map(str, range(codes.size))))}
    )[0]
    assert (found.values, found.is_shown) == (1800, False)
