"""Good and eligible turns of objectives from a roll-up, exactly; the rule is `telemetry.objectives.slo.is_good`.

Histograms have an edge at each whole millisecond, and their edges belong to the bucket below, so the turns within a
threshold of whole milliseconds are counted exactly. Other objectives are not answered from a roll-up (`can_count`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from telemetry.model.metrics import CONNECT, METRICS, NOT_OF_AN_ANSWER
from telemetry.model.stated_error import GoodRange, instrument_part_ns
from telemetry.objectives.slo import SETTLED, Objective
from telemetry.store.objectives import ObjectiveCount, ObjectiveCounts
from telemetry.store.rollups.buckets import DURATIONS, EXACT_UP_TO_NS, MILLISECOND_NS
from telemetry.store.rollups.figures import RolledFigures
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.rollups.rollup import Key, RollupCell
from telemetry.store.rollups.statements import SILENT

# A turn without a value of this metric is bad.
_VOICE_TO_VOICE: Final = "voice_to_voice"
# What a roll-up does not tell turns apart by.
_OTHER_DIMENSIONS: Final = ("length_class", "noise_profile", "channel_profile", "route")
_WITHOUT_ANSWER: Final = ("unanswered", "first")
# The cells that objectives are counted from.
COUNTED_PARTS: Final = ("turns", "metric", "waited", "withheld_turns", "withheld")


def can_count(objective: Objective, instrument_ns: float | None) -> bool:
    """Whether a roll-up tells the objective's turns, and the good ones of them, exactly."""
    if any(getattr(objective, name) is not None for name in _OTHER_DIMENSIONS):
        return False
    if objective.metric is None:
        return True
    metric, threshold = METRICS[objective.metric], objective.threshold
    if metric.unit != "ns" or metric.higher_is_better or threshold is None:
        return False
    part_ns = math.ceil(instrument_part_ns(metric, instrument_ns) or 0.0)
    return all(_is_edge(threshold + by) for by in (-part_ns, 0, part_ns))


def _is_edge(value: float) -> bool:
    return 0 <= value <= EXACT_UP_TO_NS and value % MILLISECOND_NS == 0


def count_objectives(
    figures: RolledFigures, objectives: Sequence[Objective], instrument_ns: float | None
) -> ObjectiveCounts:
    """Objectives of which each `can_count`, over the filter's turns and over each of their cohorts."""
    whole, cohorts = _Turns(), defaultdict[str, _Turns](_Turns)
    for part in COUNTED_PARTS:
        for key, cell in figures.judged(part):
            whole.take(key, cell)
            if key.cohort is not None:
                cohorts[key.cohort].take(key, cell)

    def of(objective: Objective, cohort: str | None) -> ObjectiveCount:
        wanted = objective.cohort if cohort is None else cohort
        if objective.cohort not in (None, wanted):
            return _Turns().count(objective, instrument_ns)
        return (whole if wanted is None else cohorts[wanted]).count(objective, instrument_ns)

    known = sorted(cohort for cohort, turns in cohorts.items() if turns.labels)
    return ObjectiveCounts(
        {objective.name: of(objective, None) for objective in objectives},
        {cohort: {objective.name: of(objective, cohort) for objective in objectives} for cohort in known},
    )


