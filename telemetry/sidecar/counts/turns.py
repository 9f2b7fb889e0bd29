"""Prometheus metrics of the turns that were stored, and of the telemetry itself.

Classic histograms whose buckets include every objective's threshold, so that good turns can be counted from them;
percentiles for a decision come from the store. Labels are dimensions with few values, each limited by itself (see
`telemetry.sidecar.counts.label_values`); never a call, a user or an utterance. Exemplars carry the turn's trace id
(OpenMetrics only).
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from prometheus_client import CollectorRegistry

from telemetry.model import semconv
from telemetry.model.generator_health import NOT_AS_RECORDED
from telemetry.model.metrics import METRICS
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts import objectives as of_objectives
from telemetry.sidecar.counts.histograms import MetricHistograms, exemplar_of, series_name
from telemetry.sidecar.counts.label_values import LABELS, OTHER, Combination, Combinations, LabelValues
from telemetry.sidecar.counts.sequence_numbers import SequenceNumbers
from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.counts.text import Family, ShownFamilies, page_of
from telemetry.store.schema import TURN_FIELDS, ArrowTable, turn_from_row

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
_COLUMNS: Final = tuple(dict.fromkeys((*TURN_FIELDS, *(metric.column for metric in METRICS.values()))))

_NOT_AS_RECORDED: Final = frozenset(NOT_AS_RECORDED)

_Row = Mapping[str, Any]


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

    def observe(self, turns: ArrowTable) -> None:
        """Count the turns of a table that were stored (columns of the store's `turns`), each once."""
        if not turns.num_rows:
            return
        now_s = self._clock_s()
        with self._lock:
            self._count_numbers(turns)
            for row in rows_of(turns):
                with contextlib.suppress(msgspec.ValidationError):  # of a later version, which judges it by more
                    self._objectives.count(turn_from_row(row), now_s)
                for cause in row.get("contradicted_causes") or ():
                    shown = cause if cause in semconv.CONTRADICTIONS else OTHER
                    self._contradicted.labels(row["source"], shown).inc()
                # A silent turn asks nothing, and is no part of the figures.
                if row["source"] == "client" and row.get("turn_kind") != "silence":
                    self._count(row, now_s)

    @property
    def missing_turns(self) -> int:
        """Holes in the sequence numbers of the processes heard from since the start."""
        return self._numbers.missing

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and content type for an Accept header."""
        return page_of(self._registry, accept)

    def _count(self, row: _Row, now_s: float) -> None:
        labels = self._combinations.shown(
            row.get("cohort"), row.get("route"), row.get("cache_tier"), row.get("model"), now_s
        )
        self._add(_TURNS, labels, row["outcome"], semconv.OUTCOMES)
        if row["outcome"] == "invalid":
            self._count_invalid(row.get("invalid_reasons") or (), now_s)
            return
        if (hit := row.get("cache_hit")) is not None:
            self._add(_CACHE, labels, "true" if hit else "false", ("true", "false"))
        if fallback := row.get("fallback"):
            self._add(_FALLBACKS, labels, fallback, semconv.FALLBACKS)
        exemplar = exemplar_of(row.get("trace_id"))
        for name, value in values_of(row):
            self._histograms.observe(labels, name, value, exemplar)

    def _add(self, family: Family, labels: Combination, value: str, known: Sequence[str]) -> None:
        self._of_labels[family].labels(*labels, value if value in known else OTHER).inc()

    def _count_invalid(self, reasons: Sequence[str], now_s: float) -> None:
        for reason in reasons or (_UNKNOWN,):
            self._invalid.labels(self._reasons.shown(reason, now_s) or _UNKNOWN).inc()
        if not _NOT_AS_RECORDED.isdisjoint(reasons):
            self._not_recorded.inc()

    def _count_below_zero(self, labels: tuple[str, ...], metric: str, time_s: float) -> None:
        if METRICS[metric].unit == "ns":
            self._below_zero.labels(*labels, metric).inc(time_s)

    def _count_numbers(self, turns: ArrowTable) -> None:
        processes = turns.column("process_id").combine_chunks().cast(pa.string()).fill_null("").dictionary_encode()
        sequence = turns.column("sequence").combine_chunks()
        numbered = sequence.is_valid().to_numpy(zero_copy_only=False)
        of_row = processes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = sequence.fill_null(0).to_numpy(zero_copy_only=False)
        before = self._numbers.implausible
        self._numbers.observe(processes.dictionary.to_pylist(), of_row[numbered], numbers[numbered])
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


def rows_of(turns: ArrowTable) -> list[dict[str, Any]]:
    """The rows of a table of turns, without the columns in which there is nothing."""
    return turns.select([name for name in _COLUMNS if turns.column(name).null_count < turns.num_rows]).to_pylist()


def values_of(row: _Row) -> Iterator[tuple[str, float]]:
    """The metrics that were measured on a turn and that its wire can show, with their values in their units."""
    withheld = row.get("withheld_metrics") or ()
    for name, metric in METRICS.items():
        value = row.get(metric.column)
        if value is not None and math.isfinite(value) and name not in withheld:
            yield name, value


def _received(state: IngestState) -> Iterator[Any]:
    values = {name: getattr(state, name, 0) for name in _RECEIVED}
    values |= {"received_items": state.received, "rejected_items": state.rejected, "changed_items": state.changed}
    values |= {"duplicate_items": state.duplicates, "unmapped_spans": state.unmapped_spans.total()}
    for name, family in _RECEIVED.items():
        yield family.of([((), values[name])])
    stored = {"turns": state.stored_turns, "spans": state.stored_spans, "points": state.stored_points}
    yield _STORED.of(((table,), count) for table, count in stored.items())
