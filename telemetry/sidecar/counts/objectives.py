"""Turns of each objective, judged by the one rule, `telemetry.objectives.judgment.judge_turn`.

A turn without a value of a stage waits until another turn of its run has one, and is counted then: counters only grow.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from telemetry.model.metrics import HEADLINE
from telemetry.model.recent import RecentDict
from telemetry.model.semconv import RAMP, Source
from telemetry.model.services import service_day
from telemetry.model.turns import Turn
from telemetry.objectives import series
from telemetry.objectives.judgment import Judgment, has_value, judge_turn
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts.families import BAD, ELIGIBLE, GOOD, OPEN, TARGET, Family
from telemetry.sidecar.counts.label_values import COHORTS_MAX, LabelValues

_SOURCES: Final[tuple[Source, ...]] = ("client", "service")
_UNKNOWN: Final = ""
SERVICES_MAX: Final = 16
# Judgments that are counted only once a turn of the run has a value of the metric, and how each is exposed.
_WAITING: Final = (Judgment.NO_VALUE, Judgment.NOT_STATED)
_SHOWN: Final = {Judgment.GOOD: GOOD, Judgment.BAD: BAD, Judgment.NO_VALUE: BAD}
# Of so many runs it is known which metrics they have; what waits of an older one is never counted.
RUNS_MAX: Final = 256

_Place = tuple[Source, str, str]  # source, service, cohort
_Judged = Counter[tuple[int, Judgment]]  # turns by the number of the objective and their judgment


@dataclass(slots=True)
class _ReportedRun:
    """The objectives for which a run has values, and its turns without a value that wait for one, by place."""

    valued: set[int] = field(default_factory=set[int])
    waiting: dict[_Place, _Judged] = field(default_factory=dict[_Place, _Judged])


class ObjectiveTurns:
    """Turns of objectives by source, service and cohort, at most 16 services and 32 cohorts; not thread-safe."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = tuple(objectives)
        self._services = LabelValues(SERVICES_MAX, lambda value: self._forget(1, value))
        self._cohorts = LabelValues(COHORTS_MAX, lambda value: self._forget(2, value))
        self._runs = RecentDict[tuple[str, Source], _ReportedRun](RUNS_MAX)
        # Those without a cohort begin at 0, so that the first turns are an increase for Prometheus, too.
        self._counts: dict[_Place, _Judged] = {(source, _UNKNOWN, _UNKNOWN): Counter() for source in _SOURCES}

    def count(self, turn: Turn, now_s: float) -> None:
        """Count a turn, unless it is of a ramp: ramps only show which values their run has. `now_s` is on a monotonic
        clock."""
        if not self._objectives:
            return
        run = self._run(turn)
        for number, objective in enumerate(self._objectives):
            if number not in run.valued and has_value(objective, turn):
                self._settle(run, number)
        if turn.phase_kind == RAMP:
            return
        day = service_day(turn.run_id)
        service = self._services.shown(_UNKNOWN if day is None else day.service, now_s)
        place = turn.source, service, self._cohorts.shown(turn.cohort, now_s)
        counts = self._counts.setdefault(place, Counter())
        for number, objective in enumerate(self._objectives):
            judgment = judge_turn(objective, turn, turn.source)
            if judgment is None:
                continue
            waits = judgment in _WAITING and number not in run.valued
            # An answer without a stated latency is open, whatever the other turns state.
            if waits and not (judgment is Judgment.NOT_STATED and objective.metric == HEADLINE):
                run.waiting.setdefault(place, Counter())[number, judgment] += 1
            else:
                counts[number, judgment] += 1

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """The families with the counts; a turn without a value of a stage that its run has is bad."""
        named = [(objective.name, series.stage_of(objective)) for objective in self._objectives]
        shown: dict[Family, Counter[tuple[str, ...]]] = {family: Counter() for family in (ELIGIBLE, GOOD, BAD, OPEN)}
        for place, judged in self._counts.items():
            for number, name in enumerate(named):
                labels = (*name, *place)
                for counter in shown.values():
                    counter[labels] += 0
                for judgment in Judgment:
                    count = judged[number, judgment]
                    shown[ELIGIBLE][labels] += count
                    shown[_SHOWN.get(judgment, OPEN)][labels] += count
        yield from (family.of(counter.items()) for family, counter in shown.items())
        yield TARGET.of(
            ((*name, objective.promise), objective.target)
            for name, objective in zip(named, self._objectives, strict=True)
        )

    def _run(self, turn: Turn) -> _ReportedRun:
        reported = turn.run_id, turn.source
        run = self._runs[reported] = self._runs.get(reported) or _ReportedRun()
        return run

    def _settle(self, run: _ReportedRun, number: int) -> None:
        """Count the turns of a run that waited for a value of an objective."""
        run.valued.add(number)
        for place, judged in run.waiting.items():
            for judgment in _WAITING:
                self._counts.setdefault(place, Counter())[number, judgment] += judged.pop((number, judgment), 0)

    def _forget(self, part: int, value: str) -> None:
        """Remove the series of a service or a cohort that was replaced by another."""
        for places in (self._counts, *(run.waiting for run in self._runs.values())):
            for place in [other for other in places if other[part] == value]:
                del places[place]
