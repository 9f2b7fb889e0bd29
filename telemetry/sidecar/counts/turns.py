"""Prometheus metrics of the turns that were stored, and of the telemetry itself.

Classic histograms whose buckets include every objective's threshold, so that good turns can be counted from them;
percentiles for a decision come from the store. Labels are dimensions with few values, each limited by itself (see
`telemetry.sidecar.counts.label_values`); never a call, a user or an utterance. Exemplars carry the turn's trace id
(OpenMetrics only).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from telemetry.model import semconv
from telemetry.model.generator_health import NOT_AS_RECORDED
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts import objectives as of_objectives
from telemetry.sidecar.counts.histograms import MetricHistograms, series_name
from telemetry.sidecar.counts.label_values import LABELS, OTHER, Combinations, LabelValues
from telemetry.sidecar.counts.sequence_numbers import SequenceNumbers
from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.counts.text import Family, ShownFamilies, page_of
from telemetry.store.schema import ArrowTable, turns_table

_REASONS_MAX: Final = 32
_SOURCES: Final[tuple[semconv.Source, ...]] = ("client", "service")
_UNKNOWN: Final = "unknown"

# Counts of turns by their labels and one more, whose values are known beforehand.
_TURNS: Final = Family("voice_turns", "counter", "Turns as the caller heard them, by outcome.", (*LABELS, "outcome"))
_CACHE: Final = Family(
    "voice_cache_lookups", "counter", "Valid turns whose endpoint said whether a cache answered.", (*LABELS, "hit")
)
_FALLBACKS: Final = Family(
    "voice_fallbacks", "counter", "Valid turns answered by a fallback, by kind.", (*LABELS, "kind")
)
_INVALID: Final = Family(
    "voice_turns_invalid", "counter", "Invalid turns, by reason; a turn may have several.", ("reason",)
)
_NOT_RECORDED: Final = Family(
    "voice_turns_not_as_recorded",
    "counter",
    "Invalid turns that were not said as recorded (late frames, drift); the others are faults of the load generator.",
)
_CONTRADICTED: Final = Family(
    "voice_contradicted_values",
    "counter",
    "Values that contradict their turn's own timestamps or spans, and are withheld, by who reported them and by cause.",
    ("source", "cause"),
)
_BELOW_ZERO: Final = Family(
    "voice_turn_below_zero_seconds",
    "counter",
    "Time below zero of negative latencies (the agent spoke first), by metric: the sum of the metric's values is its "
    "histogram's _sum minus this.",
    (*LABELS, "metric"),
)
_MISSING: Final = Family(
    "voice_telemetry_missing_turns",
    "gauge",
    "Holes in the sequence numbers of the processes heard from: turns lost on the way.",
)
_IMPLAUSIBLE: Final = Family(
    "voice_telemetry_implausible_sequence_numbers",
    "counter",
    "Turns whose sequence number is too far from the others of its process to be believed; no hole was counted.",
)
_STORED: Final = Family("voice_telemetry_stored_rows", "counter", "Rows made durable.", ("table",))
_RECEIVED: Final[dict[str, Family]] = {
    name: Family(f"voice_telemetry_{name}", "counter", text)
    for name, text in (
        ("received_items", "Spans and metric points that arrived."),
        ("rejected_items", "Spans and metric points that were refused."),
        (
            "changed_items",
            "Items kept without an attribute nested too deeply, or with bytes of a text replaced.",
        ),
        ("duplicate_items", "Rows that had been stored already (retries)."),
        ("bad_requests", "Requests that could not be read."),
        ("refused_requests", "Requests told to come back: overload or a full disk."),
        ("unmapped_spans", "Spans with names that are not ours, kept raw."),
        ("framework_spans_given_up", "Spans of frameworks dropped before they became a turn: too many were open."),
        ("framework_spans_left_over", "Spans of stages whose turn never came."),
        ("framework_spans_late", "Spans of stages that came after their turn was first given."),
        ("revised_turns", "Turns of services that are others because of late spans."),
        ("unstorable_turns", "Turns of services with times beyond what can be stored."),
    )
}

_HISTOGRAMS: Final = {
    name: Family(
        series_name(metric),
        "histogram",
        f"{metric.definition} (client-heard, valid turns). A value below zero is in the lowest bucket and adds 0 to "
        "_sum.",
        LABELS,
    )
    for name, metric in METRICS.items()
}
FAMILIES: Final = (
    *_HISTOGRAMS.values(),
    *(_BELOW_ZERO, _TURNS, _CACHE, _FALLBACKS, _INVALID, _NOT_RECORDED, _CONTRADICTED),
    *of_objectives.FAMILIES,
    *_RECEIVED.values(),
    *(_STORED, _MISSING, _IMPLAUSIBLE),
)
_NOT_AS_RECORDED: Final = frozenset(NOT_AS_RECORDED)

_Counted = Counter[tuple[Family, tuple[str, ...]]]


class Exposition:
    """Counts stored turns and renders `/metrics`; thread-safe. Its memory and its number of series are bounded."""

    def __init__(
        self,
        objectives: Sequence[Objective] = (),
        *,
        state: IngestState | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock_s = clock_s
        self._state = state
        self._lock = threading.Lock()
        self._registry = registry = CollectorRegistry()
        self._below_zero = _BELOW_ZERO.counter(registry)
        self._histograms = MetricHistograms(registry, _HISTOGRAMS, objectives, self._count_below_zero)
        self._of_labels = {family: family.counter(registry) for family in (_TURNS, _CACHE, _FALLBACKS)}
        self._invalid = _INVALID.counter(registry)
        self._not_recorded = _NOT_RECORDED.counter(registry)
        self._contradicted = _CONTRADICTED.counter(registry)
        self._counters = {**self._of_labels, _INVALID: self._invalid, _CONTRADICTED: self._contradicted}
        for source in _SOURCES:
            for cause in semconv.CONTRADICTIONS:
                self._contradicted.labels(source, cause)
        self._missing = _MISSING.gauge(registry)
        self._implausible = _IMPLAUSIBLE.counter(registry)
        self._combinations = Combinations(self._forget)
        self._reasons = LabelValues(_REASONS_MAX, self._invalid.remove)
        self._numbers = SequenceNumbers()
        self._objectives = of_objectives.ObjectiveTurns(objectives)
        registry.register(ShownFamilies(self._shown))  # type: ignore[arg-type] - it has all that is asked of a collector

    def observe(self, turns: Sequence[Turn], rows: ArrowTable = None) -> None:
        """Count turns that were stored, each once; `rows` are their rows where these are at hand."""
        now_s = self._clock_s()
        counted = _Counted()
        measured: dict[tuple[str, ...], list[int]] = {}
        with self._lock:
            self._count_numbers(turns)
            for place, turn in enumerate(turns):
                self._objectives.count(turn, now_s)
                for cause in turn.contradicted_causes:
                    counted[_CONTRADICTED, (turn.source, cause if cause in semconv.CONTRADICTIONS else OTHER)] += 1
                # A silent turn asks nothing, and is no part of the figures.
                if turn.source == "client" and turn.turn_kind != "silence":
                    labels = self._count(turn, counted, now_s)
                    if turn.outcome != "invalid":
                        measured.setdefault(labels, []).append(place)
            for (family, labels), count in counted.items():
                self._counters[family].labels(*labels).inc(count)
            if measured:
                self._histograms.observe(measured, turns_table(turns) if rows is None else rows)

    @property
    def missing_turns(self) -> int:
        """Holes in the sequence numbers of the processes heard from since the start."""
        return self._numbers.missing

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and content type for an Accept header."""
        return page_of(self._registry, accept)

    def _count(self, turn: Turn, counted: _Counted, now_s: float) -> tuple[str, ...]:
        """Count a turn that a client heard; the labels to show for it."""
        labels = self._combinations.shown(turn.cohort, turn.route, turn.cache_tier, turn.model, now_s)
        counted[_TURNS, (*labels, _known(turn.outcome, semconv.OUTCOMES))] += 1
        if turn.outcome == "invalid":
            for reason in turn.invalid_reasons or (_UNKNOWN,):
                counted[_INVALID, (self._reasons.shown(reason, now_s) or _UNKNOWN,)] += 1
            if not _NOT_AS_RECORDED.isdisjoint(turn.invalid_reasons):
                self._not_recorded.inc()
            return labels
        if turn.cache_hit is not None:
            counted[_CACHE, (*labels, "true" if turn.cache_hit else "false")] += 1
        if turn.fallback:
            counted[_FALLBACKS, (*labels, _known(turn.fallback, semconv.FALLBACKS))] += 1
        return labels

    def _count_below_zero(self, labels: tuple[str, ...], metric: str, time_s: float) -> None:
        if METRICS[metric].unit == "ns":
            self._below_zero.labels(*labels, metric).inc(time_s)

    def _count_numbers(self, turns: Sequence[Turn]) -> None:
        before = self._numbers.implausible
        self._numbers.observe((turn.process_id, turn.sequence) for turn in turns if turn.sequence is not None)
        self._missing.set(self._numbers.missing)
        self._implausible.inc(self._numbers.implausible - before)

    def _forget(self, labels: dict[str, str]) -> None:
        self._histograms.forget(**labels)
        for counter in (self._below_zero, *self._of_labels.values()):
            counter.remove_by_labels(labels)

    def _shown(self) -> Iterator[Any]:
        with self._lock:
            families = list(self._objectives.collect())
        yield from families
        if self._state is not None:
            yield from _received(self._state.snapshot())


def _known(value: str, known: Sequence[str]) -> str:
    return value if value in known else OTHER


def _received(state: IngestState) -> Iterator[Any]:
    values = {name: getattr(state, name, 0) for name in _RECEIVED}
    values |= {"received_items": state.received, "rejected_items": state.rejected, "changed_items": state.changed}
    values |= {"duplicate_items": state.duplicates, "unmapped_spans": state.unmapped_spans.total()}
    for name, family in _RECEIVED.items():
        yield family.of([((), values[name])])
    stored = {"turns": state.stored_turns, "spans": state.stored_spans, "points": state.stored_points}
    yield _STORED.of(((table,), count) for table, count in stored.items())
