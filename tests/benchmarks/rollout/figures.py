"""The figures of a row's rollouts, and whether they are within their limits."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from telemetry.model.intervals import wilson_interval
from tests.benchmarks.rollout.scenarios import Figure, Limit, Scenario
from tests.benchmarks.rollout.simulate import Simulated

# The other figures are shares of rollouts.
_MEDIANS: Final[tuple[Figure, ...]] = ("turns to roll back", "forecast at 25 %", "forecast at 50 %")


@dataclass(frozen=True)
class Share:
    """So many of so many simulations, with a 95 % interval (Wilson 1927)."""

    number: int
    of: int

    @classmethod
    def count(cls, outcomes: Iterable[bool]) -> "Share":
        """Return the share of simulations for which it is true."""
        known = list(outcomes)
        return cls(sum(known), len(known))

    @property
    def value(self) -> float:
        """The share itself; NaN of none."""
        return self.number / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Both bounds."""
        return wilson_interval(self.number, self.of) or (0.0, 1.0)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % ({100 * low:.1f}-{100 * high:.1f})"


@dataclass(frozen=True)
class Row:
    """A scenario and its rollouts."""

    scenario: Scenario
    rollouts: tuple[Simulated, ...]

    @property
    def rolled_back(self) -> Share:
        """The share of all rollouts that were rolled back."""
        return Share.count(rollout.verdict == "roll_back" for rollout in self.rollouts)

    @property
    def promoted(self) -> Share:
        """The share of all rollouts that were promoted."""
        return Share.count(rollout.verdict == "promote" for rollout in self.rollouts)

    def figure(self, figure: Figure) -> float:
        """Its value: a share of rollouts, or the median of their values; NaN of none."""
        values = self._values(figure)
        if not values:
            return math.nan
        return float(np.median(values) if figure in _MEDIANS else np.mean(values))

    def _values(self, figure: Figure) -> list[float]:
        """One value for each rollout that it is about; of a share 0 or 1."""
        every = self.rollouts
        match figure:
            case "rolled back" | "promoted":
                verdict = "promote" if figure == "promoted" else "roll_back"
                return [rollout.verdict == verdict for rollout in every]
            case "promoted by the primary check":
                return [rollout.primary_turns is not None for rollout in every]
            case "rolled back by cache misses":
                return ["cache_misses" in rollout.worse for rollout in every]
            case "aware of the gap":
                return [
                    any("gap" in reason for reason in rollout.reasons) for rollout in every if rollout.verdict == "hold"
                ]
            case "turns to roll back":
                return [self._turns_to_roll_back(rollout) for rollout in every]
            case "forecast at 25 %" | "forecast at 50 %":
                place = 0 if figure == "forecast at 25 %" else 1
                # A promotion that no look could forecast counts as one that it said would never come.
                forecasts = [rollout.forecasts[place] for rollout in every if rollout.forecasts]
                return [math.inf if forecast is None else forecast for forecast in forecasts]

    def _turns_to_roll_back(self, of: Simulated) -> float:
        """Return the turns from the onset of the change; infinity without a roll back. Before the onset no roll back is
        one for it."""
        turns = of.turns - self.scenario.change.onset
        return turns if of.verdict == "roll_back" and turns > 0 else math.inf

    def median_of_promoted(self) -> float:
        """The median of the turns over the rollouts that were promoted; NaN without any."""
        turns = [rollout.turns for rollout in self.rollouts if rollout.verdict == "promote"]
        return float(np.median(turns)) if turns else math.nan

    def missed(self) -> tuple[Limit, ...]:
        """The limits that it does not keep. What cannot be said keeps none."""
        return tuple(
            limit for limit in self.scenario.limits if not limit.least <= self.figure(limit.figure) <= limit.most
        )

    def surely_missed(self) -> tuple[Limit, ...]:
        """The limits that lie outside of the figure's 95 % interval: few rollouts show them to be missed. A median is
        at most its limit where at least half of the values are."""
        return tuple(limit for limit in self.scenario.limits if not self._may_keep(limit))

    def _may_keep(self, limit: Limit) -> bool:
        values = self._values(limit.figure)
        if limit.figure not in _MEDIANS:
            low, high = Share(int(sum(values)), len(values)).interval
            return low <= limit.most and high >= limit.least
        under, over = (value <= limit.most for value in values), (value >= limit.least for value in values)
        return all(Share.count(those).interval[1] >= 0.5 for those in (under, over))

    def by(self) -> str:
        """The checks that rolled back, and how often."""
        return _counted(kind for rollout in self.rollouts for kind in rollout.worse)

    def waiting_for(self) -> str:
        """The checks that were not decided at the end, and how often."""
        return _counted(kind for rollout in self.rollouts for kind in rollout.waiting)

    def document(self) -> dict[str, object]:
        """All that is known of it, as JSON has it."""
        named: Sequence[Figure] = ("rolled back", "promoted", "promoted by the primary check", "turns to roll back")
        named = (*named, "forecast at 25 %", "forecast at 50 %", "aware of the gap")
        row: dict[str, object] = {"scenario": self.scenario.name, "rollouts": len(self.rollouts)}
        row |= {figure: _finite(self.figure(figure)) for figure in named}
        row |= {"rolled back, 95 %": self.rolled_back.interval, "promoted, 95 %": self.promoted.interval}
        row["turns to promote"] = _finite(self.median_of_promoted())
        row["checks that rolled back"] = self.by()
        row["checks not decided at the end"] = self.waiting_for()
        row["missed"] = [described(limit) for limit in self.missed()]
        return row


def _counted(kinds: Iterable[str]) -> str:
    return ", ".join(f"{kind} {times}" for kind, times in Counter(kinds).most_common())


def described(limit: Limit) -> str:
    """A limit for people."""
    bounds = [
        f"{sign} {_number(limit.figure, bound)}"
        for sign, bound in (("at least", limit.least), ("at most", limit.most))
        if math.isfinite(bound)
    ]
    return f"{limit.figure} {' and '.join(bounds)}"


def _number(figure: Figure, value: float) -> str:
    if figure == "turns to roll back":
        return f"{value:,.0f}"
    return f"{value:.2f}" if figure.startswith("forecast") else f"{100 * value:g} %"


def _finite(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None
