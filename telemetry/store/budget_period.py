"""The period of error budgets, which ends now, in parts: the rings between the windows of the newest day, and each day
before. Every window is a sum of parts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from telemetry.objectives.error_budgets import DAY_NS, PERIOD_DAYS, SHORT_WINDOWS, SHOWN_WINDOWS, window_ns
from telemetry.store.answers import Filter

# Ends of the parts within the newest day, ns ago; behind them come whole days.
_RINGS: Final = tuple(
    sorted(length for name in (*SHORT_WINDOWS, *SHOWN_WINDOWS) if (length := window_ns(name)) <= DAY_NS)
)
# Ends of all parts, ns ago, the newest first.
_ENDS: Final = (*_RINGS, *(age * DAY_NS for age in range(2, PERIOD_DAYS + 1)))


def of_period(f: Filter, now_unix_ns: int) -> Filter:
    """A filter that means the turns of the longest window, whatever time it asked for."""
    return replace(f, since_unix_ns=now_unix_ns - PERIOD_DAYS * DAY_NS + 1, until_unix_ns=now_unix_ns + 1)


def part_column(now_unix_ns: int) -> tuple[str, Sequence[Any]]:
    """The part of the period in which a turn began, as an expression with its values."""
    age = "(? - started_unix_ns)"
    cases = " ".join(f"WHEN {age} < {end} THEN {place}" for place, end in enumerate(_RINGS))
    sql = f"CASE {cases} ELSE {len(_RINGS) - 1} + {age} // {DAY_NS} END"
    return sql, [now_unix_ns] * (len(_RINGS) + 1)


def end_ns(part: int) -> int:
    """How long ago a part of the period began."""
    return _ENDS[part]


def day_of(part: int) -> int:
    """The day of the period that a part is of, 0 the newest."""
    return max(0, part - len(_RINGS) + 1)
