"""The plan of compaction on its own: progress and a bounded number of segments for any sizes."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.store.compaction_plan import MergeLimits, backlog, plan
from telemetry.store.manifest import Segment, StoreManifest, Table
from telemetry.store.retention import Keep

LIMITS = MergeLimits(fan_in=4, rows=1_000, raw_bytes=100_000)


def _segment(number: int, rows: int, raw_bytes: int, *, level: int = 0, table: Table = "turns") -> Segment:
    file = f"{table}-{number:09d}.parquet"
    return Segment(
        table=table,
        file=file,
        rows=rows,
        size_bytes=1,
        crc32=0,
        raw_bytes=raw_bytes,
        stored_unix_ns=number,
        level=level,
    )


def _merged(segments: tuple[Segment, ...], chosen: tuple[Segment, ...], number: int) -> tuple[Segment, ...]:
    place = segments.index(chosen[0])
    rows, raw_bytes = sum(each.rows for each in chosen), sum(each.raw_bytes for each in chosen)
    level = max(map(LIMITS.tier, chosen)) + 1
    new = _segment(number, rows, raw_bytes, level=level, table=chosen[0].table)
    return (*segments[:place], new, *(each for each in segments[place:] if each not in chosen))


def _settled(segments: tuple[Segment, ...], number: int) -> tuple[tuple[Segment, ...], int]:
    merges = 0
    while chosen := plan(StoreManifest(segments=segments), LIMITS):
        assert 2 <= len(chosen) <= LIMITS.fan_in
        assert len({(each.table, LIMITS.tier(each)) for each in chosen}) == 1
        assert sum(each.rows for each in chosen) <= LIMITS.rows
        assert sum(each.raw_bytes for each in chosen) <= LIMITS.raw_bytes
        segments = _merged(segments, chosen, number + merges)
        merges += 1
    assert backlog(StoreManifest(segments=segments), LIMITS) == 0
    return segments, merges


_SIZES = st.tuples(
    st.one_of(st.integers(1, 50), st.integers(400, 1_200)),
    st.one_of(st.integers(1, 5_000), st.integers(40_000, 120_000)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_SIZES, max_size=200), st.booleans())
def test_any_appends_end_with_a_bounded_number_of_segments(sizes: list[tuple[int, int]], at_once: bool) -> None:
    segments: tuple[Segment, ...] = ()
    number = merges = 0
    for rows, raw_bytes in sizes:
        segments = (*segments, _segment(number, rows, raw_bytes))
        number += 1
        if not at_once:
            segments, merges = _settled(segments, number)
            number += merges
    segments, merges = _settled(segments, number)
    assert merges <= len(sizes), "each merge takes at least one segment away"
    all_rows, all_bytes = sum(rows for rows, _ in sizes), sum(raw_bytes for _, raw_bytes in sizes)
    assert sum(each.rows for each in segments) == all_rows
    assert sum(each.raw_bytes for each in segments) == all_bytes
    # A tier holds fewer than fan_in that wait, and others of which two neighbors exceed a limit together; a segment
    # of a tier was made of at least two of the one below, unless its size put it there.
    tiers = 6 + math.floor(math.log2(max(len(sizes), 1)))
    assert len(segments) <= tiers * LIMITS.fan_in + 2 * (all_rows / LIMITS.rows + all_bytes / LIMITS.raw_bytes)


def test_a_level_whose_first_segments_exceed_the_limit_together_does_not_stay_as_it_is() -> None:
    large = tuple(_segment(number, 10, 40_000) for number in range(4))
    assert plan(StoreManifest(segments=large), LIMITS) == large[:2]
    alone = (_segment(9, 10, 200_000), *(_segment(number, 10, 10) for number in range(4)))
    assert plan(StoreManifest(segments=alone), LIMITS) == alone[1:]


def test_rows_count_beside_bytes() -> None:
    many = tuple(_segment(number, 300, 10) for number in range(5))
    assert plan(StoreManifest(segments=many), LIMITS) == many[:3]
    assert plan(StoreManifest(segments=many[:3]), LIMITS) == (), "nothing says yet that the next one will be too many"


def test_a_large_segment_is_not_written_anew_for_small_ones() -> None:
    large = _segment(0, 500, 10, level=1)
    small = tuple(_segment(number, 1, 10, level=1) for number in range(1, 4))
    assert plan(StoreManifest(segments=(large, *small)), LIMITS) == ()
    more = (*small, _segment(4, 1, 10, level=1))
    assert plan(StoreManifest(segments=(large, *more)), LIMITS) == more
    # Of several large ones each is written anew once.
    alike = (large, _segment(5, 400, 10))
    assert plan(StoreManifest(segments=(*alike, *small, _segment(6, 400, 10))), LIMITS) == alike


def test_a_size_to_keep_bounds_what_is_large() -> None:
    limits = LIMITS.for_keeping(Keep(size_bytes=80))
    segments = (_segment(0, 1, 10), _segment(1, 1, 10))
    assert [limits.tier(each) for each in segments] == [5, 5], "a tenth of the largest file"
    assert [LIMITS.tier(each) for each in segments] == [0, 0]


def test_what_is_left_out_does_not_hold_up_others() -> None:
    segments = tuple(_segment(number, 10, 10) for number in range(9))
    left_out = {segments[1]}
    chosen = plan(StoreManifest(segments=segments), LIMITS, left_out)
    assert chosen == (segments[0], *segments[2:5])
    assert backlog(StoreManifest(segments=segments), LIMITS) == 8
