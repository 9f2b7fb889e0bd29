"""The turns of a filter in the period of error budgets: how many are good by each objective in each part of it, how
many each run has, and when the newest began.

They come from roll-ups where these tell what the filter and the objectives ask for, else from cells, which are read of
each segment once; turns at the edges of parts are read one by one, and so is what neither of them tells.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from telemetry.model.semconv import RAMP, Source
from telemetry.objectives.error_budgets import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.budget_period import is_within, of_period, part_column, parts_of, stretches
from telemetry.store.cell_reading import cells_of_turns
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.edge_turns import turns_within
from telemetry.store.manifest import Segment
from telemetry.store.objectives import counts_by_part
from telemetry.store.queries import Condition, judged
from telemetry.store.rollups.library import RollupLibrary
from telemetry.store.rollups.stretches import Stretch, count_stretches
from telemetry.store.turn_cells import TurnCells, Verdicts
from telemetry.store.turns_of_runs import CountedTurns, counted_by_run, turns_by_run

Counts = dict[str, dict[int, EligibleTurns]]  # by objective and part of the period
_VALID: Final = Condition("outcome <> 'invalid'")
_UNREAD: Final = "unread_turns"
_EDGES: Final = "edge_turns"


@dataclass(frozen=True, slots=True)
class PeriodTurns:
    """Turns of a `source`, none of a ramp: good and eligible ones by objective and part of the period, by run all that
    were asked something, and when the newest valid one began (Unix ns), None without one."""

    source: Source
    counts: Counts
    by_run: Mapping[str, CountedTurns] = field(default_factory=dict[str, CountedTurns])
    newest_unix_ns: int | None = None


def turns_of_period(
    connection: StoreConnection,
    objectives: Sequence[Objective],
    f: Filter,
    now_unix_ns: int,
    library: RollupLibrary,
) -> PeriodTurns:
    """The turns of the filter's run, cohort, target, phase and dimensions; its time is not looked at. Those that
    callers heard, where a valid one is among them, else those that services report."""
    f = of_period(f, now_unix_ns)
    if library.can_count(f, objectives):
        source, newest = _newest_of_source(connection, f)
        if source == "client":
            return _rolled(connection, objectives, f, library, (now_unix_ns, newest))
    of_callers = _from_cells(connection, objectives, f, "client", now_unix_ns)
    if of_callers.newest_unix_ns is not None:
        return of_callers
    of_services = _from_cells(connection, objectives, f, "service", now_unix_ns)
    return of_callers if of_services.newest_unix_ns is None else of_services


def _rolled(
    connection: StoreConnection,
    objectives: Sequence[Objective],
    f: Filter,
    library: RollupLibrary,
    moments: tuple[int, int | None],
) -> PeriodTurns:
    """From roll-ups, from the turns of segments without one, and from those at the edges of parts that no slot of time
    is within; `moments` are now and when the newest turn began."""
    now_unix_ns, newest = moments
    rolled = count_stretches(
        library,
        connection.segments("turns", f.run_id),
        stretches(now_unix_ns),
        f,
        objectives,
        kept=library.counted,
        give_way=connection.give_way,
    )
    found = [rolled.counts]
    where = judged(f) & _VALID & Condition("source = 'client'")
    for view in _views(connection, rolled.unread, rolled.left_over, objectives):
        part = part_column(now_unix_ns)
        found.append(counts_by_part(connection, where, part, objectives, "client", table=view))
    return PeriodTurns("client", _added(objectives, found), turns_by_run(connection, f, "client"), newest)


def _from_cells(
    connection: StoreConnection, objectives: Sequence[Objective], f: Filter, source: Source, now_unix_ns: int
) -> PeriodTurns:
    """From cells, and from turns that are read: of cells whose time a part ends within, of segments without cells, and
    all of them where a phase is asked for."""
    segments = connection.segments("turns", f.run_id)
    parts = _PeriodParts(f, now_unix_ns)
    unread: Sequence[Segment] = segments
    if f.phase is None:
        read = cells_of_turns(connection, segments, objectives, source)
        unread = read.unread
        for segment, cells in read.cells:
            parts.take(segment, cells, read.verdicts)
    counts, by_run, newest = [parts.counts(objectives)], Counter(parts.by_run), parts.newest_unix_ns
    invalid = Counter(parts.invalid_by_run)
    asked = judged(f) & Condition("source = ?", (source,))
    for view in _views(connection, unread, parts.left_over, objectives):
        part = part_column(now_unix_ns)
        counts.append(counts_by_part(connection, asked & _VALID, part, objectives, source, table=view))
        for run_id, turns in counted_by_run(connection, view, f, source).items():
            by_run[run_id] += turns.total
            invalid[run_id] += turns.invalid
        statement = f"SELECT max(started_unix_ns) AS newest FROM {view} WHERE {(asked & _VALID).sql}"
        (row,) = rows(connection, statement, asked.values)
        newest = max((each for each in (newest, row["newest"]) if each is not None), default=None)
    runs = {run_id: CountedTurns(total, invalid[run_id]) for run_id, total in by_run.items() if total}
    return PeriodTurns(source, _added(objectives, counts), runs, newest)


class _PeriodParts:
    """Cells added up by part of the period; `left_over` are the times of those that are of more than one."""

    def __init__(self, f: Filter, now_unix_ns: int) -> None:
        self._filter = f
        self._now_unix_ns = now_unix_ns
        self._counts: dict[str, Counter[tuple[int, bool]]] = {}
        self.by_run = Counter[str]()
        self.invalid_by_run = Counter[str]()
        self.newest_unix_ns: int | None = None
        self.left_over: list[tuple[Segment, Stretch]] = []

    def take(self, segment: Segment, cells: TurnCells, verdicts: Verdicts) -> None:
        """Count the cells of a segment."""
        begin, end = (parts_of(each, self._now_unix_ns) for each in (cells.begin_unix_ns, cells.end_unix_ns))
        meant = cells.meant(self._filter)
        is_whole = begin == end
        times = np.unique(np.stack([cells.begin_unix_ns, cells.end_unix_ns])[:, meant & ~is_whole], axis=1)
        for first, last in times.T.tolist():
            self.left_over.append((segment, Stretch(0, first, last + 1)))
        meant &= is_whole & is_within(begin)
        self._take_runs(cells, meant & cells.is_asked)
        meant &= ~cells.is_invalid
        if meant.any():
            self.newest_unix_ns = max(self.newest_unix_ns or 0, int(cells.last_unix_ns[meant].max()))
        # The keys of one part, and the turns of each.
        of_keys = np.stack([cells.keys[meant], begin[meant].astype(np.uint64)])
        found, places = np.unique(of_keys, axis=1, return_inverse=True)
        turns = np.bincount(places.ravel(), weights=cells.turns[meant], minlength=found.shape[1])
        for (key, part), n in zip(found.T.tolist(), turns.tolist(), strict=True):
            for name, known in verdicts.items():
                verdict = known[key]
                if verdict is not None:
                    self._counts.setdefault(name, Counter())[part, verdict] += int(n)

    def _take_runs(self, cells: TurnCells, meant: NDArray[np.bool_]) -> None:
        runs = cells.codes["run_id"]
        for counter, some in ((self.by_run, meant), (self.invalid_by_run, meant & cells.is_invalid)):
            turns = np.bincount(runs[some], weights=cells.turns[some], minlength=len(cells.values["run_id"]))
            for run_id, n in zip(cells.values["run_id"], turns.tolist(), strict=True):
                counter[run_id or ""] += int(n)

    def counts(self, objectives: Iterable[Objective]) -> Counts:
        """By objective and part."""
        found: Counts = {}
        for each in objectives:
            counted = self._counts.get(each.name, Counter[tuple[int, bool]]())
            found[each.name] = {
                part: EligibleTurns(counted[part, True], counted[part, True] + counted[part, False])
                for part in {part for part, _ in counted}
            }
        return found


def _views(
    connection: StoreConnection,
    unread: Sequence[Segment],
    left_over: Sequence[tuple[Segment, Stretch]],
    objectives: Sequence[Objective],
) -> Iterable[str]:
    """The names of what has to be read turn by turn."""
    if unread:
        connection.view(_UNREAD, "turns", unread)
        yield _UNREAD
    if left_over:
        connection.show(_EDGES, turns_within(connection, left_over, objectives))
        yield _EDGES


def _added(objectives: Sequence[Objective], found: Iterable[Counts]) -> Counts:
    added: Counts = {objective.name: {} for objective in objectives}
    for each in found:
        for name, parts in each.items():
            for number, counts in parts.items():
                added[name][number] = added[name].get(number, EligibleTurns()) + counts
    return added


# What tells turns apart of which the newest is known of every segment.
_BY_SEGMENT: Final = ("run_id", "cohort", "since_unix_ns", "until_unix_ns")


def _newest_of_source(connection: StoreConnection, f: Filter) -> tuple[Source, int | None]:
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
        within = judged(f) & _VALID
        statement = f"SELECT source, max(started_unix_ns) AS newest FROM turns WHERE {within.sql} GROUP BY source"
        found = [(row["source"], row["newest"]) for row in rows(connection, statement, within.values)]
    newest: dict[Source, int] = {}
    for source, moment in found:
        newest[source] = max(moment, newest.get(source, moment))
    source: Source = "client" if "client" in newest or "service" not in newest else "service"
    return source, newest.get(source)
