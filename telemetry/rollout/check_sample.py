"""One cohort's values for one figure, and the variance of figures of turns that belong together. Pure.

Turns belong together by call (or user), and by utterance where cohorts are paired. A turn's influence is by how much
it moves the figure. Turns of one cluster move it together, so that their influences are added up before they are
squared. A cluster that holds a large part of the turns pulls the figure to its own: each counts as in the jackknife,
which leaves it out (CR3: Bell & McCaffrey, Survey Methodology 28, 2002). Where turns belong together in two ways, both
count, and what each turn has for itself counts once (Cameron, Gelbach & Miller, J. Bus. Econ. Statist. 29, 2011).
Results are the same to the last digit in whichever order clusters are numbered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

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
        """The number of turns that have a value."""
        return int(self.values.size)

    @property
    def missing_share(self) -> float:
        """Turns without a value / turns that could have one."""
        return 0.0 if not self.eligible else 1 - self.size / self.eligible

    def in_order(self) -> "CheckSample":
        """The same turns in a canonical order, so that sums over them are the same to the last digit in any order of
        arrival."""
        keys = [column for column in (self.pairs, self.weights, self.values) if column is not None]
        order = np.lexsort(keys)
        weights, pairs = (None if column is None else column[order] for column in (self.weights, self.pairs))
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
        """The ways in which turns belong together: by cluster, and by utterance if cohorts are paired."""
        return (self.clusters,) if self.pairs is None else (self.clusters, self.pairs)


def are_paired(candidate: CheckSample, control: CheckSample) -> bool:
    """Return whether the turns of both cohorts name their audio, so that they are compared by utterance."""
    return candidate.pairs is not None and control.pairs is not None


class TooFewError(ValueError):
    """Raised if a cohort has too few turns for a standard error of a difference; the text says what is missing."""


# Below so many clusters, an interval says little.
FEWEST_CLUSTERS: Final = 20


def clustered_variance(influence: Floats, groupings: Sequence[Codes]) -> float:
    """The variance of a figure of one cohort by one or two ways in which its turns belong together."""
    ways = [_variance_of_sums(_left_out(influence, codes), known_clusters(codes)) for codes in groupings]
    return _both_ways(ways, total(influence**2))


def paired_variance(influences: tuple[Floats, Floats], samples: tuple[CheckSample, CheckSample]) -> float:
    """The variance of the difference of a figure between two cohorts that heard the same utterances."""
    ways: list[float] = []
    for candidate, control in zip(*(sample.groupings for sample in samples), strict=True):
        is_utterance = bool(ways)
        size = max(int(candidate.max()), int(control.max())) + 1
        sums, control_sums = (
            _left_out(influence, codes, size) for influence, codes in zip(influences, (candidate, control), strict=True)
        )
        known = known_clusters(np.concatenate([candidate, control + (0 if is_utterance else size)]))
        ways.append(
            _variance_of_sums(sums - control_sums if is_utterance else np.concatenate([sums, control_sums]), known)
        )
    return _both_ways(ways, total(np.concatenate(influences) ** 2))


def expect_clusters(sample: CheckSample, fewest: int) -> None:
    """Raise TooFewError if a sample has fewer clusters, or, if it is paired, fewer utterances or a single cluster:
    their sums say too little about the variance."""
    expected = [(sample.clusters, fewest if sample.pairs is None else 2, sample.unit)]
    expected += [] if sample.pairs is None else [(sample.pairs, fewest, "utterance")]
    for codes, needed, unit in reversed(expected):
        known = known_clusters(codes)
        if known < needed:
            raise TooFewError(f"needs {needed} {unit}s, has {known:,}")


def degrees_of_freedom(samples: Sequence[CheckSample]) -> float:
    """The degrees of freedom of a variance over the clusters of the cohort with fewer effective ones, by call or by
    utterance."""
    return max(1.0, min(effective_clusters(codes) for sample in samples for codes in sample.groupings) - 1)


def known_clusters(clusters: Codes) -> int:
    """Return the number of clusters."""
    return int(np.count_nonzero(np.bincount(clusters)))


def effective_clusters(clusters: Codes) -> float:
    """Return the number of equal clusters with the same information as these, of which some may hold most of the turns
    (Kish)."""
    sizes = np.bincount(clusters).astype(np.float64)
    return float(sizes.sum()) ** 2 / float((sizes**2).sum())


def total(values: Floats) -> float:
    """The sum in a canonical order, and without zeros, which are numbers of clusters that no turn has."""
    return float(np.sort(values[values != 0]).sum())


def _left_out(influence: Floats, clusters: Codes, size: int = 0) -> Floats:
    """The sums of influences by cluster, each on a figure computed without that cluster."""
    share = np.bincount(clusters, minlength=size) / clusters.size
    sums = np.bincount(clusters, weights=influence, minlength=size)
    return np.divide(sums, 1 - share, out=np.zeros(share.size), where=share < 1)


def _variance_of_sums(sums: Floats, known: int) -> float:
    return total(sums**2) * (known - 1) / known


def _both_ways(ways: list[float], alone: float) -> float:
    return ways[0] if len(ways) == 1 else max(ways[1], sum(ways) - alone)
