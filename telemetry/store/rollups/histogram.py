"""A histogram that can be added to others: counts by bucket, with the least and the greatest value."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from telemetry.store.rollups.buckets import Floats, Ints, Scale

_NO_INTS: Final[Ints] = np.empty(0, dtype=np.int64)
# Up to so many places counting in a plain array is quicker than sorting.
_DENSE: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts[i]` values in `buckets[i]`, ascending; `low` and `high` are the least and the greatest of all values."""

    buckets: Ints
    counts: Ints
    low: float | None
    high: float | None

    @classmethod
    def empty(cls) -> Self:
        """A histogram of nothing."""
        return cls(_NO_INTS, _NO_INTS, None, None)

    @classmethod
    def added(cls, parts: Iterable["Histogram"]) -> Self:
        """The sum of histograms of one scale, in whatever order."""
        known = [part for part in parts if len(part.buckets)]
        if not known:
            return cls.empty()
        if len(known) == 1:
            (one,) = known
            return cls(one.buckets, one.counts, one.low, one.high)
        return cls(
            *summed_counts(
                np.concatenate([part.buckets for part in known]), np.concatenate([part.counts for part in known])
            ),
            min(part.low for part in known if part.low is not None),
            max(part.high for part in known if part.high is not None),
        )

    @property
    def n(self) -> int:
        """How many values."""
        return int(self.counts.sum())

    def up_to(self, bucket: int) -> int:
        """How many values lie in this bucket or below it."""
        return int(self.counts[: int(np.searchsorted(self.buckets, bucket, side="right"))].sum())

    def quantiles(self, scale: Scale, fractions: Sequence[float]) -> list[float] | None:
        """Estimates of the quantiles at `fractions`, linear between neighbors as DuckDB's `quantile_cont`; None without
        values.

        Each value is taken to lie where it would if those of its bucket were spread evenly over it: the estimate is off
        by less than the bucket is wide.
        """
        if not self.n:
            return None
        ends = np.cumsum(self.counts)
        edges = scale.edges(self.buckets)
        return [self._quantile(fraction * (self.n - 1), ends, edges) for fraction in fractions]

    def _quantile(self, position: float, ends: Ints, edges: tuple[Floats, Floats]) -> float:
        place = math.floor(position)
        weight = position - place
        low = self._value(place, ends, edges)
        return low if weight == 0 else low + (self._value(place + 1, ends, edges) - low) * weight

    def _value(self, place: int, ends: Ints, edges: tuple[Floats, Floats]) -> float:
        """The value at a place of their order, from 0."""
        at = int(np.searchsorted(ends, place, side="right"))
        if self.low is None or self.high is None:  # of no values
            return math.nan
        if place in (0, int(ends[-1]) - 1):
            return self.low if place == 0 else self.high
        count = int(self.counts[at])
        least, most = float(edges[0][at]), float(edges[1][at])
        spread = least + (most - least) * ((place - (int(ends[at]) - count) + 0.5) / count)
        return min(max(spread, self.low), self.high)


def summed_counts(buckets: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The different ones of `buckets`, ascending, and the sum of the `counts` of each; both of shape (n,)."""
    if not len(buckets):
        return buckets, counts
    least = int(buckets.min())
    # The buckets of one metric lie close together: a plain array over their range is quicker than sorting.
    dense = np.zeros(int(buckets.max()) - least + 1, dtype=np.int64)
    np.add.at(dense, buckets - least, counts)
    places = np.flatnonzero(dense)
    return places + least, dense[places]


def counted_by_group(group: Ints, values: Any, scale: Scale) -> Iterator[tuple[int, Histogram]]:
    """The histogram of the values of each group, both of shape (n,)."""
    if not len(values):
        return
    buckets = scale.buckets(values)
    known, places = _numbered(group)
    least = int(buckets.min())
    width = int(buckets.max()) - least + 1
    lows, highs = _extremes(places, values, len(known))
    combined = places * width + (buckets - least)
    if width * len(known) <= _DENSE:
        dense = np.bincount(combined, minlength=width * len(known))
        taken = np.flatnonzero(dense)
        counts = dense[taken]
    else:
        taken, counts = np.unique(combined, return_counts=True)
    ends = np.searchsorted(taken, np.arange(len(known) + 1) * width)
    for place, number in enumerate(known.tolist()):
        part = slice(int(ends[place]), int(ends[place + 1]))
        found = Histogram(taken[part] - place * width + least, counts[part], float(lows[place]), float(highs[place]))
        yield number, found


def _numbered(group: Ints) -> tuple[Ints, Ints]:
    """The different numbers, ascending, and the place of each of `group` among them."""
    size = int(group.max()) + 1
    if size > _DENSE:
        known, places = np.unique(group, return_inverse=True)
        return known, places.reshape(-1)
    known = np.flatnonzero(np.bincount(group, minlength=size))
    place = np.zeros(size, dtype=np.int64)
    place[known] = np.arange(len(known))
    return known, place[group]


def _extremes(places: Ints, values: Any, groups: int) -> tuple[Any, Any]:
    found: list[Any] = []
    each: tuple[tuple[Callable[..., None], Any], ...] = (
        (np.minimum.at, values.max()),
        (np.maximum.at, values.min()),
    )
    for at, beginning in each:
        extremes = np.full(groups, beginning, dtype=values.dtype)
        at(extremes, places, values)
        found.append(extremes)
    return found[0], found[1]
