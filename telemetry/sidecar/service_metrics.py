"""Prometheus metrics of turns that services report without a run of ours, beside those that callers heard.

Families of their own: what a service says of itself is never added to what somebody heard. The label `service_name` is
limited, `other` are those beyond; exemplars carry the turn's trace id (OpenMetrics only).
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from telemetry.model import semconv
from telemetry.model.metrics import METRICS, Metric
from telemetry.model.service_runs import SERVICE_RUN_PREFIX, service_day
from telemetry.objectives import series
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts import turn_columns
from telemetry.sidecar.counts.histograms import Array, Buckets, Counts, observed, series_name
from telemetry.sidecar.counts.label_values import OTHER, LabelValues
from telemetry.sidecar.counts.text import Family, histogram_lines, label_text, with_families
from telemetry.store.schema import ArrowTable

compute: Any = turn_columns.compute  # pyarrow ships no types of its own

SERVICES_MAX: Final = 16
LABEL: Final = series.SERVICE_LABEL
# Known beforehand: a place for each of them, for the others, and for a service without a name.
_PLACES: Final = SERVICES_MAX + 2
_TURNS: Final = Family(
    series.SERVICE_TURNS, "counter", "Turns that a service reported without a run of callers.", (LABEL, "outcome")
)
_CACHE: Final = Family(
    "voice_service_cache_lookups", "counter", "Reported turns that say whether a cache answered.", (LABEL, "hit")
)
_FALLBACKS: Final = Family(
    "voice_service_fallbacks", "counter", "Reported turns answered by a fallback, by kind.", (LABEL, "kind")
)
_REVISED: Final = Family(
    "voice_service_turns_revised",
    "counter",
    "Turns of a service that are others since they were counted, as some of their spans came late, by the outcome that "
    "they have now. No other count is corrected: the store and its reports have the turn as it is now.",
    (LABEL, "outcome"),
)
_UNMAPPED: Final = Family(
    "voice_service_unmapped_spans", "counter", 'Spans that no adapter knows, kept raw, by "scope/span name".', ("span",)
)
_UNMAPPED_MAX: Final = 32
_COLUMNS: Final[dict[Family, tuple[str, tuple[str, ...]]]] = {
    _TURNS: ("outcome", (*semconv.OUTCOMES, OTHER)),
    _CACHE: ("cache_hit", ("false", "true")),
    _FALLBACKS: ("fallback", (*semconv.FALLBACKS, OTHER)),
}
_KNOWN: Final[dict[Family, tuple[str, ...]]] = {
    **{family: known for family, (_, known) in _COLUMNS.items()},
    _REVISED: (*semconv.OUTCOMES, OTHER),
}
_LATENCIES: Final = {name: metric for name, metric in METRICS.items() if metric.unit == "ns"}


class ServiceExposition:
    """Counts stored turns of services and renders their families; thread-safe, its memory is bounded."""

    def __init__(
        self,
        objectives: Sequence[Objective] = (),
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock_s = clock_s
        self._wall_clock_ns = wall_clock_ns
        self._lock = threading.Lock()
        self._services = LabelValues(SERVICES_MAX)
        self._places: dict[str, int] = {}
        self._buckets = {name: Buckets(metric, objectives) for name, metric in _LATENCIES.items()}
        self._histograms = {name: Counts.of_nothing(_PLACES, len(each)) for name, each in self._buckets.items()}
        self._counts = {family: np.zeros((_PLACES, len(known)), np.int64) for family, known in _KNOWN.items()}

    def families(self) -> tuple[Family, ...]:
        """Every family that can be exposed, in the order of the text."""
        return (*_KNOWN, *_FAMILIES.values(), _UNMAPPED)

    def observe(self, turns: ArrowTable) -> None:
        """Count the service's turns of a table that were stored (columns of the store's `turns`), each once."""
        reported = _reported(turns)
        if not reported.num_rows:
            return
        with self._lock:
            rows = self._rows(reported)
            for family, (column, known) in _COLUMNS.items():
                self._count(family, reported, column, known, rows)
            for name, metric in _LATENCIES.items():
                places, values = turn_columns.values(reported, metric, None)
                if places.size:
                    found = observed(self._buckets[name], rows[places], places, values, _PLACES)
                    traces = turn_columns.trace_ids(reported, np.unique(found.turns))
                    exemplars = np.array([traces[turn] for turn in found.turns.tolist()], "S32")
                    self._histograms[name].add(np.arange(_PLACES), found, exemplars, self._wall_clock_ns() / 1e9)

    def observe_revised(self, turns: ArrowTable) -> None:
        """Count turns that took the place of others which were counted before."""
        reported = _reported(turns)
        if reported.num_rows:
            with self._lock:
                self._count(_REVISED, reported, "outcome", _KNOWN[_REVISED], self._rows(reported))

    def add_to(self, page: bytes, unmapped: Mapping[str, int]) -> bytes:
        """A page of `/metrics` with the families of services behind its own. `unmapped` counts spans that no adapter
        knows by "scope/span name"; without these and any service the page stays as it is."""

        def parts(openmetrics: bool) -> Iterator[str]:
            with self._lock:
                of_services = [*self._parts(openmetrics=openmetrics)] if self._places else []
            yield from of_services
            if unmapped:
                yield from _unmapped_parts(unmapped, openmetrics=openmetrics)

        return with_families(page, parts)

    def _rows(self, reported: ArrowTable) -> Array:
        """The place of the service of each turn."""
        run_ids, of_row = turn_columns.encoded(reported, "run_id")
        named = [service_day(run_id) for run_id in run_ids]
        names, given_up = self._services.take([each.service if each else "" for each in named], self._clock_s())
        for name in given_up:
            self._clear(self._places.pop(name))
        return np.array([self._place(name) for name in names], np.int64)[of_row]

    def _place(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = min(set(range(_PLACES)) - set(self._places.values()))
        return self._places[name]

    def _clear(self, place: int) -> None:
        for counts in self._counts.values():
            counts[place] = 0
        for histogram in self._histograms.values():
            histogram.clear([place])

    def _count(self, family: Family, turns: ArrowTable, column: str, known: Sequence[str], rows: Array) -> None:
        texts, of_turn = turn_columns.encoded(turns, column)
        place_of = {value: place for place, value in enumerate(known)}
        # Null is the text "", and not counted.
        places = np.array([place_of.get(text, len(known) - 1) if text else -1 for text in texts], np.int64)[of_turn]
        np.add.at(self._counts[family], (rows[places >= 0], places[places >= 0]), 1)

    def _parts(self, *, openmetrics: bool) -> Iterator[str]:
        places = np.array(list(self._places.values()), np.int64)
        labels = [label_text((LABEL,), (name,)) for name in self._places]
        for family, known in _KNOWN.items():
            yield family.head(openmetrics=openmetrics)
            for text, counts in zip(labels, self._counts[family][places].tolist(), strict=True):
                for value, count in zip(known, counts, strict=True):
                    if count:
                        yield family.sample(f'{text},{family.labels[-1]}="{value}"', count)
        for name in _LATENCIES:
            counts = self._histograms[name].copy(places, with_exemplars=openmetrics)
            if counts.buckets.any():
                yield _FAMILIES[name].head(openmetrics=openmetrics)
                yield from histogram_lines(_FAMILIES[name], self._buckets[name], labels, counts)


def _reported(turns: ArrowTable) -> ArrowTable:
    """The turns that services report without a run of callers."""
    is_service = compute.equal(turns.column("source"), "service")
    of_view = compute.starts_with(turns.column("run_id"), SERVICE_RUN_PREFIX)
    return turns.filter(compute.and_(is_service, of_view)).combine_chunks()


def _unmapped_parts(unmapped: Mapping[str, int], *, openmetrics: bool) -> Iterator[str]:
    """The names that came first, so that no count ever falls; the others are counted together."""
    names = list(unmapped.items())
    yield _UNMAPPED.head(openmetrics=openmetrics)
    for name, count in names[:_UNMAPPED_MAX]:
        yield _UNMAPPED.sample(label_text(_UNMAPPED.labels, (name,)), count)
    if rest := sum(count for _, count in names[_UNMAPPED_MAX:]):
        yield _UNMAPPED.sample(label_text(_UNMAPPED.labels, (OTHER,)), rest)


def service_series_name(metric: Metric) -> str:
    """The Prometheus name of a metric as a service reports it."""
    return series_name(metric).replace("voice_turn_", "voice_service_turn_")


_FAMILIES: Final = {
    name: Family(
        service_series_name(metric), "histogram", f"{metric.definition} (as the service reports it).", (LABEL,)
    )
    for name, metric in _LATENCIES.items()
}
