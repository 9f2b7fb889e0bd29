"""Classic histograms of the metrics of a turn, counted in arrays: a row for each combination of label values.

A latency can be negative (the agent talks over the caller), but a sum that falls is a counter reset for Prometheus. So
a value below zero is counted in the lowest bucket and adds 0 to the sum; the time below zero is added up apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from prometheus_client.utils import floatToGoString

from telemetry.model.metrics import Metric
from telemetry.objectives.objective import Objective
from telemetry.store.schema import INTEGER_LIMIT

_NS_PER_S: Final = 1e9
# 0 is a bucket of its own, so that negative latencies do not look like short ones.
_SECONDS: Final = (
    *(0.0, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3),
    *(0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
)
_RATIOS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0, 10.0)
_COUNTS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)
_RATES: Final = (5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 500.0, 1000.0)
TRACE_ID_CHARS: Final = 32

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class _Scale:
    suffix: str
    divisor: float
    buckets: tuple[float, ...]


_SCALES: Final[dict[str, _Scale]] = {
    "ns": _Scale("_seconds", _NS_PER_S, _SECONDS),
    "ratio": _Scale("_ratio", 1.0, _RATIOS),
    "count": _Scale("", 1.0, _COUNTS),
    "per_s": _Scale("", 1.0, _RATES),
}


def series_name(metric: Metric) -> str:
    """The Prometheus name of a metric: the base unit is in it."""
    name = metric.name.replace("_per_s", "_per_second")
    if name.endswith("_count"):
        name = name.removesuffix("_count") + "s"  # `_count` is a histogram's own suffix
    return f"voice_turn_{name}{_SCALES[metric.unit].suffix}"


class Buckets:
    """The buckets of a metric: those of its unit, and the threshold of each of its objectives.

    `bounds` are the upper bounds as Prometheus writes them, without +Inf.
    """

    def __init__(self, metric: Metric, objectives: Sequence[Objective]) -> None:
        scale = _SCALES[metric.unit]
        bounds = {each: each * scale.divisor for each in scale.buckets}
        for objective in objectives:
            if objective.metric == metric.name and objective.threshold is not None:
                bounds[objective.threshold / scale.divisor] = objective.threshold
        self.bounds = tuple(floatToGoString(bound) for bound in sorted(bounds))
        self.divisor = scale.divisor
        edges = [bounds[bound] for bound in sorted(bounds)]
        # Whole numbers are compared as such: a float rounds those above 2^53.
        whole = metric.unit in ("ns", "count")
        self._edges = np.array([min(math.floor(round(edge, 3)), INTEGER_LIMIT) for edge in edges] if whole else edges)

    def __len__(self) -> int:
        return len(self.bounds) + 1

    def of(self, values: Array) -> Array:
        """The index of the bucket of each value, in the metric's unit."""
        return np.searchsorted(self._edges, values, side="left")


@dataclass(frozen=True, slots=True)
class Observed:
    """What some turns add to a histogram: rows of counts, and an exemplar for each bucket that was hit.

    `hit` are positions in the flattened `counts`, `turns` the index of the last turn in each, `values` its value.
    """

    counts: Array
    sums: Array
    below_zero: Array
    hit: Array
    turns: Array
    values: Array


def observed(buckets: Buckets, rows: Array, turns: Array, values: Array, row_count: int) -> Observed:
    """What values add to rows of counts: `rows` are the row of each value, `turns` the index of its turn."""
    shape = (row_count, len(buckets))
    flat = rows * shape[1] + buckets.of(values)
    counts = np.bincount(flat, minlength=shape[0] * shape[1])
    hit = np.flatnonzero(counts)
    last = np.zeros(counts.size, np.int64)
    last[flat] = np.arange(flat.size)  # where a place is assigned twice, the last one stays
    last = last[hit]
    scaled = values / buckets.divisor
    return Observed(
        counts=counts.reshape(shape),
        sums=np.bincount(rows, weights=np.maximum(scaled, 0.0), minlength=row_count),
        below_zero=np.bincount(rows, weights=np.maximum(-scaled, 0.0), minlength=row_count),
        hit=hit,
        turns=turns[last],
        values=scaled[last],
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a histogram, a row for each place. `trace_ids` is empty where a bucket has no exemplar."""

    buckets: Array  # int64, not cumulative
    sums: Array
    below_zero: Array
    trace_ids: Array  # of the exemplar of each bucket
    values: Array
    unix_s: Array

    @classmethod
    def of_nothing(cls, places: int, width: int) -> "Counts":
        """Counts of 0 with as many rows as there are places."""
        shape = (places, width)
        return cls(
            buckets=np.zeros(shape, np.int64),
            sums=np.zeros(places),
            below_zero=np.zeros(places),
            trace_ids=np.zeros(shape, f"S{TRACE_ID_CHARS}"),
            values=np.zeros(shape),
            unix_s=np.zeros(shape),
        )

    def clear(self, places: list[int]) -> None:
        """Set the counts of places back to 0."""
        for array in (self.buckets, self.sums, self.below_zero, self.trace_ids):
            array[places] = np.zeros((), array.dtype)

    def add(self, places: Array, found: Observed, trace_ids: Array, unix_s: float) -> None:
        """Add what was observed; its rows are those of `places`, and each exemplar has its trace id."""
        self.buckets[places] += found.counts
        self.sums[places] += found.sums
        self.below_zero[places] += found.below_zero
        named = trace_ids != b""
        row, column = np.divmod(found.hit[named], self.buckets.shape[1])
        self.trace_ids[places[row], column] = trace_ids[named]
        self.values[places[row], column] = found.values[named]
        self.unix_s[places[row], column] = unix_s

    def copy(self, places: Array, *, with_exemplars: bool) -> "Counts":
        """The counts of some places, which nothing changes any more."""
        nothing = np.zeros((0, 0))
        return Counts(
            buckets=self.buckets[places],
            sums=self.sums[places],
            below_zero=self.below_zero[places],
            trace_ids=self.trace_ids[places] if with_exemplars else nothing,
            values=self.values[places] if with_exemplars else nothing,
            unix_s=self.unix_s[places] if with_exemplars else nothing,
        )
