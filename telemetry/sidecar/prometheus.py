"""Prometheus metrics of the turns that were stored, and of the telemetry itself.

Classic histograms whose buckets include every objective's threshold, so that good turns can be counted from them;
percentiles for a decision come from the store. Labels are dimensions with few values, capped in number; never a call,
a user or an utterance. Exemplars carry the turn's trace id (OpenMetrics only).
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from telemetry.model.metrics import METRICS, Metric, is_withheld
from telemetry.model.turns import Turn
from telemetry.objectives.openslo import Objective
from telemetry.sidecar.otlp.ingest import IngestState

LABELS: Final = ("cohort", "route", "tier", "model")
OTHER: Final = "other"
_SERIES_MAX: Final = 64
_REASONS_MAX: Final = 32
_PROCESSES_MAX: Final = 10_000
_NS_PER_S: Final = 1e9
_SECONDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3),
    *(0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
)
_RATIOS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0, 10.0)
_COUNTS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)
_RATES: Final = (5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 500.0, 1000.0)


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
# When a series began is not needed here and would add a series to each.
disable_created_metrics()


class StateSource(Protocol):
    """What counts the telemetry that came in."""

    @property
    def state(self) -> IngestState:
        """The counts so far."""
        ...


def series_name(metric: Metric) -> str:
    """The Prometheus name of a metric: the base unit is in it."""
    name = metric.name.replace("_per_s", "_per_second")
    if name.endswith("_count"):
        name = name.removesuffix("_count") + "s"  # `_count` is a histogram's own suffix
    return f"voice_turn_{name}{_SCALES[metric.unit].suffix}"


class Cap:
    """The first `limit` values stay distinct, later ones are `other`: what is sent must not grow the series."""

    def __init__(self, limit: int, width: int) -> None:
        self._limit = limit
        self._other = (OTHER,) * width
        self._known: set[tuple[str, ...]] = set()

    def __call__(self, *values: str) -> tuple[str, ...]:
        """The label values to use."""
        if values not in self._known:
            if len(self._known) >= self._limit:
                return self._other
            self._known.add(values)
        return values


class Exposition:
    """Counts stored turns and renders `/metrics`; thread-safe."""

    def __init__(self, objectives: Sequence[Objective] = ()) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._series = Cap(_SERIES_MAX, len(LABELS))
        self._reasons = Cap(_REASONS_MAX, 1)
        self._lock = threading.Lock()
        self._numbers: dict[str, tuple[int, int, int]] = {}
        self._histograms = {
            metric.name: Histogram(
                series_name(metric),
                f"{metric.definition} (client-heard, valid turns)",
                LABELS,
                buckets=_buckets(metric, objectives),
                registry=self.registry,
            )
            for metric in METRICS.values()
        }
        self._turns = Counter(
            "voice_turns", "Turns as the caller heard them, by outcome.", (*LABELS, "outcome"), registry=self.registry
        )
        self._invalid = Counter(
            "voice_turns_invalid",
            "Turns on which the instrument was not to be trusted, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self._cache = Counter(
            "voice_cache_lookups",
            "Valid turns whose endpoint said whether a cache answered.",
            (*LABELS, "hit"),
            registry=self.registry,
        )
        self._fallbacks = Counter(
            "voice_fallbacks", "Valid turns answered by a fallback, by kind.", (*LABELS, "kind"), registry=self.registry
        )

    def watch(self, source: StateSource) -> None:
        """Show the receiver's counts too."""
        self.registry.register(_TelemetryCollector(source, self))

    def observe(self, turns: Iterable[Turn]) -> None:
        """Count turns that were stored, each once."""
        with self._lock:
            for turn in turns:
                self._number(turn)
                if turn.source == "client":
                    self._observe_client(turn)

    @property
    def missing_turns(self) -> int:
        """Holes in the sequence numbers of the processes heard from since the start."""
        return sum(most - least + 1 - seen for least, most, seen in self._numbers.values())

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and content type for an Accept header."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _number(self, turn: Turn) -> None:
        if turn.sequence is None or not turn.process_id:
            return
        if turn.process_id not in self._numbers and len(self._numbers) >= _PROCESSES_MAX:
            return
        least, most, seen = self._numbers.get(turn.process_id, (turn.sequence, turn.sequence, 0))
        self._numbers[turn.process_id] = (min(least, turn.sequence), max(most, turn.sequence), seen + 1)

    def _observe_client(self, turn: Turn) -> None:
        if turn.turn_kind == "silence":
            return  # it asked nothing, and is no part of the service's figures
        labels = self._series(turn.cohort or "", turn.route or "", turn.cache_tier or "", turn.model or "")
        self._turns.labels(*labels, turn.outcome).inc()
        if turn.outcome == "invalid":
            for reason in turn.invalid_reasons or ("unknown",):
                self._invalid.labels(*self._reasons(reason)).inc()
            return
        if turn.cache_hit is not None:
            self._cache.labels(*labels, "true" if turn.cache_hit else "false").inc()
        if turn.fallback is not None:
            self._fallbacks.labels(*labels, turn.fallback).inc()
        exemplar = {"trace_id": turn.trace_id} if turn.trace_id else None
        for metric in METRICS.values():
            value = None if is_withheld(turn, metric.name) else metric.value(turn)
            if value is not None:
                scaled = value / _SCALES[metric.unit].divisor
                self._histograms[metric.name].labels(*labels).observe(scaled, exemplar)


class _TelemetryCollector(Collector):
    """The receiver's counts, read when they are asked for."""

    def __init__(self, source: StateSource, exposition: Exposition) -> None:
        self._source = source
        self._exposition = exposition

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        state = self._source.state
        for name, text, value in (
            ("received_items", "Spans and metric points that arrived.", state.received),
            ("rejected_items", "Spans and metric points that were refused.", state.rejected),
            ("duplicate_items", "Rows that had been stored already (retries).", state.duplicates),
            ("bad_requests", "Requests that could not be read.", state.bad_requests),
            ("refused_requests", "Requests told to come back: overload or a full disk.", state.refused_requests),
            ("unmapped_spans", "Spans with names that are not ours, kept raw.", state.unmapped_spans.total()),
        ):
            yield CounterMetricFamily(f"voice_telemetry_{name}", text, value=value)
        stored = CounterMetricFamily("voice_telemetry_stored_rows", "Rows made durable.", labels=("table",))
        stored.add_metric(("turns",), state.stored_turns)
        stored.add_metric(("spans",), state.stored_spans)
        stored.add_metric(("points",), state.stored_points)
        yield stored
        yield GaugeMetricFamily(
            "voice_telemetry_missing_turns",
            "Holes in the sequence numbers of the processes heard from: turns lost on the way.",
            value=self._exposition.missing_turns,
        )

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        return self.collect()


def _buckets(metric: Metric, objectives: Sequence[Objective]) -> tuple[float, ...]:
    scale = _SCALES[metric.unit]
    thresholds = {
        objective.threshold / scale.divisor
        for objective in objectives
        if objective.metric == metric.name and objective.threshold is not None
    }
    return tuple(sorted({*scale.buckets, *thresholds}))
