"""Dimensions ranked by how well they set a selection of turns apart from the others, and by which values. Pure.

For each dimension the turns are counted by value and by whether they are selected. How far the counts are from those of
a dimension that has nothing to do with the selection is Pearson's statistic, a sum over the values::

    X² = Σ (selected with the value - expected)² / (turns with the value × p (1 - p)),   p = selected / all

X² sees a difference that many values share. One value of hundreds hardly moves it, so that the value that is selected
most above its share is tested in addition: the binomial chance of that, times the number of values. The dimension's
p-value is twice the smaller of the two.

- **Calls.** Turns of one call are alike in the selection and in the dimension. X² and all counts are divided by the
  design effect, (variance over calls) / (variance of independent turns) summed over the values, which is never taken
  below 1: a first-order correction as that of Rao & Scott (*Ann. Statist.* 12, 1984). Fewer than FEWEST_CALLS
  calls show nothing.
- **Many values.** A dimension of k values has k - 1 degrees of freedom. Where a value is expected fewer than five times
  on a side, X² has no χ² distribution any more: its mean and variance among all tables with the same margins are known
  (Haldane 1940; Dawson, *Biometrika* 41, 1954), and the chance is that of the Γ distribution with these two.
- **Many dimensions.** The p-values are Holm's, over the dimensions that were tried (*Scand. J. Statist.* 6, 1979).
- **Rank.** Those that are shown, by the strength: Cramér's V without what chance adds to it (Bergsma, *J. Korean Stat.
  Soc.* 42, 2013): √((X² - design effect × (k - 1)) / turns), 0 for nothing to do with it, 1 where the value decides.

The value that is named is the one whose number of selected turns is least likely. Dimensions that go together (a model
that only one cohort has) are both shown: this finds what goes along with the selection, not what would change it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from telemetry.rollout.check_sample import Codes

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

ERROR_LEVEL: Final = 0.05
FEWEST_CALLS: Final = 20
FEWEST_TURNS: Final = 20
NOT_REPORTED: Final = -1
_FEWEST_EXPECTED: Final = 5
# Values beyond these are counted together: the others have a turn or two each.
_MOST_VALUES: Final = 1000

Untried = Literal["not reported", "one value", "too few turns"]


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of some turns: the place of each turn's value in `labels`, or NOT_REPORTED."""

    codes: Codes
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainingValue:
    """A value of a dimension, None for turns without one, and its share of the selected turns and of the others."""

    label: str | None
    selected: int
    others: int
    share_selected: float
    share_others: float


@dataclass(frozen=True, slots=True)
class ExplainedDimension:
    """The extent to which a dimension sets the selected turns apart; `untried` says why that was not asked.

    `strength` lies between 0 and 1, `p_value` is corrected for the number of dimensions; `is_shown` where that is below
    ERROR_LEVEL. `value` is the one that the selection has most too many of.
    """

    name: str
    values: int
    untried: Untried | None = None
    strength: float = 0.0
    p_value: float = 1.0
    is_shown: bool = False
    value: ExplainingValue | None = None


def rank_dimensions(is_selected: Bools, calls: Codes, dimensions: Mapping[str, Dimension]) -> list[ExplainedDimension]:
    """The dimensions by how far they set the selected turns apart from the others, those that do first.

    All columns have one value per turn; `calls` are whole numbers. Raises ValueError for columns of another length.
    """
    results = [_explained(name, is_selected, calls, dimension) for name, dimension in dimensions.items()]
    tried = sorted(
        (dimension for dimension in results if dimension.untried is None), key=lambda dimension: dimension.p_value
    )
    reached = 0.0
    corrected: dict[str, ExplainedDimension] = {}
    for place, dimension in enumerate(tried):
        reached = max(reached, min(1.0, dimension.p_value * (len(tried) - place)))
        corrected[dimension.name] = replace(
            dimension, p_value=reached, is_shown=reached < ERROR_LEVEL and dimension.value is not None
        )
    return sorted(
        (corrected.get(dimension.name, dimension) for dimension in results),
        key=lambda dimension: (
            dimension.untried is not None,
            not dimension.is_shown,
            -dimension.strength if dimension.is_shown else 0,
        ),
    )


