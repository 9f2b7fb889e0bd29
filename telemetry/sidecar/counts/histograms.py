"""Classic histograms of the metrics of a turn.

A latency can be negative (the agent talks over the caller), but a sum that falls is a counter reset for Prometheus. So
a value below zero is counted in the lowest bucket and adds 0 to the sum; the time below zero is added up apart.
"""

# ruff: noqa: SLF001 - a histogram of prometheus_client has no public way to add several values at once

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Exemplar

from telemetry.model.metrics import METRICS, Metric
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts.text import Family
from telemetry.store.schema import TURN_FIELDS, ArrowTable

# 0 is a bucket of its own, so that negative latencies do not look like short ones.
_SECONDS: Final = (
    *(0.0, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3),
    *(0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
)
_RATIOS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0, 10.0)
_COUNTS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)
_RATES: Final = (5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 500.0, 1000.0)
_TRACE_ID_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class _Scale:
    suffix: str
    divisor: float
    buckets: tuple[float, ...]


_SCALES: Final[dict[str, _Scale]] = {
    "ns": _Scale("_seconds", 1e9, _SECONDS),
    "ratio": _Scale("_ratio", 1.0, _RATIOS),
    "count": _Scale("", 1.0, _COUNTS),
    "per_s": _Scale("", 1.0, _RATES),
}
_Observed = tuple[float, str | None]  # a value in the unit that is shown, and the trace id of its turn


def series_name(metric: Metric) -> str:
    """The Prometheus name of a metric: the base unit is in it."""
    name = metric.name.replace("_per_s", "_per_second")
    if name.endswith("_count"):
        name = name.removesuffix("_count") + "s"  # `_count` is a histogram's own suffix
    return f"voice_turn_{name}{_SCALES[metric.unit].suffix}"


def _buckets(metric: Metric, objectives: Sequence[Objective]) -> list[float]:
    """The buckets of a metric: those of its unit, and the threshold of each of its objectives."""
    scale = _SCALES[metric.unit]
    own = [each.threshold for each in objectives if each.metric == metric.name and each.threshold is not None]
    return sorted({*scale.buckets, *(threshold / scale.divisor for threshold in own)})


def _shown_trace_id(text: str) -> str | None:
    """Return what an exemplar says of a turn; None for what is not a trace id."""
    return text if len(text) == _TRACE_ID_CHARS and text.isascii() and text.isalnum() else None


class MetricHistograms:
    """A histogram of each of some metrics, with the same labels, shown with a registry."""

    def __init__(
        self,
        registry: CollectorRegistry,
        families: dict[str, Family],
        objectives: Sequence[Objective],
        below_zero: Callable[[tuple[str, ...], str, float], None] = lambda _labels, _metric, _time: None,
    ) -> None:
        self._below_zero = below_zero
        self.all = {
            name: family.histogram(registry, _buckets(METRICS[name], objectives)) for name, family in families.items()
        }
        self._measured = [(name, METRICS[name].column, _SCALES[METRICS[name].unit].divisor) for name in families]
        # Those that have a value, which prometheus_client takes long to find.
        self._children: dict[tuple[tuple[str, ...], str], Any] = {}

    def observe(self, places: Mapping[tuple[str, ...], Sequence[int]], turns: ArrowTable) -> None:
        """Count the metrics that were measured on turns, rows of the store at these places by the labels to show."""
        trace_ids = [*map(_shown_trace_id, turns.column("trace_id").to_pylist())]
        for name, column, divisor in self._measured:
            if turns.column(column).null_count == turns.num_rows:
                continue
            values = turns.column(column).to_pylist()
            withheld = self._withheld(name, turns)
            for labels, of_labels in places.items():
                observed = [
                    (values[place] / divisor, trace_ids[place])
                    for place in of_labels
                    if values[place] is not None and math.isfinite(values[place]) and place not in withheld
                ]
                if observed:
                    self._add(labels, name, observed)

    def _withheld(self, name: str, turns: ArrowTable) -> Collection[int]:
        """The places of turns whose wire cannot show a metric that is a field of the turn: a computed one is null."""
        if METRICS[name].column not in TURN_FIELDS:
            return ()
        withheld = turns.column("withheld_metrics").to_pylist()
        return {place for place, names in enumerate(withheld) if name in names}

    def _add(self, labels: tuple[str, ...], name: str, observed: Sequence[_Observed]) -> None:
        child = self._children.get((labels, name))
        if child is None:
            child = self._children[labels, name] = self.all[name].labels(*labels)
        if (below := sum(min(0.0, value) for value, _ in observed)) < 0:
            self._below_zero(labels, name, -below)
        _add(child, [(max(0.0, value), trace_id) for value, trace_id in observed])

    def forget(self, **labels: str) -> None:
        """End the series that have these values of labels."""
        for histogram in self.all.values():
            histogram.remove_by_labels(labels)
        self._children.clear()


def _add(histogram: Any, observed: Iterable[_Observed]) -> None:
    """Count values as `observe` of prometheus_client does one by one, which takes a lock and a check for each."""
    total, bounds, buckets = histogram._sum.get(), histogram._upper_bounds, histogram._buckets
    last: dict[int, tuple[float, str]] = {}
    for value, trace_id in observed:
        total += value
        place = bisect_left(bounds, value)
        buckets[place].inc(1)
        if trace_id is not None:
            last[place] = value, trace_id
    histogram._sum.set(total)
    for place, (value, trace_id) in last.items():
        buckets[place].set_exemplar(Exemplar({"trace_id": trace_id}, value, time.time_ns() / 1e9))
