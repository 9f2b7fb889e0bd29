"""Every metric family of turns and of their telemetry: its name, type, meaning and labels.

A latency can be negative (the agent talks over the caller), but a falling sum is a counter reset for Prometheus. So a
value below zero is counted in the lowest bucket and adds 0 to the sum; the time below zero is added up separately.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from telemetry.model.metrics import METRICS, Metric
from telemetry.objectives import series
from telemetry.sidecar.counts.label_values import LABELS

disable_created_metrics()

_METRICS: Final[dict[str, Callable[..., Any]]] = {"counter": Counter, "gauge": Gauge}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family: its name without `_total`, its type, its meaning and the names of its labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name of its series, or their common prefix."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def metric(self, registry: CollectorRegistry) -> Any:
        """Create a prometheus_client metric that counts for this family of counters or gauges."""
        return _METRICS[self.kind](self.name, self.text, self.labels, registry=registry)

    def of(self, values: Iterable[tuple[Sequence[str], float]]) -> CounterMetricFamily | GaugeMetricFamily:
        """The family with values that are kept elsewhere."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(self.name, self.text, labels=self.labels)
        for labels, value in values:
            family.add_metric(labels, value)
        return family


@dataclass(frozen=True, slots=True)
class ShownFamilies:
    """A collector of prometheus_client that exposes the families that `collect` returns."""

    collect: Callable[[], Iterable[Any]]


class Scale(NamedTuple):
    """The unit in which a metric is exposed: the suffix of its name, the divisor of its values, and its buckets."""

    suffix: str
    divisor: float
    buckets: tuple[float, ...]


