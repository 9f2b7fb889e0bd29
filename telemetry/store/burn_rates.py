"""Error budgets and burn rates of objectives over windows that end now, from one pass over the turns.

The turns of the longest window are told apart by the part of it in which they began: the rings between the windows of
the newest day, and each day before. Every window is a sum of parts, so no turn is read twice.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from telemetry.model.semconv import RAMP, Source
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
from telemetry.store.limited_runs import LimitedTurns
from telemetry.store.manifest import Segment
from telemetry.store.objectives import columns_of_rules, counts_by_part
from telemetry.store.queries import Condition, judged
from telemetry.store.rollups.library import RollupLibrary
from telemetry.store.rollups.making import known_columns
from telemetry.store.rollups.staged import complete
from telemetry.store.rollups.stretches import Stretch, count_stretches
from telemetry.store.schema import SCHEMAS, ArrowTable
from telemetry.store.turns_of_runs import CountedTurns

# Ends of the parts within the newest day, ns ago; behind them come whole days.
_RINGS: Final = tuple(
    sorted(length for name in (*SHORT_WINDOWS, *SHOWN_WINDOWS) if (length := window_ns(name)) <= DAY_NS)
)


@dataclass(frozen=True, slots=True)
class BurnRateAnswer:
    """The budgets, missed ones first, at a moment; `source` says whose turns count. `newest_unix_ns` is when the newest
    of them began, None without one. `counted` are all of them and the invalid ones, which no budget counts; `limited`
    are those of the valid ones whose run says nothing about the service by itself; `faults` say what of the store could
    not be read."""

    at_unix_ns: int
    source: Source
    budgets: tuple[ErrorBudget, ...]
    newest_unix_ns: int | None = None
    counted: CountedTurns = field(default_factory=CountedTurns)
    limited: LimitedTurns = field(default_factory=LimitedTurns)
    faults: tuple[str, ...] = ()

    @property
    def claims_nothing(self) -> bool:
        """Whether every valid turn is of a run that says nothing about the service."""
        return 0 < self.counted.valid <= self.limited.turns


def burn_rates(
    connection: StoreConnection,
    objectives: Sequence[Objective],
    f: Filter,
    now_unix_ns: int,
    library: RollupLibrary | None = None,
) -> BurnRateAnswer:
    """The objectives over their windows, of the filter's run, cohort, target and dimensions; its time is not looked at.
    The turns are those that callers heard, where there are any within the longest window, else those that services
    report. With the `library` of roll-ups, only the turns at the edges of windows are read."""
    f = of_period(f, now_unix_ns)
    within = judged(f) & Condition("outcome <> 'invalid'")
    source, newest = _source(connection, f, within)
    where = within & Condition("source = ?", (source,))
    if library is not None and source == "client" and library.can_count(f, objectives):
        found = _rolled(connection, objectives, (f, where), now_unix_ns, library)
    else:
        found = counts_by_part(connection, where, _part(now_unix_ns), objectives, source)
    budgets = [_budget(objective, found.get(objective.name, {})) for objective in objectives]
    return BurnRateAnswer(now_unix_ns, source, missed_first(budgets), newest)


def of_period(f: Filter, now_unix_ns: int) -> Filter:
    """A filter that means the turns of the longest window, whatever time it asked for."""
    return replace(f, since_unix_ns=now_unix_ns - PERIOD_DAYS * DAY_NS + 1, until_unix_ns=now_unix_ns + 1)


# What tells turns apart of which the newest is known of every segment.
_BY_SEGMENT: Final = ("run_id", "cohort", "since_unix_ns", "until_unix_ns")
_Counts = dict[str, dict[int, EligibleTurns]]


def _rolled(
    connection: StoreConnection,
    objectives: Sequence[Objective],
    meant: tuple[Filter, Condition],
    now_unix_ns: int,
    library: RollupLibrary,
) -> _Counts:
    """The counts by part from roll-ups, from the turns of segments without one, and from those at the edges of parts
    that no slot of time is within."""
    f, where = meant
    stretches = _stretches(now_unix_ns)
    rolled = count_stretches(
        library,
        connection.segments("turns", f.run_id),
        stretches,
        f,
        objectives,
        kept=library.counted,
        give_way=connection.give_way,
    )
    found = [rolled.counts]
    part = _part(now_unix_ns)
    if rolled.unread:
        connection.view("unrolled_turns", "turns", rolled.unread)
        found.append(counts_by_part(connection, where, part, objectives, "client", table="unrolled_turns"))
    if rolled.left_over:
        connection.show("edge_turns", _edges(connection, rolled.left_over, objectives))
        found.append(counts_by_part(connection, where, part, objectives, "client", table="edge_turns"))
    added: _Counts = {objective.name: {} for objective in objectives}
    for each in found:
        for name, parts in each.items():
            for number, counts in parts.items():
                added[name][number] = added[name].get(number, EligibleTurns()) + counts
    return added


def _edges(
    connection: StoreConnection, left_over: Sequence[tuple[Segment, Stretch]], objectives: Sequence[Objective]
) -> ArrowTable:
    """The turns of some stretches of segments, each once, with what the rules of the objectives read of them."""
    columns = dict.fromkeys((*_READ, *columns_of_rules(objectives)))
    schema = pa.schema([SCHEMAS["turns"].field(name) for name in columns])
    found: list[ArrowTable] = [schema.empty_table()]
    connection.verify([segment for segment, _ in left_over])
    by_segment: dict[str, list[tuple[Segment, Stretch]]] = {}
    for segment, stretch in left_over:
        by_segment.setdefault(segment.file, []).append((segment, stretch))
    for of_segment in by_segment.values():
        segment = of_segment[0][0]
        stretches = [stretch for _, stretch in of_segment]
        with connection.files.opened(segment) as file:
            for group in connection.files.row_groups(segment):
                near = [
                    each
                    for each in stretches
                    if each.begin_unix_ns <= group.last_unix_ns and group.first_unix_ns < each.end_unix_ns
                ]
                if near:
                    names = known_columns(file, list(columns))
                    table = complete(file.read_row_group(group.number, columns=names), list(columns))
                    found.append(table.filter(_is_within(table, near)))
    return pa.concat_tables(found)


_READ: Final = (
    "source",
    "run_id",
    "cohort",
    "target",
    "phase",
    "phase_kind",
    "started_unix_ns",
    "outcome",
    "turn_kind",
)


def _is_within(table: ArrowTable, stretches: Sequence[Stretch]) -> Any:
    started = table.column("started_unix_ns").to_numpy()
    within = [(started >= each.begin_unix_ns) & (started < each.end_unix_ns) for each in stretches]
    return pa.array(np.logical_or.reduce(within))


def _stretches(now_unix_ns: int) -> list[Stretch]:
    """The parts of the period, as `_part` tells them apart: no turn of the future, and the oldest one whole."""
    ends = [0, *_RINGS, *(age * DAY_NS for age in range(2, PERIOD_DAYS + 1))]
    return [
        Stretch(number, now_unix_ns - old + 1, now_unix_ns - young + 1)
        for number, (young, old) in enumerate(pairwise(ends))
    ]


def _source(connection: StoreConnection, f: Filter, within: Condition) -> tuple[Source, int | None]:
    # What no turn is left out of, and whose moments lie within the period, is known of every segment.
    known = connection.of_each_segment(
        "newest_of_source",
        "turns",
        "SELECT file, source, run_id, cohort, min(started_unix_ns) AS first, max(started_unix_ns) AS newest "
        f"FROM one_by_one WHERE outcome <> 'invalid' AND phase_kind IS DISTINCT FROM '{RAMP}' "
        "GROUP BY file, source, run_id, cohort",
        lambda _folder, _segment: None,
    )
    bounds = [row for row in known if f.run_id in (None, row["run_id"]) and f.cohort in (None, row["cohort"])]
    is_known = all(getattr(f, name) is None for name in f.__dataclass_fields__ if name not in _BY_SEGMENT)
    if is_known and all(
        (f.since_unix_ns or 0) <= row["first"] and row["newest"] < (f.until_unix_ns or 0) for row in bounds
    ):
        found = [(row["source"], row["newest"]) for row in bounds]
    else:
        statement = f"SELECT source, max(started_unix_ns) AS newest FROM turns WHERE {within.sql} GROUP BY source"
        found = [(row["source"], row["newest"]) for row in rows(connection, statement, within.values)]
    newest: dict[Source, int] = {}
    for source, moment in found:
        newest[source] = max(moment, newest.get(source, moment))
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
