"""What a run's entry in the list of runs can come from: which rows that came to a store change nothing of it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from telemetry.store.manifest import Segment
from telemetry.store.run_catalog import CatalogRow
from telemetry.store.run_spans import RUN_IDS, RunSpan

# The least and the greatest of the numbers that a process gave its turns.
_Bounds = tuple[int, int]


@dataclass(slots=True)
class _TurnsOfFile:
    runs: set[str] = field(default_factory=set[str])
    lowest: dict[str, int] = field(default_factory=dict[str, int])


class RunSources:
    """The runs, and the numbers of processes, in each segment of turns of one state of a store; and what was declared
    of each run."""

    def __init__(self, catalog: Iterable[CatalogRow], spans: Iterable[RunSpan]) -> None:
        self._turns: defaultdict[str, _TurnsOfFile] = defaultdict(_TurnsOfFile)
        self._bounds: defaultdict[str, dict[str, _Bounds]] = defaultdict(dict)
        self._declared: defaultdict[str, list[RunSpan]] = defaultdict(list)
        for row in catalog:
            self._add(row)
        for span in spans:
            for run_id in {str(span.attributes[name]) for name in RUN_IDS if span.attributes.get(name)}:
                self._declared[run_id].append(span)

    def _add(self, row: CatalogRow) -> None:
        of_file = self._turns[row.file.rpartition("/")[2]]
        if row.run_id:
            of_file.runs.add(row.run_id)
        if row.process_id and row.lowest is not None and row.highest is not None:
            low, high = of_file.lowest.get(row.process_id, row.lowest), row.highest
            of_file.lowest[row.process_id] = min(low, row.lowest)
            if row.run_id:
                known = self._bounds[row.run_id].get(row.process_id, (row.lowest, high))
                self._bounds[row.run_id][row.process_id] = min(known[0], row.lowest), max(known[1], high)

    def declared(self, run_id: str) -> list[RunSpan]:
        """What processes declared of a run, in the order of time."""
        return self._declared.get(run_id, [])

    def may_concern(self, segment: Segment, run_id: str) -> bool:
        """Whether a row of a segment can change what the list says of a run, apart from what is `declared` of it.

        Turns and points of other runs do not, but for the numbers that a process of this run gave to turns of another
        before its last one here: they tell whether turns of this run were lost.
        """
        if segment.table == "spans":
            return False
        if segment.run_ids is None or run_id in segment.run_ids:
            return True
        if segment.table == "points":
            return False
        of_file = self._turns.get(segment.file)
        if of_file is None or run_id in of_file.runs:
            return True
        bounds = self._bounds.get(run_id, {})
        return any(process in bounds and low <= bounds[process][1] for process, low in of_file.lowest.items())