# 0 is a bucket of its own, so that negative latencies do not look like short ones.
_SECONDS: Final = (
    *(0.0, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3),
    *(0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
)
SCALES: Final[dict[str, Scale]] = {
    "ns": Scale("_seconds", 1e9, _SECONDS),
    "ratio": Scale("_ratio", 1.0, (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0, 10.0)),
    "count": Scale("", 1.0, (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)),
    "per_s": Scale("", 1.0, (5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 500.0, 1000.0)),
}


def series_name(metric: Metric) -> str:
    """The Prometheus name of a metric, which includes the base unit."""
    name = metric.name.replace("_per_s", "_per_second")
    if name.endswith("_count"):
        name = name.removesuffix("_count") + "s"  # `_count` is a histogram's own suffix
    return f"voice_turn_{name}{SCALES[metric.unit].suffix}"


class TurnFamilies(NamedTuple):
    """The families of turns with the same labels; `histograms` by the names of their metrics."""

    turns: Family
    cache: Family
    fallbacks: Family
    histograms: Mapping[str, Family]


# What callers heard.
HEARD: Final = TurnFamilies(
    Family("voice_turns", "counter", "Turns as the caller heard them, by outcome.", (*LABELS, "outcome")),
    Family(
        "voice_cache_lookups", "counter", "Valid turns whose endpoint said whether a cache answered.", (*LABELS, "hit")
    ),
    Family("voice_fallbacks", "counter", "Valid turns answered by a fallback, by kind.", (*LABELS, "kind")),
    {
        name: Family(
            series_name(metric),
            "histogram",
            f"{metric.definition} (client-heard, valid turns). A value below zero is in the lowest bucket and adds 0 "
            "to _sum.",
            LABELS,
        )
        for name, metric in METRICS.items()
    },
)
INVALID: Final = Family(
    "voice_turns_invalid", "counter", "Invalid turns, by reason; a turn may have several.", ("reason",)
)
NOT_RECORDED: Final = Family(
    "voice_turns_not_as_recorded",
    "counter",
    "Invalid turns that were not said as recorded (late frames, drift); the others are faults of the load generator.",
)
CONTRADICTED: Final = Family(
    "voice_contradicted_values",
    "counter",
    "Values that contradict their turn's own timestamps or spans, and are withheld, by who reported them and by cause.",
    ("source", "cause"),
)
BELOW_ZERO: Final = Family(
    "voice_turn_below_zero_seconds",
    "counter",
    "Time below zero of negative latencies (the agent spoke first), by metric: the sum of the metric's values is its "
    "histogram's _sum minus this.",
    (*LABELS, "metric"),
)
MISSING: Final = Family(
    "voice_telemetry_missing_turns",
    "gauge",
    "Holes in the sequence numbers of the processes heard from: turns lost on the way.",
)
IMPLAUSIBLE: Final = Family(
    "voice_telemetry_implausible_sequence_numbers",
    "counter",
    "Turns whose sequence number is too far from the others of its process to be believed; no hole was counted.",
)

# Figures reported by services are never added to those that callers measured.
_SERVICE: Final = (series.SERVICE_LABEL,)
REPORTED: Final = TurnFamilies(
    Family(
        series.SERVICE_TURNS,
        "counter",
        "Turns that a service reported without a run of callers.",
        (*_SERVICE, "outcome"),
    ),
    Family(
        "voice_service_cache_lookups",
        "counter",
        "Reported turns that say whether a cache answered.",
        (*_SERVICE, "hit"),
    ),
    Family(
        "voice_service_fallbacks", "counter", "Reported turns answered by a fallback, by kind.", (*_SERVICE, "kind")
    ),
    {
        name: Family(
            series_name(metric).replace("voice_turn_", "voice_service_turn_"),
            "histogram",
            f"{metric.definition} (as the service reports it).",
            _SERVICE,
        )
        for name, metric in METRICS.items()
        if metric.unit == "ns"
    },
)
REVISED: Final = Family(
    "voice_service_turns_revised",
    "counter",
    "Turns of a service that are others since they were counted, as some of their spans came late, by the outcome that "
    "they have now. No other count is corrected: the store and its reports have the turn as it is now.",
    (*_SERVICE, "outcome"),
)
UNMAPPED: Final = Family(
    "voice_service_unmapped_spans", "counter", 'Spans that no adapter knows, kept raw, by "scope/span name".', ("span",)
)

# By the name of the count in `IngestState`.
INGESTED: Final[dict[str, Family]] = {
    count: Family(f"voice_telemetry_{name or count}", "counter", text)
    for count, name, text in (
        ("received", "received_items", "Spans and metric points that arrived."),
        ("rejected", "rejected_items", "Spans and metric points that were refused."),
        (
            "changed",
            "changed_items",
            "Items kept without an attribute nested too deeply, or with bytes of a text replaced.",
        ),
        ("duplicates", "duplicate_items", "Rows that had been stored already (retries)."),
        ("bad_requests", "", "Requests that could not be read."),
        ("refused_requests", "", "Requests refused with an advice to retry: overload or a full disk."),
        ("unmapped_spans", "", "Spans with names that are not ours, kept raw."),
        ("framework_spans_given_up", "", "Spans of frameworks dropped before they became a turn: too many were open."),
        ("framework_spans_left_over", "", "Spans of stages whose turn never came."),
        ("framework_spans_late", "", "Spans of stages that came after their turn was first given."),
        ("revised_turns", "", "Turns of services that are others because of late spans."),
        ("unstorable_turns", "", "Turns of services with times beyond what can be stored."),
    )
}
STORED: Final = Family("voice_telemetry_stored_rows", "counter", "Rows made durable.", ("table",))

ELIGIBLE: Final = Family(
    series.ELIGIBLE,
    "counter",
    "Turns that count for an objective (calls, if it is about connecting), by who reported them.",
    series.LABELS,
)
GOOD: Final = Family(
    series.GOOD, "counter", "Of the eligible turns of an objective, those that are good.", series.LABELS
)
BAD: Final = Family(
    series.BAD_TURNS, "counter", "Of the eligible turns of an objective, those that are known to be bad.", series.LABELS
)
OPEN: Final = Family(
    series.OPEN_TURNS,
    "counter",
    "Of the eligible turns of an objective, those that nobody can call good or bad: not said as recorded, cut, "
    "interrupted by the caller, without a stated or plausible value, or with a threshold between the bounds of it.",
    series.LABELS,
)
TARGET: Final = Family(
    series.TARGET, "gauge", "The share of good turns that an objective promises.", series.TARGET_LABELS
)

# Those that every page has.
FAMILIES: Final = (
    *HEARD.histograms.values(),
    *(BELOW_ZERO, HEARD.turns, HEARD.cache, HEARD.fallbacks, INVALID, NOT_RECORDED, CONTRADICTED),
    *(ELIGIBLE, GOOD, BAD, OPEN, TARGET),
    *INGESTED.values(),
    *(STORED, MISSING, IMPLAUSIBLE),
)
# Those that a page has once a service has reported something.
SERVICE_FAMILIES: Final = (
    *(REPORTED.turns, REPORTED.cache, REPORTED.fallbacks, REVISED),
    *REPORTED.histograms.values(),
    UNMAPPED,
)
