"""The search for the next number of callers to try. Pure.

Upwards by doubling until a step misses, then by halving the interval between the highest step that is met and the
lowest that is missed, until the two are close enough. Where a step is missed below one that is met, the lower counts:
a capacity is what holds, not what held once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallerRange:
    """`met` is the highest step met below every missed one, `missed` the lowest missed one; None if unknown."""

    met: int | None
    missed: int | None


def bounds(judged: Mapping[int, bool]) -> CallerRange:
    """Return what the steps judged so far say: `judged` maps callers to met (True) or missed (False)."""
    missed = min((callers for callers, met in judged.items() if not met), default=None)
    met = max(
        (callers for callers, held in judged.items() if held and (missed is None or callers < missed)), default=None
    )
    return CallerRange(met, missed)


def next_step(judged: Mapping[int, bool], *, first: int, most: int, resolution: float) -> int | None:
    """Return how many callers to try next; None when the capacity is known to `resolution` (a share of it), when not
    even one caller is served, or when `most` are.

    Raises ValueError unless 1 <= first <= most and resolution > 0.
    """
    if not 1 <= first <= most or resolution <= 0:
        raise ValueError(f"no search from {first} to {most} callers with a resolution of {resolution}")
    if not judged:
        return first
    bracket = bounds(judged)
    if bracket.missed is None:
        return None if bracket.met is None or bracket.met >= most else min(2 * bracket.met, most)
    if bracket.met is None:
        return None if bracket.missed <= 1 else bracket.missed // 2
    close_enough = max(1, math.floor(resolution * bracket.met))
    if bracket.missed - bracket.met <= close_enough:
        return None
    return (bracket.met + bracket.missed) // 2
