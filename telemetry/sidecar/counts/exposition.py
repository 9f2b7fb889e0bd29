"""The counts of stored turns for `/metrics`: what callers heard, what services report, and the telemetry itself.

Classic histograms whose buckets include every objective's threshold, so that good turns can be counted from them;
percentiles for a decision come from the store. Labels are dimensions with few values, each limited separately (see
`telemetry.sidecar.counts.label_values`); never a call, a user or an utterance. Exemplars carry the turn's trace id
(OpenMetrics only).
"""

import itertools
import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from telemetry.model import semconv
from telemetry.model.generator_health import is_not_as_recorded
from telemetry.model.metrics import METRICS, Metric, is_withheld
from telemetry.model.services import SERVICE_RUN_PREFIX, service_day
from telemetry.model.turns import Turn
from telemetry.objectives import series
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts import families
from telemetry.sidecar.counts.families import SCALES, Family, ShownFamilies, TurnFamilies
from telemetry.sidecar.counts.label_values import OTHER, Combinations, LabelValues
from telemetry.sidecar.counts.objectives import SERVICES_MAX, ObjectiveTurns
from telemetry.sidecar.counts.sequence_numbers import SequenceNumbers
from telemetry.sidecar.counts.state import IngestState

_REASONS_MAX: Final = 32
_UNMAPPED_MAX: Final = 32
_SOURCES: Final[tuple[semconv.Source, ...]] = ("client", "service")
_UNKNOWN: Final = "unknown"
_TRACE_ID_CHARS: Final = 32


class _Histogram:
    """The values of one metric of turns with the same labels, by bucket, each with the last exemplar.

    prometheus_client's own takes ten times as long to count a value.
    """

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._exemplars: list[Exemplar | None] = [None] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, trace_id: dict[str, str] | None, unix_s: float) -> None:
        """Count a value."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._sum += value
        if trace_id is not None:
            self._exemplars[bucket] = Exemplar(trace_id, value, unix_s)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add the buckets to a family."""
        names = [floatToGoString(bound) for bound in (*self._bounds, math.inf)]
        totals = itertools.accumulate([*self._counts])
        family.add_metric(labels, [*zip(names, totals, self._exemplars, strict=True)], self._sum)  # type: ignore[arg-type]


class _TurnSeries:
    """The series of turns with the same labels, and of their metrics. `below_zero` counts the time below zero."""

    def __init__(
        self,
        registry: CollectorRegistry,
        shown: TurnFamilies,
        objectives: Sequence[Objective],
        below_zero: Family | None = None,
    ) -> None:
        self._shown = shown
        self._metrics: list[tuple[Metric, Sequence[float], dict[tuple[str, ...], _Histogram]]] = [
            (METRICS[name], _buckets(name, objectives), {}) for name in shown.histograms
        ]
        registry.register(ShownFamilies(self._collect))  # type: ignore[arg-type] - it has all that is asked of a collector
        self._below_zero = None if below_zero is None else below_zero.metric(registry=registry)
        self._turns, self._cache, self._fallbacks = (
            family.metric(registry=registry) for family in (shown.turns, shown.cache, shown.fallbacks)
        )

    def count(self, labels: tuple[str, ...], turn: Turn) -> None:
        """Count a turn; for an invalid one only its outcome."""
        self._turns.labels(*labels, _known(turn.outcome, semconv.OUTCOMES)).inc()
        if turn.outcome == "invalid":
            return
        if turn.cache_hit is not None:
            self._cache.labels(*labels, "true" if turn.cache_hit else "false").inc()
        if turn.fallback:
            self._fallbacks.labels(*labels, _known(turn.fallback, semconv.FALLBACKS)).inc()
        trace_id = turn.trace_id
        is_id = len(trace_id) == _TRACE_ID_CHARS and trace_id.isascii() and trace_id.isalnum()
        exemplar, unix_s = {"trace_id": trace_id} if is_id else None, time.time_ns() / 1e9
        for metric, bounds, histograms in self._metrics:
            value = metric.value(turn)
            if value is None or is_withheld(turn, metric.name) or not math.isfinite(value):
                continue
            value /= SCALES[metric.unit].divisor
            if value < 0 and self._below_zero is not None and metric.unit == "ns":
                self._below_zero.labels(*labels, metric.name).inc(-value)
            if (histogram := histograms.get(labels)) is None:
                histogram = histograms[labels] = _Histogram(bounds)
            histogram.observe(max(0.0, value), exemplar, unix_s)

    def forget(self, labels: dict[str, str]) -> None:
        """Remove the series that have these values of labels."""
        for metric in (self._below_zero, self._turns, self._cache, self._fallbacks):
            if metric is not None:
                metric.remove_by_labels(labels)
        names = next(iter(self._shown.histograms.values())).labels
        for _, _, histograms in self._metrics:
            for known in [*histograms]:
                if labels.items() <= dict(zip(names, known, strict=True)).items():
                    del histograms[known]

    def _collect(self) -> Iterator[HistogramMetricFamily]:
        for metric, _, histograms in self._metrics:
            shown = self._shown.histograms[metric.name]
            family = HistogramMetricFamily(shown.name, shown.text, labels=shown.labels)
            for labels, histogram in [*histograms.items()]:
                histogram.add_to(family, labels)
            yield family


