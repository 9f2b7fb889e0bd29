"""Which segments to merge next: pure.

Segments of one table have levels, older ones higher. The segments of a level form groups in their order: a group is
full with `fan_in` of them, or when the next one would take it over a limit. Full groups of two or more become one
segment of the next level, so a level ends with fewer than `fan_in` segments that wait for more, and with segments of
which any two neighbors exceed a limit together: their number is bounded by the store's size, whatever was appended.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from telemetry.store.manifest import TABLES, Segment, StoreManifest


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The most segments that become one, and what one may hold at most: rows, and bytes of them in memory."""

    fan_in: int = 16
    rows: int = 2_000_000
    raw_bytes: int = 2 << 30


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
        by_level: dict[int, list[Segment]] = {}
        for segment in manifest.of(table):
            if segment not in left_out:
                by_level.setdefault(segment.level, []).append(segment)
        for level in sorted(by_level):
            yield from _groups_of_level(by_level[level], limits)


def _groups_of_level(segments: list[Segment], limits: MergeLimits) -> Iterator[tuple[Segment, ...]]:
    group: list[Segment] = []
    for segment in segments:
        together = [*group, segment]
        too_many_rows = sum(each.rows for each in together) > limits.rows
        if too_many_rows or sum(each.raw_bytes for each in together) > limits.raw_bytes:
            if len(group) > 1:
                yield tuple(group)
            group = [segment]
        else:
            group = together
        if len(group) == limits.fan_in:
            yield tuple(group)
            group = []
