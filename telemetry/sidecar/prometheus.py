"""Prometheus metrics of the turns that were stored, and of the telemetry itself.

Classic histograms whose buckets include every objective's threshold, so that good turns can be counted from them;
percentiles for a decision come from the store. Labels are dimensions with few values, each limited by itself (see
`telemetry.sidecar.counts.label_values`); never a call, a user or an utterance. Exemplars carry the turn's trace id
(OpenMetrics only).

Two locks: one for each table of turns that is counted, and a short one under which its counts are added or copied.
Whatever takes long, grouping turns or writing the text, happens outside the short one: a scrape waits for nobody and
nobody waits for a scrape.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from prometheus_client.exposition import choose_encoder

from telemetry.model import semconv
from telemetry.model.metrics import METRICS
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts import objectives as of_objectives
from telemetry.sidecar.counts import turn_columns
from telemetry.sidecar.counts.histograms import Array, Buckets, Counts, Observed, observed, series_name
from telemetry.sidecar.counts.label_values import (
    LABELS,
    OTHER,
    PLACES,
    Assigned,
    Combination,
    Combinations,
    LabelValues,
)
from telemetry.sidecar.counts.sequence_numbers import SequenceNumbers
from telemetry.sidecar.counts.text import OPENMETRICS_END, Family, histogram_lines, label_text
from telemetry.sidecar.ingest_state import IngestState
from telemetry.store.schema import ArrowTable

_REASONS_MAX: Final = 32
_SOURCES: Final[tuple[semconv.Source, ...]] = ("client", "service")
_UNKNOWN: Final = "unknown"
_LATENCIES: Final = tuple(metric for metric in METRICS.values() if metric.unit == "ns")

# Counts of turns by their labels and one more, whose values are known beforehand.
_TURNS: Final = Family("voice_turns", "counter", "Turns as the caller heard them, by outcome.", (*LABELS, "outcome"))
_CACHE: Final = Family(
    "voice_cache_lookups", "counter", "Valid turns whose endpoint said whether a cache answered.", (*LABELS, "hit")
)
_FALLBACKS: Final = Family(
    "voice_fallbacks", "counter", "Valid turns answered by a fallback, by kind.", (*LABELS, "kind")
)
_VALUES: Final[dict[Family, tuple[str, ...]]] = {
    _TURNS: (*semconv.OUTCOMES, OTHER),
    _CACHE: ("false", "true"),
    _FALLBACKS: (*semconv.FALLBACKS, OTHER),
}
_INVALID: Final = Family(
    "voice_turns_invalid", "counter", "Invalid turns, by reason; a turn may have several.", ("reason",)
)
_NOT_AS_RECORDED: Final = Family(
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


class StateSource(Protocol):
    """What counts the telemetry that came in."""

    def snapshot(self) -> IngestState:
        """The counts so far, as a copy that no other thread changes."""
        ...


@dataclass(frozen=True, slots=True)
class _Addition:
    """What a table of turns adds to the counts; rows of all arrays are those of `places`."""

    assigned: Assigned
    places: Array
    by_value: dict[Family, Array]
    invalid: tuple[list[str], Counter[str]]  # the reasons given up, and the counts of reasons
    histograms: dict[str, tuple[Observed, Array]]  # each with the trace ids of its exemplars
    objectives: of_objectives.ObjectiveAddition
    contradicted: Counter[tuple[str, str]]  # values by source and cause
    not_as_recorded: int


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A copy of all counts, rows in the order of `labels`."""

    labels: list[Combination]
    by_value: dict[Family, Array]
    invalid: Counter[str]
    histograms: dict[str, Counts]
    objectives: dict[of_objectives.Place, Array]
    contradicted: Counter[tuple[str, str]]
    missing: int
    implausible: int
    not_as_recorded: int


