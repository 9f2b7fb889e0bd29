"""The turns of a filter in the period of error budgets: how many are good by each objective in each part of it, how
many each run has, and when the newest began.

They come from roll-ups where these tell what the filter and the objectives ask for, else from cells, which are read of
each segment once; turns at the edges of parts are read one by one, and so is what neither of them tells.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from telemetry.model.semconv import RAMP, Source
from telemetry.objectives.error_budgets import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.budget_period import PARTS, is_within, of_period, part_column, parts_of, stretches
from telemetry.store.cell_reading import cells_of_edges, cells_of_turns
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.edge_turns import turns_within
from telemetry.store.manifest import Segment
from telemetry.store.objectives import counts_by_part
from telemetry.store.queries import Condition, is_all_within, judged, may_be_within
from telemetry.store.rollups.library import RollupLibrary
from telemetry.store.rollups.stretches import Stretch, count_stretches
from telemetry.store.turn_cells import TurnCells, Verdicts
from telemetry.store.turns_of_runs import CountedTurns, counted_by_run, is_by_segment, turns_by_run

Counts = dict[str, dict[int, EligibleTurns]]  # by objective and part of the period
_VALID: Final = Condition("outcome <> 'invalid'")
_UNREAD: Final = "unread_turns"
_EDGES: Final = "edge_turns"
_CUT: Final = "turns_cut_off"


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
    read = _ReadTurns(connection, objectives, f, "client", now_unix_ns)
    read.take(rolled.unread, rolled.left_over)
    return PeriodTurns(
        "client", _added(objectives, [rolled.counts, *read.counts()]), turns_by_run(connection, f, "client"), newest
    )


def _from_cells(
    connection: StoreConnection, objectives: Sequence[Objective], f: Filter, source: Source, now_unix_ns: int
) -> PeriodTurns:
    """From cells, and from turns that are read."""
    read = _ReadTurns(connection, objectives, f, source, now_unix_ns)
    read.take(connection.segments("turns", f.run_id), ())
    parts = read.parts
    runs = {
        run_id: CountedTurns(total, parts.invalid_by_run[run_id]) for run_id, total in parts.by_run.items() if total
    }
    return PeriodTurns(source, _added(objectives, read.counts()), runs, parts.newest_unix_ns)


class _ReadTurns:
    """Turns of segments and of stretches of them, counted from cells; those that cells do not tell are read one by one:
    of segments without cells, and all of them where a phase is asked for."""

    def __init__(
        self,
        connection: StoreConnection,
        objectives: Sequence[Objective],
        f: Filter,
        source: Source,
        now_unix_ns: int,
    ) -> None:
        self._connection = connection
        self._objectives = objectives
        self._filter = f
        self._source: Source = source
        self._now_unix_ns = now_unix_ns
        self._read_counts: list[Counts] = []
        self.parts = _PeriodParts(f, now_unix_ns)

    def counts(self) -> list[Counts]:
        """Good and eligible turns: those from cells, and those of each view that was read."""
        return [self.parts.counts(self._objectives), *self._read_counts]

    def take(self, segments: Sequence[Segment], left_over: Sequence[tuple[Segment, Stretch]]) -> None:
        """Count the turns of segments, and of stretches of others."""
        if self._filter.phase is not None:
            self._take_views(segments, left_over)
            return
        read = cells_of_turns(self._connection, segments, self._objectives, self._source)
        for segment, cells in read.cells:
            self.parts.take(segment, cells, read.verdicts)
        edges = [*left_over, *self.parts.left_over]
        at_edges = cells_of_edges(self._connection, edges, self._objectives, self._source)
        for segment, cells in at_edges.cells:
            self.parts.take(segment, cells, at_edges.verdicts)
        self._take_views(read.unread, ())

    def _take_views(self, unread: Sequence[Segment], left_over: Sequence[tuple[Segment, Stretch]]) -> None:
        asked = judged(self._filter) & Condition("source = ?", (self._source,))
        for view in _views(self._connection, unread, left_over, self._objectives):
            part = part_column(self._now_unix_ns)
            self._read_counts.append(
                counts_by_part(self._connection, asked & _VALID, part, self._objectives, self._source, table=view)
            )
            for run_id, turns in counted_by_run(self._connection, view, self._filter, self._source).items():
                self.parts.by_run[run_id] += turns.total
                self.parts.invalid_by_run[run_id] += turns.invalid
            statement = f"SELECT max(started_unix_ns) AS newest FROM {view} WHERE {(asked & _VALID).sql}"
            (row,) = rows(self._connection, statement, asked.values)
            self.parts.take_newest(row["newest"])


class _PeriodParts:
    """Cells added up by part of the period; `left_over` are the times of those that are of more than one. What is read
    beside them is added to the turns of runs and to the newest moment."""

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
            self.take_newest(int(cells.last_unix_ns[meant].max()))
        # By key and part.
        places = cells.key_codes[meant] * PARTS + begin[meant]
        turns = np.bincount(places, weights=cells.turns[meant], minlength=len(cells.keys) * PARTS)
        for place in np.flatnonzero(turns).tolist():
            code, part = divmod(place, PARTS)
            for name, known in verdicts.items():
                verdict = known[int(cells.keys[code])]
                if verdict is not None:
                    self._counts.setdefault(name, Counter())[part, verdict] += int(turns[place])

    def take_newest(self, moment_unix_ns: int | None) -> None:
        """When the newest of some valid turns began; None of none."""
        if moment_unix_ns is not None:
            self.newest_unix_ns = max(self.newest_unix_ns or 0, moment_unix_ns)

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
    is_known = is_by_segment(f)
    found: list[tuple[Source, int]] = []
    cut = set[str]()
    for row in known:
        if f.run_id not in (None, row["run_id"]) or f.cohort not in (None, row["cohort"]):
            continue
        if is_known and is_all_within(f, row["first"], row["newest"]):
            found.append((row["source"], row["newest"]))
        elif may_be_within(f, row["first"], row["newest"]):
            cut.add(Path(row["file"]).name)
    if cut:
        connection.view(_CUT, "turns", [each for each in connection.segments("turns") if each.file in cut])
        within = judged(f) & _VALID
        statement = f"SELECT source, max(started_unix_ns) AS newest FROM {_CUT} WHERE {within.sql} GROUP BY source"
        found += [(row["source"], row["newest"]) for row in rows(connection, statement, within.values)]
    newest: dict[Source, int] = {}
    for source, moment in found:
        newest[source] = max(moment, newest.get(source, moment))
    source: Source = "client" if "client" in newest or "service" not in newest else "service"
    return source, newest.get(source)
