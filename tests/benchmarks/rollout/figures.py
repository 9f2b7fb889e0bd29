"""The figures of a row's rollouts, and whether they are within their limits."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.benchmarks.rollout.scenarios import Figure, Limit, Scenario
from tests.benchmarks.rollout.simulate import Simulated

# The other figures are shares of rollouts.
_MEDIANS: Final[tuple[Figure, ...]] = ("turns to roll back", "forecast at 25 %", "forecast at 50 %")


@dataclass(frozen=True)
class Share:
    """So many of so many rollouts, with a 95 % interval (Wilson 1927)."""

    number: int
    of: int

    @property
    def value(self) -> float:
        """The share itself; NaN of none."""
        return self.number / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Both bounds."""
        if not self.of:
            return 0.0, 1.0
        z = 1.959964
        middle = (self.value + z * z / (2 * self.of)) / (1 + z * z / self.of)
        half = z / (1 + z * z / self.of) * math.sqrt(self.value * (1 - self.value) / self.of + (z / (2 * self.of)) ** 2)
        return max(0.0, middle - half), min(1.0, middle + half)

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
        return self._share(each.verdict == "roll_back" for each in self.rollouts)

    @property
    def promoted(self) -> Share:
        """The share of all rollouts that were promoted."""
        return self._share(each.verdict == "promote" for each in self.rollouts)

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
                return [each.verdict == verdict for each in every]
            case "promoted by the primary check":
                return [each.primary_turns is not None for each in every]
            case "rolled back by cache misses":
                return ["cache_misses" in each.worse for each in every]
            case "aware of the gap":
                return [any("gap" in reason for reason in each.reasons) for each in every if each.verdict == "hold"]
            case "turns to roll back":
                return [self._turns_to_roll_back(each) for each in every]
            case "forecast at 25 %" | "forecast at 50 %":
                place = 0 if figure == "forecast at 25 %" else 1
                # A promotion that no look could forecast counts as one that it said would never come.
                forecasts = [each.forecasts[place] for each in every if each.forecasts]
                return [math.inf if each is None else each for each in forecasts]

    def _turns_to_roll_back(self, of: Simulated) -> float:
        """Return the turns from the onset of the change; infinity without a roll back. Before the onset no roll back is
        one for it."""
        turns = of.turns - self.scenario.change.onset
        return turns if of.verdict == "roll_back" and turns > 0 else math.inf

    def median_of_promoted(self) -> float:
        """The median of the turns over the rollouts that were promoted; NaN without any."""
        turns = [each.turns for each in self.rollouts if each.verdict == "promote"]
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
        under, over = (each <= limit.most for each in values), (each >= limit.least for each in values)
        return all(Share(sum(those), len(values)).interval[1] >= 0.5 for those in (under, over))

    def by(self) -> str:
        """The checks that rolled back, and how often."""
        return _counted(kind for each in self.rollouts for kind in each.worse)

    def waiting_for(self) -> str:
        """The checks that were not decided at the end, and how often."""
        return _counted(kind for each in self.rollouts for kind in each.waiting)

    def document(self) -> dict[str, object]:
        """All that is known of it, as JSON has it."""
        named: Sequence[Figure] = ("rolled back", "promoted", "promoted by the primary check", "turns to roll back")
        named = (*named, "forecast at 25 %", "forecast at 50 %", "aware of the gap")
        found: dict[str, object] = {"scenario": self.scenario.name, "rollouts": len(self.rollouts)}
        found |= {figure: _finite(self.figure(figure)) for figure in named}
        found |= {"rolled back, 95 %": self.rolled_back.interval, "promoted, 95 %": self.promoted.interval}
        found["turns to promote"] = _finite(self.median_of_promoted())
        found["checks that rolled back"] = self.by()
        found["checks not decided at the end"] = self.waiting_for()
        found["missed"] = [described(limit) for limit in self.missed()]
        return found

    def _share(self, those: Iterable[bool]) -> Share:
        return Share(sum(those), len(self.rollouts))


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
