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
from dataclasses import dataclass
from typing import Final

from telemetry.model.metrics import Metric

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


def calibrated_bound_ms(declared: object) -> float | None:
    """The bound of the instrument's error that a run declares, which may have come over the network; None of anything
    that is no bound."""
    try:
        bound_ms = float(str(declared))
    except ValueError:
        return None
    return bound_ms if 0.0 < bound_ms < _MOST_BOUND_MS else None


def interval(low: float | None, high: float | None, instrument_ns: float | None) -> Interval | None:
    """Two quantiles as an interval with the instrument's error on both sides; None if one of them is not a number."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    widened = instrument_ns or 0.0
    return low - widened, high + widened


def instrument_part_ns(metric: Metric, instrument_ns: float | None) -> float | None:
    """The instrument's error where it is stated for this metric."""
    return instrument_ns if metric.name == CALIBRATED else None
