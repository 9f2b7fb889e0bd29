"""Good and eligible turns of objectives in several stretches of time at once, exactly: slots that lie in a stretch are
added up as they are, and the turns of those on its edges are left to be read."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from telemetry.objectives.error_budgets import EligibleTurns
from telemetry.objectives.slo import Objective
from telemetry.store.answers import Filter
from telemetry.store.manifest import Segment
from telemetry.store.rollups.figures import RolledFigures
from telemetry.store.rollups.files import RollupFile
from telemetry.store.rollups.objectives import COUNTED_PARTS, count_objectives
from telemetry.store.rollups.rollup import Rollup
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.slot_tree import taken
from telemetry.store.rollups.windows import SegmentRollups

_PARTS: Final = frozenset(COUNTED_PARTS)
# Of so many questions, those that were asked last, the counts of pieces are kept.
_KEPT_QUESTIONS: Final = 4
# The members of families of slots, by family and place; None of a whole segment.
_Members = tuple[tuple[int, tuple[int, ...]], ...] | None
_Piece = tuple[str, _Members]
_Counts = dict[str, EligibleTurns]  # by objective


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


class CountedPieces:
    """Counts of objectives over pieces of segments, kept from one ask to the next: a segment never changes, and as
    time passes most pieces of a stretch are those of the ask before."""

    def __init__(self) -> None:
        self._questions: OrderedDict[Hashable, dict[_Piece, _Counts]] = OrderedDict()

    def of_question(self, f: Filter, objectives: Sequence[Objective]) -> dict[_Piece, _Counts]:
        """What was counted at the last ask of the objectives over the filter's run, cohort, target and phase."""
        return self._questions.get(_question(f, objectives), {})

    def keep(self, f: Filter, objectives: Sequence[Objective], counted: dict[_Piece, _Counts]) -> None:
        """Keep what was counted at this ask, and nothing else of its question."""
        question = _question(f, objectives)
        self._questions[question] = counted
        self._questions.move_to_end(question)
        while len(self._questions) > _KEPT_QUESTIONS:
            self._questions.popitem(last=False)


def _question(f: Filter, objectives: Sequence[Objective]) -> Hashable:
    return replace(f, since_unix_ns=None, until_unix_ns=None), tuple(objectives)


def count_stretches(
    rollups: SegmentRollups,
    segments: Iterable[Segment],
    stretches: Sequence[Stretch],
    f: Filter,
    objectives: Sequence[Objective],
    *,
    kept: CountedPieces | None = None,
    give_way: Callable[[], None] = lambda: None,
) -> StretchCounts:
    """Count objectives of each of which a roll-up can tell the turns exactly. The stretches are apart; of the filter
    the run, cohort, target and phase are looked at. What was counted at an earlier ask is taken from `kept`; before
    anything is counted anew, `give_way` is called, with what was counted already kept."""
    kept = CountedPieces() if kept is None else kept
    found = StretchCounts({objective.name: {} for objective in objectives})
    known, used = kept.of_question(f, objectives), dict[_Piece, _Counts]()
    for segment in segments:
        near = [each for each in stretches if _overlap(segment, each)]
        if not near:
            continue
        file = rollups.file(segment)
        if file is None:
            found.unread.append(segment)
            continue
        for stretch in near:
            members, left_over = _of_stretch(file, segment, stretch)
            found.left_over.extend((segment, each) for each in left_over)
            piece = segment.file, members
            counts = known.get(piece)
            if counts is None:
                kept.keep(f, objectives, known | used)
                give_way()
                counts = _counted(file, members, f, objectives)
            used[piece] = counts
            for name, of_piece in counts.items():
                numbers = found.counts[name]
                numbers[stretch.number] = numbers.get(stretch.number, EligibleTurns()) + of_piece
    kept.keep(f, objectives, used)
    return found


def _of_stretch(file: RollupFile, segment: Segment, stretch: Stretch) -> tuple[_Members, list[Stretch]]:
    first, last = segment.first_unix_ns or 0, segment.last_unix_ns or 0
    if stretch.begin_unix_ns <= first and last < stretch.end_unix_ns:
        return None, []
    members = taken(file.families, stretch.begin_unix_ns, stretch.end_unix_ns)
    left_over = [
        Stretch(stretch.number, max(begin, stretch.begin_unix_ns), min(end, stretch.end_unix_ns))
        for begin, end in members.left_over
    ]
    return tuple((family, tuple(places)) for family, places in sorted(members.members.items())), left_over


def _counted(file: RollupFile, members: _Members, f: Filter, objectives: Sequence[Objective]) -> _Counts:
    """Counts add up: what is eligible and good of some turns is the sum of what is of each part of them."""
    if members is None:
        cells = file.rollup(f.run_id, _PARTS).cells
    else:
        cells = gathered(file.members({family: list(places) for family, places in members}, f.run_id, _PARTS))
    counted = count_objectives(RolledFigures(Rollup(cells), f), objectives, None).whole
    counts = {each.name: EligibleTurns(counted[each.name].good, counted[each.name].eligible) for each in objectives}
    return {name: each for name, each in counts.items() if each.eligible}


def _overlap(segment: Segment, stretch: Stretch) -> bool:
    first, last = segment.first_unix_ns, segment.last_unix_ns
    if first is None or last is None:
        return False
    return first < stretch.end_unix_ns and last >= stretch.begin_unix_ns
