"""Turns of each objective, counted by the one rule, `telemetry.objectives.judgment.judge_turn`.

Turns that no objective tells apart are found in the columns, and the rule is asked about one of each such group. A turn
without a value of a stage waits until another turn of its run has one, and is counted then: counters only grow.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from telemetry.model.bounds import BOUNDED
from telemetry.model.metrics import HEADLINE, METRICS, Metric
from telemetry.model.semconv import RAMP, Source
from telemetry.model.service_runs import service_day
from telemetry.model.turns import Turn
from telemetry.objectives import series
from telemetry.objectives.judgment import Judgment, has_value, judge_turn
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts import turn_columns
from telemetry.sidecar.counts.histograms import Array
from telemetry.sidecar.counts.label_values import COHORTS_MAX, LabelValues
from telemetry.sidecar.counts.text import Family, label_text
from telemetry.sidecar.counts.turn_columns import compute
from telemetry.store.schema import INTEGER_LIMIT, SIDES, TURN_FIELDS, ArrowTable, turn_from_row

# The fields of a turn from which a metric's value is computed.
FIELDS_OF: Final[dict[str, tuple[str, ...]]] = {
    "voice_to_voice": ("first_audio_perf_ns", "speech_end_perf_ns"),
    "endpointing": ("endpoint_perf_ns", "speech_end_perf_ns"),
    "asr_partial_latency": ("asr_first_partial_perf_ns", "speech_start_perf_ns"),
    "asr_final_latency": ("asr_final_perf_ns", "speech_end_perf_ns"),
    "llm_first_token_latency": ("llm_first_token_perf_ns", "speech_end_perf_ns"),
    "llm_ttft": ("asr_final_perf_ns", "llm_first_token_perf_ns"),
    "tts_first_chunk_latency": ("tts_first_chunk_perf_ns", "llm_first_token_perf_ns"),
    "leading_silence": ("leading_silence_ns",),
    "time_to_first_sentence": ("llm_first_sentence_perf_ns", "speech_end_perf_ns"),
    "connect": ("connect_ns",),
    "barge_in_stop": ("barge_in_stop_ns",),
    "talk_over": ("talk_over_ns",),
    "underrun_worst": ("underrun_worst_ns",),
    "underrun_total": ("underrun_total_ns",),
    "underrun_count": ("underrun_count",),
    "packet_loss": ("rtp_packets_received", "rtp_packets_lost"),
    "jitter": ("rtp_jitter_worst_ns",),
    "tokens_per_s": ("llm_tokens", "llm_chunks", "llm_first_token_perf_ns", "llm_last_token_perf_ns"),
    "tokens_per_s_wall": (
        "llm_tokens",
        "llm_chunks",
        "llm_last_token_perf_ns",
        "asr_final_perf_ns",
        "speech_end_perf_ns",
    ),
    "tokens_per_chunk": ("llm_tokens", "llm_chunks"),
    "prompt_cached": ("llm_input_tokens", "llm_cached_tokens"),
    "audio_rtfx": ("reply_audio_ns", "tts_first_chunk_perf_ns", "tts_last_chunk_perf_ns"),
    "wer": ("wer_errors", "wer_reference_words"),
}
# From which timestamps and durations, besides these, the bounds of a metric are computed.
_BOUNDED_BY: Final[dict[str, tuple[str, ...]]] = {
    "leading_silence": ("first_audio", "tts_first_chunk"),
    "connect": ("connect",),
    "barge_in_stop": ("speech_start",),
    "talk_over": ("speech_start", "speech_end"),
}
_BOUNDED_BY_ALL: Final = ("stamp_error_ns", "held_up_ns", "held_up_speaking_ns", "arrival_uncertainty_worst_ns")
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
FAMILIES: Final = (ELIGIBLE, GOOD, BAD, OPEN, TARGET)

_SOURCES: Final[tuple[Source, ...]] = ("client", "service")
_UNKNOWN: Final = ""
SERVICES_MAX: Final = 16
_DIMENSIONS: Final = ("length_class", "noise_profile", "channel_profile")
# In what turns of one group are the same, besides their metrics; the rule is asked about each turn that ended early, or
# has a threshold between the bounds of its value.
_ALIKE: Final = ("source", "cohort", "outcome", "turn_kind", "route", "fallback", "cache_hit", "barge_in_end")
# Besides the fields that metrics are computed from: what a turn cannot do without, and what the rule asks of it.
_READ: Final = (
    *("run_id", "call_id", "turn_index", "started_unix_ns", "started_perf_ns", "withheld_metrics", "withheld_reasons"),
    *("speech_start_perf_ns", "speech_end_perf_ns", "first_audio_perf_ns", "hangup_perf_ns"),
    *("llm_first_token_perf_ns", "asr_final_perf_ns", "failure_kind", "contradicted_metrics"),
)
_ENDED_EARLY: Final = ("cut", "interrupted")
_JUDGMENTS: Final = tuple(Judgment)
# What is counted only once a turn of the run has a value of the metric.
_WAITING: Final = tuple(_JUDGMENTS.index(each) for each in (Judgment.NO_VALUE, Judgment.NOT_STATED))
# Of so many runs it is known which metrics they have; what waits of an older one is never counted.
RUNS_MAX: Final = 256

Place = tuple[Source, str, str]  # source, service, cohort
Reported = tuple[str, Source]  # run, source


@dataclass(frozen=True, slots=True)
class ObjectiveAddition:
    """What turns add: by run, source and place, the turns of each objective, a row for each judgment; by run and
    source, of which objectives a turn has a value. `services` and `cohorts` are those that gave way to others."""

    services: frozenset[str]
    cohorts: frozenset[str]
    counts: dict[tuple[Reported, Place], Array]
    valued: dict[Reported, Array]


@dataclass(slots=True)
class _ReportedRun:
    """Of which objectives a run has a value, and its turns without one that wait for that, by place."""

    valued: Array
    waiting: dict[Place, Array] = field(default_factory=dict[Place, Array])


class ObjectiveTurns:
    """Turns of objectives by source, service and cohort, with a limit of 16 services and 32 cohorts.

    `found` may run while another thread copies; `add` and `copy` may not run at the same time.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = tuple(objectives)
        self._metrics = {each.metric: METRICS[each.metric] for each in objectives if each.metric is not None}
        self._is_headline = np.array([each.metric == HEADLINE for each in objectives], np.bool_)
        self._services = LabelValues(SERVICES_MAX)
        self._cohorts = LabelValues(COHORTS_MAX)
        named = [each for each in _DIMENSIONS if any(getattr(objective, each) for objective in objectives)]
        self._alike = (*_ALIKE, *named)
        self._owed = sorted({field for name in self._metrics for field in FIELDS_OF[name]})
        self._fields = {*self._alike, *_READ, *(each for name in self._metrics for each in FIELDS_OF[name])}
        self._fields |= {each for metric in self._metrics.values() for each in bound_fields(metric)}
        bounds = {m.bound_column(side) for m in self._metrics.values() if m in BOUNDED for side in SIDES}
        self._columns = sorted({*self._fields, "phase_kind", *(m.column for m in self._metrics.values()), *bounds})
        self._runs: OrderedDict[Reported, _ReportedRun] = OrderedDict()
        # Those without a cohort begin at 0, so that the first turns are an increase for Prometheus, too.
        self._counts: dict[Place, Array] = {(source, _UNKNOWN, _UNKNOWN): self._of_nothing() for source in _SOURCES}

    def found(self, turns: ArrowTable, now_s: float) -> ObjectiveAddition:
        """Count the turns of a table with the columns of the store's `turns`; `now_s` is on a monotonic clock."""
        turns = turns.select(self._columns)
        steady = compute.fill_null(compute.not_equal(turns.column("phase_kind"), RAMP), fill_value=True)
        asked = turns.filter(steady)
        if not asked.num_rows or not self._objectives:
            return ObjectiveAddition(frozenset(), frozenset(), {}, {})
        first, times = self._groups(asked)
        examples = [turn_from_row(row) for row in asked.select(sorted(self._fields)).take(pa.array(first)).to_pylist()]
        services, old_services = self._services.take([_service(turn.run_id) for turn in examples], now_s)
        cohorts, old_cohorts = self._cohorts.take([turn.cohort or _UNKNOWN for turn in examples], now_s)
        found: dict[tuple[Reported, Place], Array] = {}
        valued: dict[Reported, Array] = {}
        for turn, service, cohort, count in zip(examples, services, cohorts, times.tolist(), strict=True):
            reported = turn.run_id, turn.source
            added = found.setdefault((reported, (turn.source, service, cohort)), self._of_nothing())
            added += count * self._verdicts(turn)
            known = valued.setdefault(reported, np.zeros(len(self._objectives), np.bool_))
            known |= np.array([has_value(objective, turn) for objective in self._objectives])
        return ObjectiveAddition(frozenset(old_services), frozenset(old_cohorts), found, valued)

    def add(self, found: ObjectiveAddition) -> None:
        """Add what was found."""
        for place in list(self._counts):
            if _has_given_way(place, found):
                del self._counts[place]
        for run in self._runs.values():
            run.waiting = {place: counts for place, counts in run.waiting.items() if not _has_given_way(place, found)}
        for reported, valued in found.valued.items():
            run = self._runs.setdefault(reported, _ReportedRun(np.zeros(len(self._objectives), np.bool_)))
            self._runs.move_to_end(reported)
            run.valued |= valued
            for place, waiting in run.waiting.items():
                run.waiting[place] = self._settle(run, place, waiting)
        for (reported, place), counts in found.counts.items():
            run = self._runs[reported]
            waiting = run.waiting.get(place, self._of_nothing())
            run.waiting[place] = self._settle(run, place, counts + waiting)
        while len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)

    def _settle(self, run: _ReportedRun, place: Place, counts: Array) -> Array:
        """Count the turns of a run at a place but for those that wait for a value; these are returned."""
        waits = np.zeros(counts.shape, np.bool_)
        waits[_WAITING, :] = ~run.valued
        # An answer whose latency a service does not state is open, whatever the others state.
        waits[_JUDGMENTS.index(Judgment.NOT_STATED), self._is_headline] = False
        self._counts[place] = self._counts.get(place, self._of_nothing()) + np.where(waits, 0, counts)
        return np.where(waits, counts, 0)

    def copy(self) -> dict[Place, Array]:
        """The counts, which nothing changes any more."""
        return dict(self._counts)

    def parts(self, counts: dict[Place, Array], *, openmetrics: bool) -> Iterator[str]:
        """The text of all families."""
        texts = [
            label_text(series.LABELS[:2], (objective.name, series.stage_of(objective)))
            for objective in self._objectives
        ]
        shown = {place: self._shown(of) for place, of in counts.items()}
        for family in (ELIGIBLE, GOOD, BAD, OPEN):
            yield family.head(openmetrics=openmetrics)
            for place, values in shown.items():
                end = label_text(series.LABELS[2:], place)
                for text, value in zip(texts, values[family].tolist(), strict=True):
                    yield family.sample(f"{text},{end}", value)
        yield TARGET.head(openmetrics=openmetrics)
        for text, objective in zip(texts, self._objectives, strict=True):
            promise = label_text(series.TARGET_LABELS[2:], (objective.promise,))
            yield TARGET.sample(f"{text},{promise}", objective.target)

    def _shown(self, counts: Array) -> dict[Family, Array]:
        """The turns of a place by family: one without a value of a stage that its run has is bad."""
        rows = dict(zip(_JUDGMENTS, counts, strict=True))
        good, bad = rows[Judgment.GOOD], rows[Judgment.BAD] + rows[Judgment.NO_VALUE]
        eligible = counts.sum(axis=0)
        return {ELIGIBLE: eligible, GOOD: good, BAD: bad, OPEN: eligible - good - bad}

    def _of_nothing(self) -> Array:
        return np.zeros((len(_JUDGMENTS), len(self._objectives)), np.int64)

    def _verdicts(self, turn: Turn) -> Array:
        found = self._of_nothing()
        for number, objective in enumerate(self._objectives):
            judgment = judge_turn(objective, turn, turn.source)
            if judgment is not None:
                found[_JUDGMENTS.index(judgment), number] = 1
        return found

    def _groups(self, turns: ArrowTable) -> tuple[Array, Array]:
        """The row of the first turn of each group of turns that no objective tells apart, and how many it has."""
        codes = [turn_columns.encoded(turns, column)[1] for column in self._alike]
        codes.append(turn_columns.encoded(turns, "run_id")[1])
        codes.append(turns.column("turn_index").to_numpy() == 0)
        alone = compute.is_in(turns.column("outcome"), pa.array(_ENDED_EARLY)).to_numpy().copy()
        # Whether a missing value is a stage that never came.
        codes += [compute.is_valid(turns.column(field)).to_numpy() for field in self._owed]
        hidden = turn_columns.withheld(turns)
        contradicted = turn_columns.withheld(turns, "contradicted_metrics")
        for name, metric in self._metrics.items():
            if name in contradicted:
                codes.append(np.isin(np.arange(turns.num_rows), contradicted[name]).astype(np.int64))
            rows, values = turn_columns.values(turns, metric, hidden.get(name))
            thresholds = np.unique([each.threshold or 0 for each in self._objectives if each.metric == name])
            code = np.zeros(turns.num_rows, np.int64)
            # At a threshold, below and above it are three: some metrics are good above, others below.
            code[rows] = 1 + sum(np.searchsorted(thresholds, values, side=side) for side in ("left", "right"))
            code[hidden.get(name, rows[:0])] = -1
            codes.append(code + 1)
            if metric in BOUNDED:
                alone |= _straddles(turns, metric, thresholds)
        codes.append(np.where(alone, np.arange(turns.num_rows) + 1, 0))
        together, size = np.zeros(turns.num_rows, np.int64), 1
        for code in codes:
            width = int(code.max()) + 1
            if size * width > INTEGER_LIMIT:
                together, size = np.unique(together, return_inverse=True)[1], turns.num_rows
            together = together * width + code
            size *= width
        _, first, times = np.unique(together, return_index=True, return_counts=True)
        return first, times


