"""Between which two values the statistics of a metric truly lie: their measurement bounds, and how people read them.

Each turn states an interval that holds the true value of a metric (telemetry.model.bounds). A statistic taken over the
lower bounds of all turns, and over the upper ones, has the true statistic between the two, because order statistics
keep the order of values that all moved the same way. That is about measuring, and not about sampling: it does not
shrink with more turns, and says nothing of turns that were not measured.

A turn whose bounds are not known may lie anywhere: it counts as minus and as plus infinity. Few of them among many
turns still leave a median known; where a statistic reaches one of them, nothing is stated.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self

from telemetry.model import formatting
from telemetry.model.bounds import Bounds, metric_bounds
from telemetry.model.metrics import Metric, MetricDefinition
from telemetry.model.turns import Turn

Statistic = Literal["p50", "p95", "p99", "max"]
STATISTICS: Final[tuple[Statistic, ...]] = ("p50", "p95", "p99", "max")
# Bounds that are nearer to the figure go without saying.
_STATED_FROM: Final = 0.01
# One of the last digit that people read: of milliseconds below and from 100 ms on, and of the others.
_LAST_DIGIT_NS: Final = (100_000.0, 1_000_000.0)
_WHOLE_FROM_NS: Final = 100_000_000.0
_LAST_DIGIT: Final = {"per_s": 0.1, "ratio": 0.01, "count": 1.0, "share": 0.001}


@dataclass(frozen=True, slots=True)
class MeasuredWithin:
    """The measurement bounds of each statistic of a metric, in its unit; None where there is no statistic, or where
    turns of unknown bounds leave it open."""

    p50: Bounds | None
    p95: Bounds | None
    p99: Bounds | None
    max: Bounds | None
    turns_unknown: int = 0  # of the turns that have a value: those that do not state its bounds

    @classmethod
    def exactly(cls, p50: float | None, p95: float | None, p99: float | None, largest: float | None) -> Self:
        """The statistics of what is counted, and not timed."""
        at = [None if each is None else (each, each) for each in (p50, p95, p99, largest)]
        return cls(p50=at[0], p95=at[1], p99=at[2], max=at[3])


def finite(lower: float | None, upper: float | None) -> Bounds | None:
    """Two values as bounds; None if one of them is not a finite number."""
    if lower is None or upper is None or not (math.isfinite(lower) and math.isfinite(upper)):
        return None
    return lower, upper


def measured_within(metric: MetricDefinition, figure: float | None, bounds: Bounds | None) -> str | None:
    """`measured within 806–818`, in the unit of the figure that it stands behind; None where the bounds are not known
    or differ from the figure by 1 % of it at most."""
    if figure is None or bounds is None:
        return None
    lower, upper = bounds
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return None
    if max(figure - lower, upper - figure) <= _STATED_FROM * abs(figure):
        return None
    return f"measured within {_between(metric, figure, bounds)}"


def turn_figures(turn: Turn, metrics: Iterable[Metric]) -> list[tuple[str, str]]:
    """The metrics that a turn has values of, by their names for people, each with its bounds where they are known and
    are not the value itself: `818 ms, within 806–818`."""
    found: list[tuple[str, str]] = []
    for metric in metrics:
        value, bounds = metric.value(turn), metric_bounds(turn, metric)
        if value is None:
            continue
        shown = metric.format(value)
        if bounds is None:
            shown += ", bounds not known"
        elif bounds != (value, value) and all(map(math.isfinite, bounds)):
            shown += f", within {_between(metric, value, bounds)}"
        found.append((metric.label, shown))
    return found


def turn_measured_within(turn: Turn, metric: Metric) -> str | None:
    """As `measured_within`, of a metric's value on one turn."""
    return measured_within(metric, metric.value(turn), metric_bounds(turn, metric))


def _between(metric: MetricDefinition, figure: float, bounds: Bounds) -> str:
    """The bounds of a figure without their unit, rounded outward; one that is the figure itself reads as that does."""
    low, high = (
        # What stands behind the sixth decimal comes from calculating in floating point.
        metric.format(value if value == figure else rounded(round(value / digit, 6)) * digit, unit=False)
        for value, rounded, digit in zip(
            bounds, (math.floor, math.ceil), (_last_digit(metric.kind, each) for each in bounds), strict=True
        )
    )
    # A dash between two numbers must not be read as the sign of the second.
    return f"{low}{' to ' if formatting.MINUS in low + high else '–'}{high}"


def _last_digit(kind: str, value: float) -> float:
    if kind == "ns":
        return _LAST_DIGIT_NS[abs(value) >= _WHOLE_FROM_NS]
    return _LAST_DIGIT[kind]