class Exposition:
    """Counts stored turns and renders `/metrics`; thread-safe. Its memory and its number of series are bounded."""

    def __init__(
        self,
        objectives: Sequence[Objective] = (),
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock_s = clock_s
        self._wall_clock_ns = wall_clock_ns
        self._source: StateSource | None = None
        self._buckets = {metric.name: Buckets(metric, objectives) for metric in METRICS.values()}
        self._families = {
            metric.name: Family(series_name(metric), "histogram", _histogram_text(metric.definition), LABELS)
            for metric in METRICS.values()
        }
        # Changed by the one who counts.
        self._counting = threading.Lock()
        self._combinations = Combinations()
        self._reasons = LabelValues(_REASONS_MAX)
        self._numbers = SequenceNumbers()
        self._objectives = of_objectives.ObjectiveTurns(objectives)
        # Changed and copied under the short lock.
        self._adding = threading.Lock()
        self._labels: dict[int, Combination] = {}
        self._by_value = {family: np.zeros((PLACES, len(values)), np.int64) for family, values in _VALUES.items()}
        self._invalid = Counter[str]()
        self._not_as_recorded = 0
        self._contradicted = Counter({(source, cause): 0 for source in _SOURCES for cause in semconv.CONTRADICTIONS})
        self._histograms = {name: Counts.of_nothing(PLACES, len(each)) for name, each in self._buckets.items()}
        self._missing = 0
        self._implausible = 0

    def watch(self, source: StateSource) -> None:
        """Show the receiver's counts too."""
        self._source = source

    def families(self) -> tuple[Family, ...]:
        """Every family that can be exposed, in the order of the text."""
        receiver = (*_RECEIVED.values(), _STORED, _MISSING, _IMPLAUSIBLE)
        return (
            *self._families.values(),
            _BELOW_ZERO,
            *_VALUES,
            _INVALID,
            _NOT_AS_RECORDED,
            _CONTRADICTED,
            *of_objectives.FAMILIES,
            *receiver,
        )

    def observe(self, turns: ArrowTable) -> None:
        """Count the turns of a table that were stored (columns of the store's `turns`), each once."""
        with self._counting:
            processes, of_row = turn_columns.encoded(turns, "process_id")
            sequence = turns.column("sequence").combine_chunks()
            numbered = sequence.is_valid().to_numpy(zero_copy_only=False)
            numbers = sequence.fill_null(0).to_numpy(zero_copy_only=False)
            self._numbers.observe(processes, of_row[numbered], numbers[numbered])
            found = self._found(turns)
            unix_s = self._wall_clock_ns() / 1e9
            with self._adding:
                self._add(found, unix_s)

    @property
    def missing_turns(self) -> int:
        """Holes in the sequence numbers of the processes heard from since the start."""
        with self._adding:
            return self._missing

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and content type for an Accept header."""
        _, content_type = choose_encoder(accept)
        openmetrics = content_type.startswith("application/openmetrics-text")
        state = self._source.snapshot() if self._source is not None else None
        with self._adding:
            snapshot = self._copy(with_exemplars=openmetrics)
        body = bytearray()
        for part in self._parts(snapshot, state, openmetrics=openmetrics):
            body += part.encode()
        return bytes(body), content_type

    def _found(self, turns: ArrowTable) -> _Addition:
        now_s = self._clock_s()
        heard = turn_columns.heard(turns)
        asked, of_row, given_up = turn_columns.combinations(heard, self._combinations.labels, now_s)
        assigned = self._combinations.assign(asked, given_up, now_s)
        # Several combinations can share a place.
        places, row_of_asked = np.unique(np.array(assigned.places, np.int64), return_inverse=True)
        rows = row_of_asked.astype(np.int64)[of_row]
        is_invalid = turn_columns.is_invalid(heard)
        valid, invalid = heard.filter(pa.array(~is_invalid)), heard.filter(pa.array(is_invalid))
        valid_rows = rows[~is_invalid]
        by_value = {
            _TURNS: _by_value(_TURNS, heard, "outcome", rows, places.size),
            _CACHE: _by_value(_CACHE, valid, "cache_hit", valid_rows, places.size),
            _FALLBACKS: _by_value(_FALLBACKS, valid, "fallback", valid_rows, places.size),
        }
        return _Addition(
            assigned=assigned,
            places=places,
            by_value=by_value,
            invalid=self._invalid_reasons(invalid, now_s),
            histograms=self._observed(valid, valid_rows, places.size),
            objectives=self._objectives.found(turns, now_s),
            contradicted=_contradicted(turns),
            not_as_recorded=turn_columns.not_as_recorded(invalid),
        )

    def _observed(self, valid: ArrowTable, rows: Array, row_count: int) -> dict[str, tuple[Observed, Array]]:
        hidden = turn_columns.withheld(valid)
        found: dict[str, Observed] = {}
        for name, metric in METRICS.items():
            turns, values = turn_columns.values(valid, metric, hidden.get(name))
            if turns.size:
                found[name] = observed(self._buckets[name], rows[turns], turns, values, row_count)
        if not found:
            return {}
        exemplars = turn_columns.trace_ids(valid, np.unique(np.concatenate([each.turns for each in found.values()])))
        return {
            name: (each, np.array([exemplars[turn] for turn in each.turns.tolist()], "S32"))
            for name, each in found.items()
        }

    def _invalid_reasons(self, invalid: ArrowTable, now_s: float) -> tuple[list[str], Counter[str]]:
        """The reasons that gave way to new ones, and of how many turns each reason was one."""
        texts, of_item, rows = turn_columns.items(invalid, "invalid_reasons")
        shown, given_up = self._reasons.take(texts, now_s)
        found = Counter[str]()
        for reason, count in zip(shown, np.bincount(of_item, minlength=len(texts)).tolist(), strict=True):
            found[reason or _UNKNOWN] += count
        if without := invalid.num_rows - np.unique(rows).size:
            found[_UNKNOWN] += without
        return given_up, found

    def _add(self, found: _Addition, unix_s: float) -> None:
        cleared = found.assigned.cleared
        if cleared:
            for place in cleared:
                self._labels.pop(place, None)
            for array in self._by_value.values():
                array[cleared] = 0
            for counts in self._histograms.values():
                counts.clear(cleared)
        self._labels |= found.assigned.named
        for family, counts in found.by_value.items():
            self._by_value[family][found.places] += counts
        for name, (each, trace_ids) in found.histograms.items():
            self._histograms[name].add(found.places, each, trace_ids, unix_s)
        self._objectives.add(found.objectives)
        given_up, reasons = found.invalid
        for reason in given_up:
            self._invalid.pop(reason, None)
        self._invalid += reasons
        self._not_as_recorded += found.not_as_recorded
        self._contradicted.update(found.contradicted)
        self._missing, self._implausible = self._numbers.missing, self._numbers.implausible

    def _copy(self, *, with_exemplars: bool) -> _Snapshot:
        places = np.array(list(self._labels), np.int64)
        return _Snapshot(
            labels=list(self._labels.values()),
            by_value={family: array[places] for family, array in self._by_value.items()},
            invalid=self._invalid.copy(),
            histograms={
                name: counts.copy(places, with_exemplars=with_exemplars) for name, counts in self._histograms.items()
            },
            objectives=self._objectives.copy(),
            contradicted=self._contradicted.copy(),
            missing=self._missing,
            implausible=self._implausible,
            not_as_recorded=self._not_as_recorded,
        )

    def _parts(self, found: _Snapshot, state: IngestState | None, *, openmetrics: bool) -> Iterator[str]:
        labels = [label_text(LABELS, values) for values in found.labels]
        for name, counts in found.histograms.items():
            yield self._families[name].head(openmetrics=openmetrics)
            yield from histogram_lines(self._families[name], self._buckets[name], labels, counts)
        yield _BELOW_ZERO.head(openmetrics=openmetrics)
        for metric in _LATENCIES:
            for text, value in zip(labels, found.histograms[metric.name].below_zero.tolist(), strict=True):
                if value:
                    yield _BELOW_ZERO.sample(f'{text},metric="{metric.name}"', value)
        for family, array in found.by_value.items():
            yield family.head(openmetrics=openmetrics)
            ends = [f',{family.labels[-1]}="{value}"' for value in _VALUES[family]]
            for text, row in zip(labels, array.tolist(), strict=True):
                yield "".join(family.sample(text + end, count) for end, count in zip(ends, row, strict=True) if count)
        yield _INVALID.head(openmetrics=openmetrics)
        for reason, count in found.invalid.items():
            yield _INVALID.sample(label_text(_INVALID.labels, (reason,)), count)
        yield _NOT_AS_RECORDED.head(openmetrics=openmetrics) + _NOT_AS_RECORDED.sample("", found.not_as_recorded)
        yield _CONTRADICTED.head(openmetrics=openmetrics)
        for labels_of_value, count in found.contradicted.items():
            yield _CONTRADICTED.sample(label_text(_CONTRADICTED.labels, labels_of_value), count)
        yield from self._objectives.parts(found.objectives, openmetrics=openmetrics)
        for family, value in ((_MISSING, found.missing), (_IMPLAUSIBLE, found.implausible)):
            yield family.head(openmetrics=openmetrics) + family.sample("", value)
        if state is not None:
            yield from _receiver_parts(state, openmetrics=openmetrics)
        if openmetrics:
            yield OPENMETRICS_END


def _receiver_parts(state: IngestState, *, openmetrics: bool) -> Iterator[str]:
    for name, value in (
        ("received_items", state.received),
        ("rejected_items", state.rejected),
        ("changed_items", state.changed),
        ("duplicate_items", state.duplicates),
        ("bad_requests", state.bad_requests),
        ("refused_requests", state.refused_requests),
        ("unmapped_spans", state.unmapped_spans.total()),
        ("framework_spans_given_up", state.framework_spans_given_up),
        ("framework_spans_left_over", state.framework_spans_left_over),
        ("framework_spans_late", state.framework_spans_late),
        ("revised_turns", state.revised_turns),
        ("unstorable_turns", state.unstorable_turns),
    ):
        yield _RECEIVED[name].head(openmetrics=openmetrics) + _RECEIVED[name].sample("", value)
    yield _STORED.head(openmetrics=openmetrics)
    stored = {"turns": state.stored_turns, "spans": state.stored_spans, "points": state.stored_points}
    for table, value in stored.items():
        yield _STORED.sample(label_text(_STORED.labels, (table,)), value)


def _contradicted(turns: ArrowTable) -> Counter[tuple[str, str]]:
    """The values of all turns, those of ramps too, that were withheld because they cannot be, by source and cause."""
    sources, of_turn = turn_columns.encoded(turns, "source")
    causes, of_item, turn_of_item = turn_columns.items(turns, "contradicted_causes")
    shown = [cause if cause in semconv.CONTRADICTIONS else OTHER for cause in causes]
    places = zip(of_turn[turn_of_item].tolist(), of_item.tolist(), strict=True)
    return Counter((sources[source], shown[cause]) for source, cause in places)


def _by_value(family: Family, table: ArrowTable, column: str, rows: Array, row_count: int) -> Array:
    """Rows of counts of the values of a column, in the order of the family's values; null is not counted."""
    places = {value: place for place, value in enumerate(_VALUES[family])}
    width = len(places) + 1  # the last column is for null
    texts, of_turn = turn_columns.encoded(table, column)
    place = np.array([places.get(text, width - 2) if text else width - 1 for text in texts], np.int64)[of_turn]
    return np.bincount(rows * width + place, minlength=row_count * width).reshape(row_count, width)[:, :-1]


def _histogram_text(definition: str) -> str:
    return f"{definition} (client-heard, valid turns). A value below zero is in the lowest bucket and adds 0 to _sum."
