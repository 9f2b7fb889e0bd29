"""One cohort's values for one figure, and who the turns belong to. Pure."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CheckSample:
    """One cohort's values for one figure: a numerator and a denominator per turn, and who the turns belong to.

    A quantile reads the numerators alone; infinity is a turn that nobody answered. `clusters` and `pairs` (utterances)
    are whole numbers from 0; equal `pairs` in both cohorts are the same audio. `eligible` are the turns that could have
    a value; None: those that have one.
    """

    values: Floats
    clusters: Codes
    weights: Floats | None = None  # denominators; None: 1 for each turn
    pairs: Codes | None = None
    unit: str = "call"  # what a cluster is
    eligible: int | None = None

    @property
    def size(self) -> int:
        """How many turns have a value."""
        return int(self.values.size)

    @property
    def missing_share(self) -> float:
        """Turns without a value / turns that could have one."""
        return 0.0 if not self.eligible else 1 - self.size / self.eligible

    def in_order(self) -> "CheckSample":
        """The same turns in an order of their own, so that sums over them are the same to the last digit in whichever
        order they arrived."""
        keys = [each for each in (self.pairs, self.weights, self.values) if each is not None]
        order = np.lexsort(keys)
        weights, pairs = (None if each is None else each[order] for each in (self.weights, self.pairs))
        return replace(self, values=self.values[order], clusters=self.clusters[order], weights=weights, pairs=pairs)

    @property
    def weight_of_each(self) -> Floats:
        """The denominator of each turn."""
        return np.ones_like(self.values) if self.weights is None else self.weights

    @property
    def total_weight(self) -> float:
        """The sum of the denominators."""
        return float(self.weight_of_each.sum())

    @property
    def is_share(self) -> bool:
        """Whether its figure is a share of turns: each value is 0 or 1."""
        return self.weights is None and bool(((self.values == 0) | (self.values == 1)).all())

    @property
    def groupings(self) -> tuple[Codes, ...]:
        """The ways in which turns belong together: by cluster, and by utterance where cohorts are paired."""
        return (self.clusters,) if self.pairs is None else (self.clusters, self.pairs)


def are_paired(candidate: CheckSample, control: CheckSample) -> bool:
    """Whether the turns of both cohorts name what was heard, so that they are compared by utterance."""
    return candidate.pairs is not None and control.pairs is not None


class TooFewError(ValueError):
    """Raised where a cohort has too few turns for a difference to have a standard error; the text says what is
    missing."""
