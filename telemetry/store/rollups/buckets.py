"""The buckets of a roll-up's histograms: whole numbers that keep the order of the values they stand for.

Durations and counts have buckets of fixed edges: of durations 10 µs wide up to 10 ms, 0.1 ms up to 100 ms, 1 ms up to
100 s and a hundredth of the decade's beginning beyond. An edge lies at every whole millisecond up to 100 s and belongs
to the bucket below it, so the values up to such a threshold are counted exactly. Ratios and rates have logarithmic
buckets, each 1 % wider than the one before. 0 has a bucket of its own; negative values mirror the positive ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MILLISECOND_NS: Final = 1_000_000
# Up to here each whole millisecond is an edge.
EXACT_UP_TO_NS: Final = 100_000 * MILLISECOND_NS


class Scale(Protocol):
    """Numbers the buckets of one kind of value."""

    def buckets(self, values: Any) -> Ints:
        """The bucket of each value of an array, of whole numbers on a StepScale."""
        ...

    def edges(self, buckets: Ints) -> tuple[Floats, Floats]:
        """The least and the greatest value that each bucket may hold."""
        ...


@dataclass(frozen=True)
class StepScale:
    """Buckets of fixed widths: `steps` are (up to, width), and beyond the last each decade has 900 buckets."""

    steps: tuple[tuple[int, int], ...]

    @cached_property
    def _ranges(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Of each range: values above this, up to this of all but the last, width, buckets before."""
        found: list[tuple[int, int, int, int]] = []
        low = before = 0
        steps = list(self.steps)
        while steps[-1][0] < 10**19:
            steps.append((steps[-1][0] * 10, steps[-1][0] // 100))
        for high, width in steps:
            found.append((low, high, width, before))
            before += (high - low) // width
            low = high
        lows, highs, widths, counts_below = zip(*found, strict=True)
        return _ints(lows), _ints(highs[:-1]), _ints(widths), _ints(counts_below)

    def buckets(self, values: Any) -> Ints:
        """The bucket of each whole number of an array."""
        lows, highs, widths, counts_below = self._ranges
        size = np.abs(values)
        place = np.searchsorted(highs, size)
        return np.sign(values) * (counts_below[place] + (size - lows[place] + widths[place] - 1) // widths[place])

    def edges(self, buckets: Ints) -> tuple[Floats, Floats]:
        """The least and the greatest value that each bucket may hold."""
        all_lows, _, all_widths, counts_below = self._ranges
        size = np.abs(buckets)
        place = np.maximum(np.searchsorted(counts_below, size, side="left") - 1, 0)
        lows, widths = all_lows[place].astype(np.float64), all_widths[place].astype(np.float64)
        high = lows + (size - counts_below[place]) * widths
        # The values are whole numbers: the least of a bucket is one more than the greatest of the bucket below.
        return _mirrored(buckets, np.where(size == 0, 0.0, high - widths + 1), np.where(size == 0, 0.0, high))


@dataclass(frozen=True)
class LogScale:
    """Logarithmic buckets: each is 1 % wider than the one before, from the smallest number that is not 0."""

    growth: float = 1.01
    offset: int = 80_000  # makes the bucket of the smallest positive number positive

    def buckets(self, values: Any) -> Ints:
        """The bucket of each finite number of an array."""
        size = np.abs(np.asarray(values, dtype=np.float64))
        power = np.ceil(np.log(np.where(size > 0, size, 1.0)) / math.log(self.growth)) + self.offset
        return np.where(size > 0, np.sign(values) * power, 0).astype(np.int64)

    def edges(self, buckets: Ints) -> tuple[Floats, Floats]:
        """The least and the greatest value that each bucket may hold."""
        power = (np.abs(buckets) - self.offset).astype(np.float64)
        high = np.where(buckets == 0, 0.0, np.power(self.growth, power))
        return _mirrored(buckets, high / self.growth, high)


DURATIONS: Final = StepScale(((10_000_000, 10_000), (100_000_000, 100_000), (EXACT_UP_TO_NS, MILLISECOND_NS)))
COUNTS: Final = StepScale(((1_000, 1),))
RATIOS: Final = LogScale()


def scale_of(unit: str) -> Scale:
    """The scale for the unit of a metric (`ns`, `count`, `ratio`, `per_s`)."""
    return {"ns": DURATIONS, "count": COUNTS}.get(unit, RATIOS)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _mirrored(buckets: Ints, low: Any, high: Any) -> tuple[Floats, Floats]:
    return np.where(buckets < 0, -high, low), np.where(buckets < 0, -low, high)
