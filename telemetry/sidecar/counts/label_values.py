"""Which values of a label are distinguished, and which combinations of values have a place among the counts.

Label values come from senders, so their number and length are bounded, for each label by itself: a value beyond its
label's limit is `other` in that label alone. When a limit is reached, a value that no turn has had for `IDLE_S` gives
way to a new one, so that the cohort of a late rollout is seen however many there were before it. Its series end; they
are never set back while they are shown. If the value comes back, its series begin at 0 again, which Prometheus reads as
the counter reset of a restarted process.

The limits of the labels multiply, so the combinations have a limit too, far above what a service uses at the same time.
Beyond it a combination keeps what tells rollouts apart, cohort and route, and is `other` in tier and model; for all of
those there is always a place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line

LABELS: Final = ("cohort", "route", "tier", "model")
OTHER: Final = "other"
COHORTS_MAX: Final = 32
MODELS_MAX: Final = 16
COMBINATIONS_MAX: Final = 384
# Three times as long as Prometheus looks back for a sample of a series: nobody still sees one that ends.
IDLE_S: Final = 900.0
_CHARS_MAX: Final = 64

Combination = tuple[str, str, str, str]


class LabelValues:
    """The values of one label: at most `limit` are distinguished, besides "" (unknown) and `other`.

    A value has at most 64 characters, on one line; two that differ only behind them are one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen_s: dict[str, float] = {}  # the one seen last stands last

    def take(self, values: Sequence[str], now_s: float) -> tuple[list[str], list[str]]:
        """The values to show for those that were sent, one each, and the values that were given up for new ones."""
        names = [one_line(value, _CHARS_MAX) for value in values]
        for name in names:
            if name in self._seen_s:  # before new ones are taken: what is in use does not give way
                del self._seen_s[name]
                self._seen_s[name] = now_s
        given_up: list[str] = []
        return [self._take(name, now_s, given_up) for name in names], given_up

    def _take(self, name: str, now_s: float, given_up: list[str]) -> str:
        if name in ("", OTHER) or name in self._seen_s:
            return name
        if len(self._seen_s) >= self._limit:
            oldest = next(iter(self._seen_s))
            if now_s - self._seen_s[oldest] < IDLE_S:
                return OTHER
            del self._seen_s[oldest]
            given_up.append(oldest)
        self._seen_s[name] = now_s
        return name


class Vocabulary:
    """The values of a label whose values are ours: one that is not among them is `other`."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = frozenset(("", *values))

    def take(self, values: Sequence[str], now_s: float) -> tuple[list[str], list[str]]:
        """The values to show for those that were sent, one each; none is ever given up."""
        return [value if value in self._values else OTHER for value in values], []


@dataclass(frozen=True, slots=True)
class Assigned:
    """The place of each combination asked for; first, `cleared` places were emptied, then `named` ones taken."""

    places: list[int]
    cleared: list[int] = field(default_factory=list[int])
    named: dict[int, Combination] = field(default_factory=dict[int, Combination])


class Combinations:
    """Gives each combination of label values a place, a row in the arrays of counts. Not thread-safe."""

    def __init__(self) -> None:
        self.labels: tuple[LabelValues | Vocabulary, ...] = (
            LabelValues(COHORTS_MAX),
            Vocabulary(semconv.ROUTES),
            Vocabulary(semconv.CACHE_TIERS),
            LabelValues(MODELS_MAX),
        )
        self._free = list(range(PLACES))
        self._whole: dict[
            Combination, tuple[int, float]
        ] = {}  # place and when last seen; the one seen last stands last
        self._reduced: dict[Combination, tuple[int, float]] = {}

    def assign(self, asked: Sequence[Combination], given_up: Sequence[Sequence[str]], now_s: float) -> Assigned:
        """The places of combinations, after the values given up (of each label) have lost theirs."""
        cleared: list[int] = []
        for label, values in enumerate(given_up):
            for value in values:
                cleared += self._without(self._whole, label, value) + self._without(self._reduced, label, value)
        for combination in asked:
            self._known(combination, now_s)  # before new ones take a place: what is in use does not give way
        named: dict[int, Combination] = {}
        return Assigned([self._place(each, now_s, cleared, named) for each in asked], cleared, named)

    def _without(self, known: dict[Combination, tuple[int, float]], label: int, value: str) -> list[int]:
        places = [known.pop(each)[0] for each in list(known) if each[label] == value]
        self._free += places
        return places

    def _known(self, combination: Combination, now_s: float) -> int | None:
        for known in (self._whole, self._reduced):
            if (found := known.pop(combination, None)) is not None:
                known[combination] = (found[0], now_s)
                return found[0]
        return None

    def _place(self, combination: Combination, now_s: float, cleared: list[int], named: dict[int, Combination]) -> int:
        if (place := self._known(combination, now_s)) is not None:
            return place
        among = self._whole
        if len(self._whole) >= COMBINATIONS_MAX:
            oldest, (place, seen_s) = next(iter(self._whole.items()))
            if now_s - seen_s >= IDLE_S:
                del self._whole[oldest]
                self._free.append(place)
                cleared.append(place)
            else:
                among, combination = self._reduced, (combination[0], combination[1], OTHER, OTHER)
                if (place := self._known(combination, now_s)) is not None:
                    return place
        place = self._free.pop()
        among[combination] = (place, now_s)
        named[place] = combination
        return place


# Every combination in whole, and each pair of cohort and route once more (both may be unknown or `other` too).
PLACES: Final = COMBINATIONS_MAX + (COHORTS_MAX + 2) * (len(semconv.ROUTES) + 2)
