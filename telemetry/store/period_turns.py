"""The turns of a filter in the period of error budgets: by objective and part of the period, and by run. All from the
turns themselves."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from telemetry.model.semconv import Source
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.budget_period import of_period, part_column
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.objectives import counts_by_part
from telemetry.store.questions.filters import Condition, judged
from telemetry.store.turns_of_runs import CountedTurns, turns_by_run

Counts = dict[str, dict[int, EligibleTurns]]  # by objective and part of the period


@dataclass(frozen=True, slots=True)
class PeriodTurns:
    """Turns of a `source`, none of a ramp: those of each objective by part of the period, by run all that were asked
    something, and when the newest valid one began (Unix ns), None without one."""

    source: Source
    counts: Counts
    by_run: Mapping[str, CountedTurns] = field(default_factory=dict[str, CountedTurns])
    newest_unix_ns: int | None = None


def turns_of_period(
    connection: StoreConnection, objectives: Sequence[Objective], f: Filter, now_unix_ns: int
) -> PeriodTurns:
    """The turns of the filter's run, cohort, target, phase and dimensions; its time is not looked at. Those that
    callers heard, where a valid one is among them, else those that services report."""
    f = of_period(f, now_unix_ns)
    where = judged(f)
    newest: dict[Source, int] = {
        row["source"]: row["newest"]
        for row in rows(
            connection,
            f"SELECT source, max(started_unix_ns) AS newest FROM turns WHERE ({where.sql}) AND outcome <> 'invalid'"
            " GROUP BY source",
            where.values,
        )
    }
    source: Source = "service" if "service" in newest and "client" not in newest else "client"
    asked = where & Condition("source = ?", (source,))
    counts = counts_by_part(connection, asked, part_column(now_unix_ns), objectives, source)
    return PeriodTurns(source, counts, turns_by_run(connection, f, source), newest.get(source))
