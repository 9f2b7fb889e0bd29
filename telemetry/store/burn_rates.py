"""Error budgets and burn rates of objectives over windows that end now, from one pass over the turns.

The turns of the longest window are told apart by the part of it in which they began: the rings between the windows of
the newest day, and each day before. Every window is a sum of parts, so no turn is read twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model.semconv import Source
from telemetry.objectives.error_budgets import (
    DAY_NS,
    PERIOD_DAYS,
    SHORT_WINDOWS,
    SHOWN_WINDOWS,
    EligibleTurns,
    ErrorBudget,
    error_budget,
    missed_first,
    window_ns,
)
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.objectives import counts_by_part
from telemetry.store.queries import Condition, judged

# Ends of the parts within the newest day, ns ago; behind them come whole days.
_RINGS: Final = tuple(
    sorted(length for name in (*SHORT_WINDOWS, *SHOWN_WINDOWS) if (length := window_ns(name)) <= DAY_NS)
)


@dataclass(frozen=True, slots=True)
class BurnRateAnswer:
    """The budgets, missed ones first, at a moment; `source` says whose turns count. `newest_unix_ns` is when the newest
    of them began, None without one."""

    at_unix_ns: int
    source: Source
    budgets: tuple[ErrorBudget, ...]
    newest_unix_ns: int | None = None


def burn_rates(
    connection: StoreConnection, objectives: Sequence[Objective], f: Filter, now_unix_ns: int
) -> BurnRateAnswer:
    """The objectives over their windows, of the filter's cohort, target and dimensions; its run and time are not looked
    at. The turns are those that callers heard, where there are any within the longest window, else those that services
    report."""
    begin = now_unix_ns - PERIOD_DAYS * DAY_NS
    named = {name: getattr(f, name) for name in f.__dataclass_fields__ if name not in _NOT_OF_A_WINDOW}
    within = judged(Filter(**named, since_unix_ns=begin + 1, until_unix_ns=now_unix_ns + 1)) & Condition(
        "outcome <> 'invalid'"
    )
    source, newest = _source(connection, within)
    where = within & Condition("source = ?", (source,))
    part, values = _part(now_unix_ns)
    found = counts_by_part(connection, where, (part, values), objectives, source)
    budgets = [_budget(objective, found.get(objective.name, {})) for objective in objectives]
    return BurnRateAnswer(now_unix_ns, source, missed_first(budgets), newest)


_NOT_OF_A_WINDOW: Final = ("run_id", "since_unix_ns", "until_unix_ns")


def _source(connection: StoreConnection, within: Condition) -> tuple[Source, int | None]:
    newest: dict[Source, int] = {
        row["source"]: row["newest"]
        for row in rows(
            connection,
            f"SELECT source, max(started_unix_ns) AS newest FROM turns WHERE {within.sql} GROUP BY source",  # noqa: S608 - names of ours
            within.values,
        )
    }
    source: Source = "client" if "client" in newest or "service" not in newest else "service"
    return source, newest.get(source)


def _part(now_unix_ns: int) -> tuple[str, list[int]]:
    """The part of the period in which a turn began, as an expression with its values."""
    age = "(? - started_unix_ns)"
    cases = " ".join(f"WHEN {age} < {end} THEN {place}" for place, end in enumerate(_RINGS))
    sql = f"CASE {cases} ELSE {len(_RINGS) - 1} + {age} // {DAY_NS} END"
    return sql, [now_unix_ns] * (len(_RINGS) + 1)


def _budget(objective: Objective, parts: Mapping[int, EligibleTurns]) -> ErrorBudget:
    def within(length_ns: int) -> EligibleTurns:
        taken = (counts for part, counts in parts.items() if _end_ns(part) <= length_ns)
        return sum(taken, EligibleTurns())

    days: dict[int, EligibleTurns] = {}
    for part, counts in parts.items():
        day = max(0, part - len(_RINGS) + 1)
        days[day] = days.get(day, EligibleTurns()) + counts
    return error_budget(objective, within, days)


def _end_ns(part: int) -> int:
    """How long ago a part of the period began."""
    return _RINGS[part] if part < len(_RINGS) else (part - len(_RINGS) + 2) * DAY_NS