class Exposition:
    """Counts stored turns and renders `/metrics`; thread-safe. Its memory and its number of series are bounded.

    `state` holds the counts of the receivers; the families that `shown` returns are appended.
    """

    def __init__(
        self,
        objectives: Sequence[Objective] = (),
        *,
        state: IngestState | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        shown: Sequence[Callable[[], Iterable[Any]]] = (),
    ) -> None:
        self._clock_s = clock_s
        self._state = state
        self._lock = threading.Lock()
        self._registry = registry = CollectorRegistry()
        self._heard = _TurnSeries(registry, families.HEARD, objectives, families.BELOW_ZERO)
        self._invalid = families.INVALID.metric(registry=registry)
        self._not_recorded = families.NOT_RECORDED.metric(registry=registry)
        self._contradicted = families.CONTRADICTED.metric(registry=registry)
        for source in _SOURCES:
            for cause in semconv.CONTRADICTIONS:
                self._contradicted.labels(source, cause)
        self._missing = families.MISSING.metric(registry=registry)
        self._implausible = families.IMPLAUSIBLE.metric(registry=registry)
        self._combinations = Combinations(self._heard.forget)
        self._reasons = LabelValues(_REASONS_MAX, self._invalid.remove)
        self._numbers = SequenceNumbers()
        self._objectives = ObjectiveTurns(objectives)
        self._service_registry = CollectorRegistry()
        self._reported = _TurnSeries(self._service_registry, families.REPORTED, objectives)
        self._revised = families.REVISED.metric(registry=self._service_registry)
        self._services = LabelValues(SERVICES_MAX, self._forget_service)
        self._has_services = False
        for collect in (self._counted, *shown):
            registry.register(ShownFamilies(collect))  # type: ignore[arg-type] - it has all that is asked of a collector

    def observe(self, turns: Sequence[Turn]) -> None:
        """Count turns that were stored, each once."""
        now_s = self._clock_s()
        with self._lock:
            self._count_numbers(turns)
            for turn in turns:
                self._objectives.count(turn, now_s)
                for cause in turn.contradicted_causes:
                    self._contradicted.labels(turn.source, _known(cause, semconv.CONTRADICTIONS)).inc()
                if (service := self._service(turn, now_s)) is not None:
                    self._reported.count((service,), turn)
                # A silent turn has no question and is not counted.
                elif turn.source == "client" and turn.turn_kind != "silence":
                    self._count_heard(turn, now_s)

    def observe_revised(self, turns: Sequence[Turn]) -> None:
        """Count turns of services that replaced others which were counted before."""
        with self._lock:
            for turn in turns:
                if (service := self._service(turn, self._clock_s())) is not None:
                    self._revised.labels(service, _known(turn.outcome, semconv.OUTCOMES)).inc()

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and content type for an Accept header."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def _count_heard(self, turn: Turn, now_s: float) -> None:
        labels = self._combinations.shown(turn.cohort, turn.route, turn.cache_tier, turn.model, now_s)
        self._heard.count(labels, turn)
        if turn.outcome == "invalid":
            for reason in turn.invalid_reasons or (_UNKNOWN,):
                self._invalid.labels(self._reasons.shown(reason, now_s) or _UNKNOWN).inc()
            if is_not_as_recorded(turn.invalid_reasons):
                self._not_recorded.inc()

    def _service(self, turn: Turn, now_s: float) -> str | None:
        """The service label of a turn that a service reported outside a run of callers; None for any other turn."""
        if turn.source != "service" or not turn.run_id.startswith(SERVICE_RUN_PREFIX):
            return None
        self._has_services = True
        day = service_day(turn.run_id)
        return self._services.shown("" if day is None else day.service, now_s)

    def _count_numbers(self, turns: Sequence[Turn]) -> None:
        before = self._numbers.implausible
        self._numbers.observe((turn.process_id, turn.sequence) for turn in turns if turn.sequence is not None)
        self._missing.set(self._numbers.missing)
        self._implausible.inc(self._numbers.implausible - before)

    def _forget_service(self, service: str) -> None:
        labels = {series.SERVICE_LABEL: service}
        self._reported.forget(labels)
        self._revised.remove_by_labels(labels)

    def _counted(self) -> Iterator[Any]:
        with self._lock:
            objective_families = list(self._objectives.collect())
        yield from objective_families
        if self._has_services:
            # A latency that no service reports has no family.
            yield from (
                family for family in self._service_registry.collect() if family.samples or family.type != "histogram"
            )
        if self._state is not None:
            yield from _ingested(self._state.as_dict())


def _ingested(counts: Mapping[str, Any]) -> Iterator[Any]:
    unmapped: dict[str, int] = counts["unmapped_spans"]
    for name, family in families.INGESTED.items():
        yield family.of([((), sum(unmapped.values()) if name == "unmapped_spans" else counts[name])])
    yield families.STORED.of(((table,), counts[f"stored_{table}"]) for table in ("turns", "spans", "points"))
    if unmapped:
        # The first names keep their own series, so that no count ever falls; the others are counted together.
        names = [*unmapped.items()]
        if rest := sum(count for _, count in names[_UNMAPPED_MAX:]):
            names[_UNMAPPED_MAX:] = [(OTHER, rest)]
        yield families.UNMAPPED.of(((name,), count) for name, count in names)


def _buckets(name: str, objectives: Sequence[Objective]) -> list[float]:
    """The buckets of a metric: those of its unit, and the threshold of each of its objectives."""
    scale = SCALES[METRICS[name].unit]
    thresholds = [
        objective.threshold for objective in objectives if objective.metric == name and objective.threshold is not None
    ]
    return sorted({*scale.buckets, *(threshold / scale.divisor for threshold in thresholds)})


def _known(value: str, known: Sequence[str]) -> str:
    return value if value in known else OTHER
