"""Prometheus metrics of turns that services report without a run of ours, beside those that callers heard.

Families of their own: what a service says of itself is never added to what somebody heard. The label `service_name` is
limited, `other` are those beyond; exemplars carry the turn's trace id (OpenMetrics only).
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from telemetry.model import semconv
from telemetry.model.metrics import METRICS, Metric
from telemetry.model.services import SERVICE_RUN_PREFIX, service_day
from telemetry.model.turns import Turn
from telemetry.objectives import series
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts.histograms import MetricHistograms, series_name
from telemetry.sidecar.counts.label_values import OTHER, LabelValues
from telemetry.sidecar.counts.text import Family, ShownFamilies, with_registry
from telemetry.store.schema import turns_table

SERVICES_MAX: Final = 16
LABEL: Final = series.SERVICE_LABEL
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


def service_series_name(metric: Metric) -> str:
    """The Prometheus name of a metric as a service reports it."""
    return series_name(metric).replace("voice_turn_", "voice_service_turn_")


_HISTOGRAMS: Final = {
    name: Family(
        service_series_name(metric), "histogram", f"{metric.definition} (as the service reports it).", (LABEL,)
    )
    for name, metric in METRICS.items()
    if metric.unit == "ns"
}
FAMILIES: Final = (_TURNS, _CACHE, _FALLBACKS, _REVISED, *_HISTOGRAMS.values(), _UNMAPPED)


class ServiceExposition:
    """Counts stored turns of services and renders their families; thread-safe, its memory is bounded."""

    def __init__(self, objectives: Sequence[Objective] = (), *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._registry = registry = CollectorRegistry()
        self._services = LabelValues(SERVICES_MAX, self._forget)
        self._histograms = MetricHistograms(registry, _HISTOGRAMS, objectives)
        self._counters = {family: family.counter(registry) for family in (_TURNS, _CACHE, _FALLBACKS, _REVISED)}
        self._is_empty = True

    def observe(self, turns: Sequence[Turn]) -> None:
        """Count the service's turns among those that were stored, each once."""
        with self._lock:
            measured: dict[tuple[str, ...], list[int]] = {}
            reported = [*self._reported(turns)]
            for place, (service, turn) in enumerate(reported):
                measured.setdefault((service,), []).append(place)
                self._add(_TURNS, service, turn.outcome, semconv.OUTCOMES)
                if turn.cache_hit is not None:
                    self._add(_CACHE, service, "true" if turn.cache_hit else "false", ("true", "false"))
                if turn.fallback:
                    self._add(_FALLBACKS, service, turn.fallback, semconv.FALLBACKS)
            if measured:
                self._histograms.observe(measured, turns_table([turn for _, turn in reported]))

    def observe_revised(self, turns: Sequence[Turn]) -> None:
        """Count turns that took the place of others which were counted before."""
        with self._lock:
            for service, turn in self._reported(turns):
                self._add(_REVISED, service, turn.outcome, semconv.OUTCOMES)

    def add_to(self, page: bytes, unmapped: Mapping[str, int]) -> bytes:
        """A page of `/metrics` with the families of services behind its own. `unmapped` counts spans that no adapter
        knows by "scope/span name"; without these and any service the page stays as it is."""
        if self._is_empty and not unmapped:
            return page
        shown = CollectorRegistry()
        shown.register(ShownFamilies(lambda: self._families(unmapped)))  # type: ignore[arg-type] - all that is asked of one
        return with_registry(page, shown)

    def _families(self, unmapped: Mapping[str, int]) -> Iterator[Any]:
        if not self._is_empty:
            # A latency that no service states has no family.
            yield from (each for each in self._registry.collect() if each.samples or each.type != "histogram")
        if unmapped:
            yield _UNMAPPED.of(_few(unmapped))

    def _reported(self, turns: Sequence[Turn]) -> Iterator[tuple[str, Turn]]:
        """The turns that services report without a run of callers, with the service to show."""
        now_s = self._clock_s()
        for turn in turns:
            if turn.source == "service" and turn.run_id.startswith(SERVICE_RUN_PREFIX):
                self._is_empty = False
                day = service_day(turn.run_id)
                yield self._services.shown("" if day is None else day.service, now_s), turn

    def _add(self, family: Family, service: str, value: str, known: Sequence[str]) -> None:
        self._counters[family].labels(service, value if value in known else OTHER).inc()

    def _forget(self, service: str) -> None:
        self._histograms.forget(**{LABEL: service})
        for counter in self._counters.values():
            counter.remove_by_labels({LABEL: service})


def _few(unmapped: Mapping[str, int]) -> list[tuple[tuple[str], int]]:
    """The names that came first, so that no count ever falls; the others are counted together."""
    names = list(unmapped.items())
    rest = sum(count for _, count in names[_UNMAPPED_MAX:])
    return [((name,), count) for name, count in [*names[:_UNMAPPED_MAX], *([(OTHER, rest)] if rest else [])]]
