"""How far figures may be off because it is not known exactly where the caller's speech began and ended.

A metric that counts from the beginning or the end of the caller's speech (`Metric.counts_from`) is as wrong as the
clip's annotation of that moment. That error is systematic, a clip has the same one each time it is said, so it does not
shrink with more turns. What is stated is therefore the worst case within what each clip states of itself: a statistic
taken over the values with every turn shifted down by its own uncertainty, and up. Whatever the true errors, as long as
each is within its clip's stated interval, the true statistic lies between the two, because order statistics keep the
order of values that were all moved the same way.

A turn whose uncertainty is not known may be anywhere: it counts as minus and as plus infinity. Few of them among many
turns still leave a median known; where a statistic reaches one of them, nothing is stated.

The instrument's own error (`instrument_ns`, as its calibration states it for voice_to_voice) is added on both sides of
voice_to_voice. It bounds 99 of 100 turns, and the clips' intervals hold with 95 %: what is stated is an estimate of the
worst case, not a guarantee.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from telemetry.model.metrics import METRICS, Metric
from telemetry.model.turns import Turn

# The calibration states one error, that of this metric.
CALIBRATED: Final = "voice_to_voice"

# 1,000 s or more bound nothing.
_MOST_BOUND_MS: Final = 1e6

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class StatedError:
    """Between which two values each statistic of a metric lies, in ns; None where there is no statistic, or where turns
    of unknown uncertainty leave no bound."""

    p50: Interval | None
    p95: Interval | None
    p99: Interval | None
    max: Interval | None
    turns_unknown: int  # of the turns that have a value: those whose clip does not state its uncertainty
    instrument_ns: float | None = None  # the part of the instrument in it; None: not calibrated, or not of this metric


@dataclass(frozen=True, slots=True)
class GoodRange:
    """How many turns would be good by an objective if all clips were annotated as wrongly as they state that they may
    be: too early, or too late, whichever is worse and better for the figure. Turns of unknown uncertainty count as they
    were measured, and are counted apart by that."""

    least: int
    most: int
    unknown_good: int
    unknown_bad: int

    @property
    def unknown(self) -> int:
        """Turns that an unknown uncertainty could make good or bad."""
        return self.unknown_good + self.unknown_bad


def calibrated_bound_ms(declared: object) -> float | None:
    """The bound of the instrument's error that a run declares, which may have come over the network; None of anything
    that is no bound."""
    try:
        bound_ms = float(str(declared))
    except ValueError:
        return None
    return bound_ms if 0.0 < bound_ms < _MOST_BOUND_MS else None


def uncertainty_ns(metric: Metric, turn: Turn) -> int | None:
    """How far the metric's value on a turn may be off for its clip's annotation; None where it is not known, or where
    the metric counts from neither bound of the speech."""
    return None if metric.counts_from is None else getattr(turn, f"{metric.counts_from}_uncertainty_ns")


def interval(low: float | None, high: float | None, instrument_ns: float | None) -> Interval | None:
    """Two quantiles as an interval with the instrument's error on both sides; None if one of them is not a number."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    widened = instrument_ns or 0.0
    return low - widened, high + widened


def instrument_part_ns(metric: Metric, instrument_ns: float | None) -> float | None:
    """The instrument's error where it is stated for this metric."""
    return instrument_ns if metric.name == CALIBRATED else None


def shifted(turn: Turn, metric: Metric, by_ns: int) -> Turn:
    """The turn as it would be had the bound of the speech that the metric counts from come `by_ns` later."""
    if metric.counts_from is None:
        return turn
    value = getattr(turn, metric.column, None)
    if value is not None:  # it was measured as such, not as a difference of two timestamps
        return msgspec.structs.replace(turn, **{metric.column: value - by_ns})
    name = f"{metric.counts_from}_perf_ns"
    moment = getattr(turn, name)
    return turn if moment is None else msgspec.structs.replace(turn, **{name: moment + by_ns})


def good_range(
    turns: Iterable[tuple[Turn, int]],
    metric_name: str,
    rule: Callable[[Turn], bool | None],
    instrument_ns: float | None,
) -> GoodRange:
    """The range of an objective on a metric, by its `rule`: whether a turn is good, None where it does not count.

    `turns` are turns, each with how many there are that are like it.
    """
    metric = METRICS[metric_name]
    part_ns = math.ceil(instrument_part_ns(metric, instrument_ns) or 0.0)
    least = most = unknown_good = unknown_bad = 0
    for turn, count in turns:
        measured = rule(turn)
        if measured is None:
            continue
        stated_ns = uncertainty_ns(metric, turn)
        by_ns = part_ns + (stated_ns or 0)
        verdicts = (rule(shifted(turn, metric, -by_ns)), rule(shifted(turn, metric, by_ns)))
        least += count if all(verdicts) else 0
        most += count if any(verdicts) else 0
        if stated_ns is None and metric.value(turn) is not None:
            unknown_good += count if measured else 0
            unknown_bad += 0 if measured else count
    return GoodRange(least, most, unknown_good, unknown_bad)


def pooled(ranges: Iterable[GoodRange | None]) -> GoodRange | None:
    """The range over the turns of several runs; None where one of them has none."""
    least = most = unknown_good = unknown_bad = 0
    for each in ranges:
        if each is None:
            return None
        least, most = least + each.least, most + each.most
        unknown_good, unknown_bad = unknown_good + each.unknown_good, unknown_bad + each.unknown_bad
    return GoodRange(least, most, unknown_good, unknown_bad)
