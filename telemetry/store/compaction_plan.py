"""Which segments to merge next: pure.

Segments of one table have tiers: the level that merges gave them, or a higher one that their size would take several
merges to reach. The segments of a tier form groups in their order: a group is full with `fan_in` of them, or when the
next one would take it over a limit. Full groups of two or more become one segment of the next level, so a tier ends
with fewer than `fan_in` segments that wait for more, and with segments of which any two neighbors exceed a limit
together: their number is bounded by the store's size, whatever was appended. A large segment, of whatever level, is not
written anew for a few small ones.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from telemetry.store.manifest import TABLES, Segment, StoreManifest
from telemetry.store.retention import Keep

_PARTS_KEPT: Final = 8
# The tier of segments that hold this share of a limit, whatever their level: what single rows would become by merges.
_TIER_OF_SHARE: Final = ((1 / 16, 5), (1 / 256, 4))


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The most segments that become one, and what one may hold at most: rows, and bytes of them in memory.

    `size_bytes` and `stored_ns` bound what goes at once when the store is kept to a size or an age: the file's size and
    the time between the storing of its first and last segment.
    """

    fan_in: int = 16
    rows: int = 2_000_000
    raw_bytes: int = 2 << 30
    size_bytes: int | None = None
    stored_ns: int | None = None

    def allow(self, segments: Sequence[Segment]) -> bool:
        """Whether these may become one."""
        stored = [each.stored_unix_ns for each in segments]
        return (
            sum(each.rows for each in segments) <= self.rows
            and sum(each.raw_bytes for each in segments) <= self.raw_bytes
            and (self.size_bytes is None or sum(each.size_bytes for each in segments) <= self.size_bytes)
            and (self.stored_ns is None or max(stored) - min(stored) <= self.stored_ns)
        )

    def tier(self, segment: Segment) -> int:
        """Which segments a segment is merged with: those of its tier."""
        share = max(
            segment.rows / self.rows,
            segment.raw_bytes / self.raw_bytes,
            0.0 if self.size_bytes is None else segment.size_bytes / max(self.size_bytes, 1),
        )
        return max(segment.level, next((tier for least, tier in _TIER_OF_SHARE if share >= least), 0))

    def for_keeping(self, keep: Keep) -> Self:
        """The same limits, with segments small enough that an eighth of what is kept goes at once at most."""
        return replace(
            self,
            size_bytes=None if keep.size_bytes is None else keep.size_bytes // _PARTS_KEPT,
            stored_ns=None if keep.age_ns is None else keep.age_ns // _PARTS_KEPT,
        )


def plan(
    manifest: StoreManifest, limits: MergeLimits, left_out: Container[Segment] = frozenset()
) -> tuple[Segment, ...]:
    """The next segments to merge, oldest first; empty when there is nothing to do."""
    return next(_full_groups(manifest, limits, left_out), ())


def backlog(manifest: StoreManifest, limits: MergeLimits, left_out: Container[Segment] = frozenset()) -> int:
    """How many segments wait to be merged."""
    return sum(map(len, _full_groups(manifest, limits, left_out)))


def _full_groups(
    manifest: StoreManifest, limits: MergeLimits, left_out: Container[Segment]
) -> Iterator[tuple[Segment, ...]]:
    for table in TABLES:
        by_tier: dict[int, list[Segment]] = {}
        for segment in manifest.of(table):
            if segment not in left_out:
                by_tier.setdefault(limits.tier(segment), []).append(segment)
        for tier in sorted(by_tier):
            yield from _groups_of_tier(by_tier[tier], limits)


def _groups_of_tier(segments: list[Segment], limits: MergeLimits) -> Iterator[tuple[Segment, ...]]:
    group: list[Segment] = []
    for segment in segments:
        together = [*group, segment]
        if limits.allow(together):
            group = together
        else:
            if len(group) > 1:
                yield tuple(group)
            group = [segment]
        if len(group) == limits.fan_in:
            yield tuple(group)
            group = []
