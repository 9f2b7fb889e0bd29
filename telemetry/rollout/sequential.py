"""Bounds that hold however often, and whenever, somebody looks.

A difference is estimated again and again while turns arrive. On the scale of information (1 / standard error²), divided
by the information that was planned, the estimate × information is a Brownian motion with drift (Jennison & Turnbull,
*Group Sequential Methods*, 2000, ch. 3; for quantiles by Bahadur's representation). `information` 1.0 is the plan's.

The boundary on that motion is O'Brien and Fleming's (1979) constant up to the planned information, taken to the limit
of looking all the time; from there on it grows as slowly as it may, so that a rollout can go on beyond its plan and its
bounds go on closing::

    crossed at information t   when   z >= c / sqrt(t)   for t <= 1   and   z >= c * sqrt(1 + ln t)   for t > 1

Up to t = 1 a motion without drift crosses it with probability 2 Φ(-c), by the reflection principle. Beyond, the
boundary is tangent at t = 1 to the line through the origin, on which another Φ(-c) at most is added (Siegmund,
*Sequential Analysis*, 1985, ch. 3: exp(-2 a d) for a line at distance a with slope d); that the curve, which lies below
the line, adds no more than this either is shown by numerical integration in the tests, for error levels up to
LARGEST_LEVEL. So c = -Φ⁻¹(level / 3).

There is no schedule of looks to keep to, and no error is spent by looking; the price is about a third more turns than
one single look at the end would need.
"""

import math
from typing import Final

import scipy

LARGEST_LEVEL: Final = 0.15


def crossing_probability(critical: float) -> float:
    """How likely, at most, a difference of zero ever crosses the boundary with this `critical` value, in one direction.

    Raises ValueError for a negative value.
    """
    if critical < 0:
        raise ValueError(f"a critical value is 0 or more, not {critical}")
    return min(1.0, 3 * float(scipy.special.ndtr(-critical)))


def critical_value(error_level: float) -> float:
    """The critical value whose boundary is ever crossed with probability `error_level` at most, in one direction.

    Raises ValueError unless the level is above 0 and at most LARGEST_LEVEL.
    """
    if not 0 < error_level <= LARGEST_LEVEL:
        raise ValueError(f"an error level lies above 0 and is at most {LARGEST_LEVEL}, not {error_level}")
    return -float(scipy.special.ndtri(error_level / 3))


def stretch(information: float) -> float:
    """By how much the boundary lies farther out than at the planned information, in standard errors; infinity without
    information."""
    if information <= 0:
        return math.inf
    return 1 / math.sqrt(information) if information <= 1 else math.sqrt(1 + math.log(information))


def boundary(error_level: float, information: float) -> float:
    """How many standard errors from zero the bounds lie; infinity without information."""
    return critical_value(error_level) * stretch(information)


def sequential_p_value(z: float, information: float) -> float:
    """The smallest error level whose boundary `z` standard errors cross at this information: a p-value that may be
    looked at all the time (one-sided, 1 at most)."""
    return crossing_probability(z / stretch(information)) if z > 0 else 1.0


def planned_information(margin: float, error_level: float, power: float) -> float:
    """The information at which a candidate that does not differ is shown to lie within `margin` with probability
    `power` at least.

    Raises ValueError unless the margin is positive and the power lies between 0.5 and 1.
    """
    if not (margin > 0 and 0.5 <= power < 1):
        raise ValueError(f"a margin above 0 and a power of at least 0.5 are needed, not {margin} and {power}")
    return ((critical_value(error_level) + float(scipy.special.ndtri(power))) / margin) ** 2


def holm(p_values: dict[str, float], error_level: float) -> dict[str, bool]:
    """Which of several hypotheses are rejected when the chance of any false rejection stays below `error_level`.

    Holm, *A simple sequentially rejective multiple test procedure*, Scand. J. Statist. 6 (1979).
    """
    rejected = dict.fromkeys(p_values, False)
    for rank, name in enumerate(sorted(p_values, key=lambda each: p_values[each])):
        if p_values[name] > error_level / (len(p_values) - rank):
            break
        rejected[name] = True
    return rejected