def _straddles(turns: ArrowTable, metric: Metric, thresholds: Array) -> Array:
    """Whether a threshold lies between the bounds of each turn's value, one of which may be infinite."""
    lower, upper = (turns.column(metric.bound_column(side)).combine_chunks() for side in SIDES)
    known = compute.or_(lower.is_valid(), upper.is_valid()).to_numpy(zero_copy_only=False)
    ends = [
        np.where(column.is_valid().to_numpy(zero_copy_only=False), compute.fill_null(column, 0).to_numpy(), infinite)
        for column, infinite in ((lower, -np.inf), (upper, np.inf))
    ]
    sides = [sum(np.searchsorted(thresholds, end, side=side) for side in ("left", "right")) for end in ends]
    return known & (sides[0] != sides[1])


def _has_given_way(place: Place, found: ObjectiveAddition) -> bool:
    _, service, cohort = place
    return service in found.services or cohort in found.cohorts


def _service(run_id: str) -> str:
    """The service that reported the turns of a run of its own; "" for a run of callers."""
    found = service_day(run_id)
    return found.service if found is not None else _UNKNOWN


def bound_fields(metric: Metric) -> tuple[str, ...]:
    """The fields of a turn from which the bounds of a metric are computed, besides those of its value."""
    if metric not in BOUNDED:
        return ()
    moments = [each.removesuffix("_perf_ns") for each in FIELDS_OF[metric.name]] + [*_BOUNDED_BY.get(metric.name, ())]
    named = [f"{moment}_{kind}_ns" for moment in moments for kind in ("earlier", "later", "uncertainty")]
    return (*(each for each in named if each in TURN_FIELDS), *_BOUNDED_BY_ALL)
