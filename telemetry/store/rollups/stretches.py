"""Good and eligible turns of objectives in several stretches of time at once, exactly: slots that lie in a stretch are
added up as they are, and the turns of those on its edges are left to be read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from telemetry.objectives.error_budgets import EligibleTurns
from telemetry.objectives.slo import Objective
from telemetry.store.answers import Filter
from telemetry.store.manifest import Segment
from telemetry.store.rollups.figures import RolledFigures
from telemetry.store.rollups.files import RollupFile
from telemetry.store.rollups.objectives import COUNTED_PARTS, count_objectives
from telemetry.store.rollups.rollup import Key, Rollup, RollupCell
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.slot_tree import taken
from telemetry.store.rollups.windows import SegmentRollups

_PARTS: Final = frozenset(COUNTED_PARTS)
Cells = list[tuple[Key, RollupCell]]


class Stretch(NamedTuple):
    """A stretch of time, from its begin to before its end (Unix ns), and the number under which it is counted."""

    number: int
    begin_unix_ns: int
    end_unix_ns: int


@dataclass(frozen=True, slots=True)
class StretchCounts:
    """Counts by objective and number, and what is not in them: segments without a roll-up, and of others the times of
    which the turns have to be read one by one."""

    counts: dict[str, dict[int, EligibleTurns]]
    unread: list[Segment] = field(default_factory=list[Segment])
    left_over: list[tuple[Segment, Stretch]] = field(default_factory=list[tuple[Segment, Stretch]])


def count_stretches(
    rollups: SegmentRollups,
    segments: Iterable[Segment],
    stretches: Sequence[Stretch],
    f: Filter,
    objectives: Sequence[Objective],
) -> StretchCounts:
    """Count objectives of each of which a roll-up can tell the turns exactly. The stretches are apart; of the filter
    the cohort, target and phase are looked at."""
    found = StretchCounts({objective.name: {} for objective in objectives})
    cells: dict[int, Cells] = {}
    for segment in segments:
        near = [each for each in stretches if _overlap(segment, each)]
        if not near:
            continue
        file = rollups.file(segment)
        if file is None:
            found.unread.append(segment)
            continue
        for stretch in near:
            within, left_over = _of_stretch(file, segment, stretch)
            cells.setdefault(stretch.number, []).extend(within)
            found.left_over.extend((segment, each) for each in left_over)
    for number, of_number in cells.items():
        counted = count_objectives(RolledFigures(Rollup(gathered(of_number)), f), objectives, None)
        for objective in objectives:
            one = counted.whole[objective.name]
            if one.eligible:
                found.counts[objective.name][number] = EligibleTurns(one.good, one.eligible)
    return found


def _of_stretch(file: RollupFile, segment: Segment, stretch: Stretch) -> tuple[Cells, list[Stretch]]:
    first, last = segment.first_unix_ns or 0, segment.last_unix_ns or 0
    if stretch.begin_unix_ns <= first and last < stretch.end_unix_ns:
        return list(file.rollup(parts=_PARTS).cells.items()), []
    members = taken(file.families, stretch.begin_unix_ns, stretch.end_unix_ns)
    left_over = [
        Stretch(stretch.number, max(begin, stretch.begin_unix_ns), min(end, stretch.end_unix_ns))
        for begin, end in members.left_over
    ]
    return list(file.members(members.members, None, _PARTS)), left_over


def _overlap(segment: Segment, stretch: Stretch) -> bool:
    first, last = segment.first_unix_ns, segment.last_unix_ns
    if first is None or last is None:
        return False
    return first < stretch.end_unix_ns and last >= stretch.begin_unix_ns