@dataclass(slots=True)
class _Turns:
    """The valid turns of one cohort, or of all: by what rules ask of them."""

    labels: Counter[tuple[str | None, ...]] = field(default_factory=Counter[tuple[str | None, ...]])
    withheld_turns: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])  # by metric and kind
    values: defaultdict[tuple[str, str], list[tuple[str, Histogram]]] = field(  # by metric and side: kinds, values
        default_factory=lambda: defaultdict[tuple[str, str], list[tuple[str, Histogram]]](list)
    )
    reasons: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])  # the earliest, by metric

    def take(self, key: Key, cell: RollupCell) -> None:
        """Count a cell."""
        first, second = (*key.labels, "", "")[:2]
        match key.part:
            case "turns":
                if second != "invalid":
                    self.labels[key.labels] += cell.n
            case "withheld_turns":
                self.withheld_turns[second or "", first or ""] += cell.n
            case "withheld":
                reason = (cell.first or 0, second or f"this wire does not show {first}")
                self.reasons[first or ""] = min(self.reasons.get(first or "", reason), reason)
            case "waited" if cell.histogram is not None:
                self.values[second or "", "waited"].append((first or "", cell.histogram))
            case "metric" if cell.histogram is not None and not key.labels[2]:
                self.values[second or "", key.labels[3] or ""].append((first or "", cell.histogram))
            case _:  # a value that is withheld decides nothing
                pass

    def count(self, objective: Objective, instrument_ns: float | None) -> ObjectiveCount:
        """The turns of one objective, whichever cohort it is about."""
        if objective.metric is not None:
            return self._of_metric(objective.metric, int(objective.threshold or 0), instrument_ns)
        good = eligible = 0
        for (kind, outcome, fallback, route, _, cache_hit, _), n in self.labels.items():
            if (kind or "").startswith(SILENT):
                continue
            verdict: bool | None
            if objective.kind == "outcome":
                verdict = None if outcome == "cut" else outcome in objective.outcomes
            elif objective.kind == "fallback":
                verdict = None if fallback is None and route is None else fallback is None
            else:
                verdict = None if cache_hit is None else cache_hit == "true"
            eligible += 0 if verdict is None else n
            good += n if verdict else 0
        return ObjectiveCount(good, eligible)

    def _of_metric(self, name: str, threshold: int, instrument_ns: float | None) -> ObjectiveCount:
        rule = _Rule.of(name)
        good, bad = self._split(name, ("known", "unknown"), rule.by_value, threshold)
        bad += sum(self._turns(name, kind) for kind in rule.bad)
        bad += sum(self._turns(name, kind) - self._valued(name, kind) for kind in rule.bad_without_value)
        bad += self._split(name, ("waited",), rule.cut, threshold)[1]
        if name not in SETTLED:
            bad += self._split(name, ("known", "unknown"), rule.cut, threshold)[1]
        withheld = None if good + bad else self.reasons.get(name, (0, None))[1]
        return ObjectiveCount(good, good + bad, withheld, self._range(name, rule, threshold, instrument_ns))

    def _range(self, name: str, rule: "_Rule", threshold: int, instrument_ns: float | None) -> GoodRange | None:
        """As `telemetry.model.stated_error.good_range`."""
        if METRICS[name].counts_from is None:
            return None
        part_ns = math.ceil(instrument_part_ns(METRICS[name], instrument_ns) or 0.0)
        least = sum(self._split(name, (side,), rule.by_value, threshold - part_ns)[0] for side in ("high", "unknown"))
        most = sum(self._split(name, (side,), rule.by_value, threshold + part_ns)[0] for side in ("low", "unknown"))
        unknown_good, unknown_bad = self._split(name, ("unknown",), rule.by_value, threshold)
        unknown_bad += sum(self._split(name, ("unknown",), rule.bad, threshold))
        if name not in SETTLED:
            unknown_bad += self._split(name, ("unknown",), rule.cut, threshold)[1]
        return GoodRange(least, most, unknown_good, unknown_bad)

    def _split(self, name: str, sides: Iterable[str], kinds: frozenset[str], threshold: int) -> tuple[int, int]:
        """How many values of these kinds of turns are within the threshold, and how many beyond."""
        bucket = _bucket(threshold)
        within = every = 0
        for side in sides:
            for kind, histogram in self.values[name, side]:
                if kind in kinds:
                    within += histogram.up_to(bucket)
                    every += histogram.n
        return within, every - within

    def _turns(self, name: str, kind: str) -> int:
        """The turns of a kind that do not withhold the metric."""
        turns = sum(n for labels, n in self.labels.items() if labels[0] == kind)
        return turns - self.withheld_turns[name, kind]

    def _valued(self, name: str, kind: str) -> int:
        return sum(self._split(name, ("known", "unknown"), frozenset({kind}), 0))


@lru_cache(maxsize=1024)
def _bucket(threshold: int) -> int:
    """The bucket of a threshold, which is asked for each of many sums."""
    return int(DURATIONS.buckets(np.array([threshold]))[0])


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which kinds of turns an objective on a metric judges by their value, which are bad whatever it is, which are bad
    without one, and which were cut."""

    by_value: frozenset[str]
    bad: frozenset[str]
    bad_without_value: frozenset[str]
    cut: frozenset[str]

    @classmethod
    def of(cls, metric: str) -> "_Rule":
        """The rule of a metric."""
        # A call is taken or not, whatever its caller does then: a silent turn counts, too.
        prefixes = ("", SILENT) if metric == CONNECT else ("",)

        def kinds(*names: str) -> frozenset[str]:
            return frozenset(prefix + name for prefix in prefixes for name in names)

        bad = () if metric in NOT_OF_AN_ANSWER else _WITHOUT_ANSWER
        without = {CONNECT: ("first",), _VOICE_TO_VOICE: ("answered",)}.get(metric, ())
        cut = kinds("cut")
        by_value = kinds("answered", *(kind for kind in _WITHOUT_ANSWER if kind not in bad))
        return cls(by_value | cut if metric in SETTLED else by_value, kinds(*bad), kinds(*without), cut)
