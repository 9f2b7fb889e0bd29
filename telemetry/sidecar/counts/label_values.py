"""Limits on the number of distinct values of a label and of their combinations.

Label values come from senders, so their number and length are bounded, for each label separately: a value beyond its
label's limit is `other` in that label alone. When a limit is reached, a value that no turn has had for `IDLE_S` is
replaced by a new one, so that the cohort of a late rollout is visible however many there were before it. Its series
end; they are never reset while they are exposed. If the value comes back, its series begin at 0 again, which Prometheus
reads as the counter reset of a restarted process.

The limits of the labels multiply, so the number of combinations is limited too, far above what a service uses at the
same time. Beyond it a combination keeps the labels that distinguish rollouts, cohort and route, and is `other` in tier
and model; there is always room for all of those.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line

LABELS: Final = ("cohort", "route", "tier", "model")
OTHER: Final = "other"
COHORTS_MAX: Final = 32
MODELS_MAX: Final = 16
COMBINATIONS_MAX: Final = 384
# Every combination in whole, and each pair of cohort and route once more (both may be unknown or `other` too).
PLACES: Final = COMBINATIONS_MAX + (COHORTS_MAX + 2) * (len(semconv.ROUTES) + 2)
# Three times Prometheus's lookback for a sample: a series that ends is no longer visible.
IDLE_S: Final = 900.0
_CHARS_MAX: Final = 64
_ROUTES: Final = frozenset(("", *semconv.ROUTES))
_TIERS: Final = frozenset(("", *semconv.CACHE_TIERS))

Combination = tuple[str, str, str, str]
_Key = TypeVar("_Key", bound=Hashable)


class _Lately(Generic[_Key]):
    """A set of at most `limit` keys: a new one replaces the key that has been idle for longest, once it is idle for
    `IDLE_S`, and `forget` is called with that."""

    def __init__(self, limit: int, forget: Callable[[_Key], None]) -> None:
        self._limit = limit
        self._forget = forget
        self._seen_s: dict[_Key, float] = {}  # the one seen last is at the end

    def has_place(self, key: _Key, now_s: float) -> bool:
        """Record the use of a key; return whether it is among the distinct ones."""
        if self._seen_s.pop(key, None) is None and len(self._seen_s) >= self._limit:
            oldest = next(iter(self._seen_s))
            if now_s - self._seen_s[oldest] < IDLE_S:
                return False
            del self._seen_s[oldest]
            self._forget(oldest)
        self._seen_s[key] = now_s
        return True


class LabelValues:
    """The values of one label: at most `limit` distinct ones, besides "" (unknown) and `other`.

    A value has at most 64 characters, on one line; values that differ only after them are one. `forget` is called with
    a value that was replaced.
    """

    def __init__(self, limit: int, forget: Callable[[str], None]) -> None:
        self._values = _Lately(limit, forget)

    def shown(self, value: str | None, now_s: float) -> str:
        """The value to expose for a received one."""
        name = one_line(value or "", _CHARS_MAX)
        return name if name in ("", OTHER) or self._values.has_place(name, now_s) else OTHER


class Combinations:
    """The combinations of cohort, route, tier and model; `forget` is called with the labels whose series end."""

    def __init__(self, forget: Callable[[dict[str, str]], None]) -> None:
        self._cohorts = LabelValues(COHORTS_MAX, lambda value: forget({"cohort": value}))
        self._models = LabelValues(MODELS_MAX, lambda value: forget({"model": value}))
        self._whole = _Lately[Combination](
            COMBINATIONS_MAX, lambda combination: forget(dict(zip(LABELS, combination, strict=True)))
        )

    def shown(
        self, cohort: str | None, route: str | None, tier: str | None, model: str | None, now_s: float
    ) -> Combination:
        """The labels to expose for those of a turn."""
        labels = (
            self._cohorts.shown(cohort, now_s),
            route or "" if (route or "") in _ROUTES else OTHER,
            tier or "" if (tier or "") in _TIERS else OTHER,
            self._models.shown(model, now_s),
        )
        return labels if self._whole.has_place(labels, now_s) else (labels[0], labels[1], OTHER, OTHER)
