"""Turns of each objective, counted by the one rule, `telemetry.objectives.judgment.judge_turn`.

Turns that no objective tells apart are found in the columns, and the rule is asked about one of each such group. A turn
without a value of a stage is counted once any turn of its source and service has one: counters only grow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from telemetry.model.metrics import METRICS
from telemetry.model.semconv import RAMP, Source
from telemetry.model.service_runs import service_day
from telemetry.model.turns import Turn
from telemetry.objectives import series
from telemetry.objectives.judgment import Judgment, has_value, judge_turn, resolve
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts import turn_columns
from telemetry.sidecar.counts.histograms import Array
from telemetry.sidecar.counts.label_values import COHORTS_MAX, LabelValues
from telemetry.sidecar.counts.text import Family, label_text
from telemetry.sidecar.counts.turn_columns import compute
from telemetry.store.objectives import FIELDS_OF
from telemetry.store.schema import INTEGER_LIMIT, ArrowTable, turn_from_row

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
    "interrupted by the caller, or without a stated or plausible value.",
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
# In what turns of one group are the same, besides their metrics; the rule is asked about each turn that ended early.
_ALIKE: Final = ("source", "cohort", "outcome", "turn_kind", "route", "fallback", "cache_hit", "barge_in_end")
# Besides the fields that metrics are computed from: what a turn cannot do without, and what the rule asks of it.
_READ: Final = (
    *("run_id", "call_id", "turn_index", "started_unix_ns", "started_perf_ns", "withheld_metrics"),
    *("speech_start_perf_ns", "speech_end_perf_ns", "first_audio_perf_ns", "hangup_perf_ns"),
    *("llm_first_token_perf_ns", "asr_final_perf_ns", "failure_kind", "contradicted_metrics"),
)
_ENDED_EARLY: Final = ("cut", "interrupted")
# The rows of counts: turns by what the rule says of them, those without a value apart, and how many have a value.
_JUDGMENTS: Final = tuple(Judgment)
_VALUED: Final = len(_JUDGMENTS)

Place = tuple[Source, str, str]  # source, service, cohort


@dataclass(frozen=True, slots=True)
class ObjectiveAddition:
    """What turns add: by place, the turns of each objective (a row for each judgment, one for values). `services` and
    `cohorts` are those that gave way to others."""

    services: frozenset[str]
    cohorts: frozenset[str]
    counts: dict[Place, Array]


class ObjectiveTurns:
    """Turns of objectives by source, service and cohort, with a limit of 16 services and 32 cohorts.

    `found` may run while another thread copies; `add` and `copy` may not run at the same time.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = tuple(objectives)
        self._metrics = {each.metric: METRICS[each.metric] for each in objectives if each.metric is not None}
        self._services = LabelValues(SERVICES_MAX)
        self._cohorts = LabelValues(COHORTS_MAX)
        named = [each for each in _DIMENSIONS if any(getattr(objective, each) for objective in objectives)]
        self._alike = (*_ALIKE, *named)
        self._owed = sorted({field for name in self._metrics for field in FIELDS_OF[name]})
        self._fields = {*self._alike, *_READ, *(each for name in self._metrics for each in FIELDS_OF[name])}
        self._columns = sorted({*self._fields, "phase_kind", *(metric.column for metric in self._metrics.values())})
        # Those without a cohort begin at 0, so that the first turns are an increase for Prometheus, too.
        self._counts: dict[Place, Array] = {(source, _UNKNOWN, _UNKNOWN): self._of_nothing() for source in _SOURCES}

    def found(self, turns: ArrowTable, now_s: float) -> ObjectiveAddition:
        """Count the turns of a table with the columns of the store's `turns`; `now_s` is on a monotonic clock."""
        turns = turns.select(self._columns)
        steady = compute.fill_null(compute.not_equal(turns.column("phase_kind"), RAMP), fill_value=True)
        asked = turns.filter(steady)
        if not asked.num_rows or not self._objectives:
            return ObjectiveAddition(frozenset(), frozenset(), {})
        first, times = self._groups(asked)
        examples = [turn_from_row(row) for row in asked.select(sorted(self._fields)).take(pa.array(first)).to_pylist()]
        services, old_services = self._services.take([_service(turn.run_id) for turn in examples], now_s)
        cohorts, old_cohorts = self._cohorts.take([turn.cohort or _UNKNOWN for turn in examples], now_s)
        found: dict[Place, Array] = {}
        for turn, service, cohort, count in zip(examples, services, cohorts, times.tolist(), strict=True):
            added = found.setdefault((turn.source, service, cohort), self._of_nothing())
            added += count * self._verdicts(turn)
        return ObjectiveAddition(frozenset(old_services), frozenset(old_cohorts), found)

    def add(self, found: ObjectiveAddition) -> None:
        """Add what was found."""
        for place in list(self._counts):
            _, service, cohort = place
            if service in found.services or cohort in found.cohorts:
                del self._counts[place]
        for place, counts in found.counts.items():
            self._counts[place] = self._counts.get(place, self._of_nothing()) + counts

    def copy(self) -> dict[Place, Array]:
        """The counts, which nothing changes any more."""
        return dict(self._counts)

    def parts(self, counts: dict[Place, Array], *, openmetrics: bool) -> Iterator[str]:
        """The text of all families."""
        texts = [
            label_text(series.LABELS[:2], (objective.name, series.stage_of(objective)))
            for objective in self._objectives
        ]
        shown = {place: self._shown(place, counts) for place in counts}
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

    def _shown(self, place: Place, counts: dict[Place, Array]) -> dict[Family, Array]:
        """The turns of a place by family."""
        found = {family: np.zeros(len(self._objectives), np.int64) for family in (ELIGIBLE, GOOD, BAD, OPEN)}
        valued = np.sum([of[_VALUED] for other, of in counts.items() if other[:2] == place[:2]], axis=0)
        for row, judgment in enumerate(_JUDGMENTS):
            for number, objective in enumerate(self._objectives):
                turns = counts[place][row, number]
                of = resolve(judgment, objective, has_value=bool(valued[number])) if turns else None
                if of is not None:
                    found[{Judgment.GOOD: GOOD, Judgment.BAD: BAD}.get(of, OPEN)][number] += turns
                    found[ELIGIBLE][number] += turns
        return found

    def _of_nothing(self) -> Array:
        return np.zeros((len(_JUDGMENTS) + 1, len(self._objectives)), np.int64)

    def _verdicts(self, turn: Turn) -> Array:
        found = self._of_nothing()
        for number, objective in enumerate(self._objectives):
            judgment = judge_turn(objective, turn, turn.source)
            if judgment is not None:
                found[_JUDGMENTS.index(judgment), number] = 1
            found[_VALUED, number] = has_value(objective, turn)
        return found

    def _groups(self, turns: ArrowTable) -> tuple[Array, Array]:
        """The row of the first turn of each group of turns that no objective tells apart, and how many it has."""
        codes = [turn_columns.encoded(turns, column)[1] for column in self._alike]
        run_ids, of_row = turn_columns.encoded(turns, "run_id")
        codes.append(np.unique([_service(run_id) for run_id in run_ids], return_inverse=True)[1][of_row])
        codes.append(turns.column("turn_index").to_numpy() == 0)
        early = compute.is_in(turns.column("outcome"), pa.array(_ENDED_EARLY)).to_numpy()
        codes.append(np.where(early, np.arange(turns.num_rows) + 1, 0))
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
        together, size = np.zeros(turns.num_rows, np.int64), 1
        for code in codes:
            width = int(code.max()) + 1
            if size * width > INTEGER_LIMIT:
                together, size = np.unique(together, return_inverse=True)[1], turns.num_rows
            together = together * width + code
            size *= width
        _, first, times = np.unique(together, return_index=True, return_counts=True)
        return first, times


def _service(run_id: str) -> str:
    """The service that reported the turns of a run of its own; "" for a run of callers."""
    found = service_day(run_id)
    return found.service if found is not None else _UNKNOWN