def _explained(name: str, is_selected: Bools, calls: Codes, dimension: Dimension) -> ExplainedDimension:
    if not is_selected.size == calls.size == dimension.codes.size:
        raise ValueError(f"{name}: {dimension.codes.size} codes for {is_selected.size} turns")
    codes, labels = _commonest(dimension)
    values = int(np.unique(dimension.codes).size)
    if not codes.size or not (dimension.codes != NOT_REPORTED).any():
        return ExplainedDimension(name, 0, untried="not reported")
    if np.unique(codes).size < 2:
        return ExplainedDimension(name, values, untried="one value")
    picked = int(np.count_nonzero(is_selected))
    known_calls = int(np.unique(calls).size)
    if known_calls < FEWEST_CALLS or min(picked, is_selected.size - picked) < FEWEST_TURNS:
        return ExplainedDimension(name, values, untried="too few turns")
    size, selected = _counts(is_selected, codes)
    effect = _design_effect(is_selected, calls, codes, size)
    statistic, freedom = _pearson(size, selected), size.size - 1
    tails = _tails(size / effect, selected / effect, picked / is_selected.size)
    most = int(np.argmin(tails))
    corrected_p = float(tails[most]) * size.size
    return ExplainedDimension(
        name,
        values,
        strength=math.sqrt(min(1.0, max(0.0, statistic - effect * freedom) / is_selected.size)),
        p_value=min(1.0, 2 * min(_chance(statistic / effect, size, picked), corrected_p)),
        value=_value(labels[most], int(selected[most]), int(size[most]), picked, is_selected.size),
    )


def _value(label: str | None, selected: int, size: int, picked: int, turns: int) -> ExplainingValue | None:
    others = size - selected
    share, share_others = selected / picked, others / (turns - picked)
    return ExplainingValue(label, selected, others, share, share_others) if share > share_others else None


def _commonest(dimension: Dimension) -> tuple[Codes, list[str | None]]:
    """Codes from 0 without a gap and their labels; None for turns without a value, and those of rare values together
    under a label of their own."""
    known, places, counts = np.unique(dimension.codes, return_inverse=True, return_counts=True)
    labels: list[str | None] = [None if code == NOT_REPORTED else dimension.labels[code] for code in known.tolist()]
    places = places.reshape(-1)
    if known.size <= _MOST_VALUES:
        return places, labels
    kept = np.sort(np.argsort(-counts, kind="stable")[:_MOST_VALUES])
    renamed = np.full(known.size, _MOST_VALUES, dtype=np.int64)
    renamed[kept] = np.arange(_MOST_VALUES)
    return renamed[places], [*(labels[place] for place in kept.tolist()), "a rare value"]


def _counts(is_selected: Bools, codes: Codes) -> tuple[Floats, Floats]:
    values = int(codes.max()) + 1
    size = np.bincount(codes, minlength=values).astype(np.float64)
    return size, np.bincount(codes, weights=is_selected, minlength=values).astype(np.float64)


def _pearson(size: Floats, selected: Floats) -> float:
    """Pearson's statistic of independence between the selection and the values."""
    share = float(selected.sum() / size.sum())
    return float(((selected - size * share) ** 2 / (size * share * (1 - share))).sum())


def _design_effect(is_selected: Bools, calls: Codes, codes: Codes, size: Floats) -> float:
    """Return how many times less the turns say than independent ones, as some of a call and a value are alike; 1 at
    least."""
    share = float(is_selected.mean())
    rest = is_selected - share
    _, call_codes = np.unique(calls, return_inverse=True)
    known = int(call_codes.max()) + 1
    # A selected turn says something of every value: of its own that there is one, of the others that there is none.
    shares = size / size.sum()
    table = scipy.sparse.csr_array((rest, (call_codes.reshape(-1), codes)), shape=(known, size.size))
    by_call = np.bincount(call_codes.reshape(-1), weights=rest)
    squares = np.asarray(table.multiply(table).sum(axis=0)).reshape(-1)
    crossed = np.asarray(table.T @ by_call).reshape(-1)
    between = squares - 2 * shares * crossed + shares**2 * float((by_call**2).sum())
    alone = size * (1 - shares) * share * (1 - share)
    return max(1.0, float(between.sum() / alone.sum()) * known / (known - 1))


def _tails(size: Floats, selected: Floats, share: float) -> Floats:
    """Return how likely each value is selected so often, or more often, where the dimension has nothing to do with it
    (binomial, of counts that need not be whole)."""
    chance = scipy.special.betainc(np.maximum(selected, 1e-9), size - selected + 1, share)
    return np.where(selected > 0, chance, 1.0)


def _chance(statistic: float, size: Floats, picked: int) -> float:
    """Return how likely so large a statistic, or a larger one, is where the dimension has nothing to do with it."""
    turns, values = float(size.sum()), size.size
    if size.min() * min(picked, turns - picked) / turns >= _FEWEST_EXPECTED:
        return float(scipy.special.chdtrc(values - 1, statistic))
    mean = turns * (values - 1) / (turns - 1)
    sides = np.array([picked, turns - picked])
    free = [(parts.size - 1) * (turns - parts.size) / (turns - 1) for parts in (size, sides)]
    uneven = [float(((turns / parts).sum() - parts.size**2) / (turns - 2)) for parts in (size, sides)]
    variance = 2 * turns / (turns - 3) * (free[0] - uneven[0]) * (free[1] - uneven[1])
    variance += turns**2 / (turns - 1) * uneven[0] * uneven[1]
    return float(scipy.special.gammaincc(mean**2 / variance, statistic * mean / variance))
