"""The sum of the roll-ups of a store's segments, with its pairs closed, as the store grows: what new turns have nothing
to do with is neither added up nor paired again.

Compaction makes one segment of a higher level of several of a lower one. So sums are kept by tier: over the large
segments, over these and those of the highest level, and so on. A new segment, small and of the lowest level, is added
to the last sum; where segments became one, that is added to the sum of its tier, and those below are made anew.
The lowest levels are one tier while they have few turns together: rolling those up anew takes no longer than one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from telemetry.store.manifest import Segment
from telemetry.store.rollups.connected_turns import Links, connected_to
from telemetry.store.rollups.database import Database
from telemetry.store.rollups.pairs import pair
from telemetry.store.rollups.rollup import Rollup, added
from telemetry.store.schema import ArrowTable

# So many open turns, the latest to arrive, are paired with each question, and those that are connected to them; up to
# twice as many are. A call's next turn comes within seconds, so it seldom belongs to others.
LATEST_OPEN: Final = 1_024

# Segments of so many rows seldom change, whatever their level.
SETTLED_ROWS: Final = 500_000
_SETTLED_TIER: Final = 1 << 30
# Of so many rows together, the lowest levels are one tier.
RECENT_ROWS: Final = 2_048
_RECENT_TIER: Final = -1

# Rolls up some segments together, all of their turns open.
RollUpSegments = Callable[[Sequence[Segment]], Rollup]


@dataclass(frozen=True, slots=True, eq=False)
class ClosedTurns:
    """Open turns that were paired, and what they count to. They are connected to no others."""

    turns: ArrowTable
    links: Links
    rollup: Rollup


@dataclass(frozen=True, slots=True)
class GrowingSum:
    """The sum of some roll-ups: their cells, and their open turns, of which most are paired already."""

    rollup: Rollup
    closed: tuple[ClosedTurns, ...] = ()
    latest: ArrowTable | None = None

    def extended(self, database: Database, more: Rollup, latest_open: int = LATEST_OPEN) -> "GrowingSum":
        """With another roll-up. What was closed and is connected to its open turns is paired with them anew."""
        rollup = added([self.rollup, Rollup(more.cells, more.sequences)])
        if more.open_turns is None or not more.open_turns.num_rows:
            return replace(self, rollup=rollup)
        links = Links.of(more.open_turns)
        met = [each for each in self.closed if each.links.meet(links)]
        closed = tuple(each for each in self.closed if each not in met)
        before = [] if self.latest is None else [self.latest]
        turns = [*(each.turns for each in met), *before, more.open_turns.sort_by("started_unix_ns")]
        latest = pa.concat_tables(turns).combine_chunks()
        if latest.num_rows > 2 * latest_open:
            places = np.arange(latest.num_rows)
            is_latest = connected_to(latest, places >= latest.num_rows - latest_open)
            closed += _closed(database, latest.filter(pa.array(~is_latest)))
            latest = latest.filter(pa.array(is_latest))
        return GrowingSum(rollup, closed, latest)

    def total(self, database: Database) -> Rollup:
        """All of it, its pairs closed."""
        latest = pair(database, Rollup(open_turns=self.latest), is_last=True)
        return added([self.rollup, *(each.rollup for each in self.closed), Rollup(latest.cells)])


def _closed(database: Database, turns: ArrowTable) -> tuple[ClosedTurns, ...]:
    if not turns.num_rows:
        return ()
    return (ClosedTurns(turns, Links.of(turns), pair(database, Rollup(open_turns=turns), is_last=True)),)


@dataclass(frozen=True, slots=True)
class _TierSum:
    """The segments of one tier: their own roll-up, and the sum of it and of `above`, that of the higher tiers."""

    files: frozenset[str]
    own: Rollup
    above: GrowingSum
    sum: GrowingSum


class GrowingSums:
    """The sums of the segments of one store for one kind of question. Not thread-safe."""

    def __init__(self, latest_open: int = LATEST_OPEN, recent_rows: int = RECENT_ROWS) -> None:
        self._latest_open = latest_open
        self._recent_rows = recent_rows
        self._tiers: dict[int, _TierSum] = {}

    def of(self, database: Database, segments: Sequence[Segment], roll_up: RollUpSegments) -> GrowingSum:
        """The sum of these segments. Raises what `roll_up` does."""
        by_tier = self._by_tier(segments)
        above = _NOTHING
        for tier in sorted(by_tier, reverse=True):
            self._tiers[tier] = self._of_tier(database, tier, by_tier[tier], above, roll_up)
            above = self._tiers[tier].sum
        self._tiers = {tier: found for tier, found in self._tiers.items() if tier in by_tier}
        return above

    def _by_tier(self, segments: Sequence[Segment]) -> dict[int, list[Segment]]:
        by_tier: dict[int, list[Segment]] = {}
        for segment in segments:
            tier = _SETTLED_TIER if segment.rows >= SETTLED_ROWS else segment.level
            by_tier.setdefault(tier, []).append(segment)
        recent: list[Segment] = []
        for tier in sorted(by_tier):
            together = [*recent, *by_tier[tier]]
            if sum(segment.rows for segment in together) > self._recent_rows:
                break
            recent = together
            del by_tier[tier]
        return by_tier | ({_RECENT_TIER: recent} if recent else {})

    def _of_tier(
        self, database: Database, tier: int, segments: Sequence[Segment], above: GrowingSum, roll_up: RollUpSegments
    ) -> _TierSum:
        files = frozenset(segment.file for segment in segments)
        known = self._tiers.get(tier)
        if known is None or not known.files <= files:
            own = roll_up(segments)
            return _TierSum(files, own, above, above.extended(database, own, self._latest_open))
        new = [segment for segment in segments if segment.file not in known.files]
        more = roll_up(new) if new else Rollup()
        own = added([known.own, more]) if new else known.own
        if known.above is not above:
            return _TierSum(files, own, above, above.extended(database, own, self._latest_open))
        return _TierSum(files, own, above, known.sum.extended(database, more, self._latest_open)) if new else known


_NOTHING: Final = GrowingSum(Rollup())
