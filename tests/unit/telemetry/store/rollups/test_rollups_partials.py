"""Roll-ups of turns: added in any order and grouping they are the roll-up of all, also through their files."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.store.manifest import Segment
from telemetry.store.rollups import files, making
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.pairs import pair
from telemetry.store.rollups.partials import partial, with_slowest_turns
from telemetry.store.rollups.rollup import SLOWEST, Key, Rollup, RollupCell, SegmentRollup, added, union_of_ranges
from telemetry.store.schema import turns_table
from tests.fixtures_turns import MS, synthetic_run


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with open_database() as opened:
        yield opened


def mixed_turns(seed: int, turns: int = 150) -> list[Turn]:
    """Turns that differ in all that a roll-up tells apart."""
    dice = random.Random(seed)
    found: list[Turn] = []
    for turn in synthetic_run(turns=turns, seed=seed).turns:
        changes: dict[str, object] = {
            "phase": dice.choice((None, "warm", "steady")),
            "speech_end_uncertainty_ns": dice.choice((None, 0, 15 * MS)),
        }
        changes["phase_kind"] = "ramp" if changes["phase"] == "warm" else None
        if dice.random() < 0.15:
            changes["outcome"] = dice.choice(("interrupted", "cut", "error", "no_reply"))
            changes["hangup_perf_ns"] = turn.started_perf_ns + dice.choice((2_400, 2_900, 3_400)) * MS
        if dice.random() < 0.1:
            changes |= {"withheld_metrics": ("voice_to_voice",), "withheld_reasons": ("not on this wire",)}
        if dice.random() < 0.1:
            changes |= {"cohort": None, "turn_kind": "silence"}
        if dice.random() < 0.1:
            changes |= {"response_id": None}
        if dice.random() < 0.2 and turn.source == "service":
            continue
        found.append(msgspec.structs.replace(turn, **changes))
    return found


def comparable(rollup: Rollup) -> tuple[dict[Key, tuple[object, ...]], dict[tuple[str, str], list[list[int]]]]:
    """The content as plain values; open turns are to be closed before."""

    def of(cell: RollupCell) -> tuple[object, ...]:
        histogram = cell.histogram
        counted = None if histogram is None else (histogram.buckets.tolist(), histogram.counts.tolist())
        ends = None if histogram is None else (histogram.low, histogram.high)
        return (
            *(getattr(cell, name) for name in ("n", "total", "least", "most", "first", "last", "text")),
            counted,
            ends,
        )

    return (
        {key: of(cell) for key, cell in rollup.cells.items()},
        {process: found.tolist() for process, found in rollup.sequences.items()},
    )


def closed(database: Database, *rollups: Rollup) -> Rollup:
    return pair(database, added(rollups), is_last=True)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(1, 10_000), parts=st.integers(1, 5))
def test_roll_ups_added_in_any_grouping_are_the_roll_up_of_all(database: Database, seed: int, parts: int) -> None:
    dice = random.Random(seed)
    turns = mixed_turns(seed)
    dice.shuffle(turns)
    whole = comparable(closed(database, partial(database, turns_table(turns))))
    piles = [partial(database, turns_table(turns[begin::parts])) for begin in range(parts)]
    assert comparable(closed(database, *piles)) == whole
    dice.shuffle(piles)
    half = len(piles) // 2
    nested = [pair(database, added(pile), is_last=False) for pile in (piles[:half], piles[half:]) if pile]
    assert comparable(closed(database, *nested)) == whole


@pytest.mark.slow
def test_tables_whose_turns_stay_open_are_paired_a_few_times_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "BATCH_ROWS", 8)
    times: list[Rollup] = []

    def counted(database: Database, rollup: Rollup, *, is_last: bool) -> Rollup:
        times.append(rollup)
        return pair(database, rollup, is_last=is_last)

    monkeypatch.setattr(making, "pair", counted)
    turns = [turn for turn in mixed_turns(5) if turn.source == "client" or turn.turn_index == 0]
    tables = [turns_table(turns[first : first + 8]) for first in range(0, len(turns), 8)]
    found = making.roll_up_tables(database, tables)
    assert comparable(closed(database, found)) == comparable(closed(database, partial(database, turns_table(turns))))
    assert len(tables) > 20
    assert len(times) < 9


def test_counts_of_turns_are_those_of_the_turns(database: Database) -> None:
    turns = mixed_turns(3)
    rollup = partial(database, turns_table(turns))
    outcomes, cohorts = Counter[str](), Counter[str | None]()
    for key, cell in rollup.of("turns"):
        outcomes[key.labels[1] or ""] += cell.n
        cohorts[key.cohort] += cell.n
    heard = [turn for turn in turns if turn.source == "client"]
    assert outcomes == Counter(turn.outcome for turn in heard)
    assert cohorts == Counter(turn.cohort for turn in heard)
    assert len(outcomes) > 4  # the turns do differ


def test_the_file_gives_back_what_was_written(database: Database, tmp_path: Path) -> None:
    turns = turns_table(mixed_turns(5))
    pq.write_table(turns, tmp_path / "turns.parquet")
    rollup = with_slowest_turns(database, partial(database, turns), [tmp_path / "turns.parquet"])
    file = files.RollupFile(files.encoded(SegmentRollup(rollup), 77), 77)
    back = file.rollup()
    back.open_turns = file.open_turns()
    assert rollup.open_turns is not None
    assert back.open_turns.num_rows > 10
    assert back.open_turns.to_pylist() == rollup.open_turns.to_pylist()
    assert comparable(back) == comparable(rollup)


def test_a_file_that_is_damaged_or_of_another_segment_is_refused(database: Database, tmp_path: Path) -> None:
    segment = Segment(
        table="turns", file="turns-1.parquet", rows=1, size_bytes=1, crc32=77, raw_bytes=1, stored_unix_ns=0
    )
    name = files.write(tmp_path, segment, SegmentRollup(partial(database, turns_table(mixed_turns(7, 30)))), 10**6)
    named = msgspec.structs.replace(segment, rollup=name)
    assert files.read(tmp_path, named) is not None
    with pytest.raises(StoreError, match="another segment"):
        files.read(tmp_path, msgspec.structs.replace(named, crc32=78))
    path = tmp_path / (name or "")
    content = path.read_bytes()
    for place in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(StoreError, match="damaged"):
            files.read(tmp_path, named)
    for shorter in (b"", content[:3], content[: len(content) // 2]):
        path.write_bytes(shorter)
        with pytest.raises(StoreError, match="damaged"):
            files.read(tmp_path, named)
    path.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        files.read(tmp_path, named)


def test_the_slowest_turns_are_kept_whole(database: Database, tmp_path: Path) -> None:
    turns = mixed_turns(9)
    table = turns_table(turns)
    pq.write_table(table, tmp_path / "[turns]'s.parquet")
    rollup = with_slowest_turns(database, partial(database, table), [tmp_path / "[turns]'s.parquet"])
    waited = {
        (turn.trace_id, turn.span_id): turn.first_audio_perf_ns - turn.speech_end_perf_ns
        for turn in turns
        if turn.source == "client"
        and turn.outcome != "invalid"
        and "voice_to_voice" not in turn.withheld_metrics
        and turn.first_audio_perf_ns is not None
        and turn.speech_end_perf_ns is not None
    }
    slowest = max(waited, key=lambda each: waited[each])
    kept = {key.labels: cell for key, cell in rollup.of(SLOWEST)}
    assert kept[slowest].most == waited[slowest]
    assert msgspec.json.decode(kept[slowest].text or "", type=Turn) in turns
    assert all(cell.text is not None for cell in kept.values())


def test_the_slowest_turns_are_found_in_several_files_of_which_one_lacks_a_column(
    database: Database, tmp_path: Path
) -> None:
    turns = mixed_turns(9)
    table = turns_table(turns)
    first, second = table.slice(0, len(turns) // 2), table.slice(len(turns) // 2)
    paths = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    pq.write_table(first.drop_columns(["utterance_id"]), paths[0])
    pq.write_table(second, paths[1])
    rollup = with_slowest_turns(database, partial(database, table), paths)
    shown = [msgspec.json.decode(cell.text or "", type=Turn) for _, cell in rollup.of(SLOWEST)]
    unnamed = {turn.span_id for turn in turns[: len(turns) // 2]}
    assert {turn.span_id in unnamed for turn in shown} == {True, False}, "of both files"
    for turn in shown:
        (whole,) = (each for each in turns if each.span_id == turn.span_id)
        assert turn == (msgspec.structs.replace(whole, utterance_id=None) if turn.span_id in unnamed else whole)


@given(st.lists(st.sets(st.integers(0, 60), min_size=1), min_size=1, max_size=5))
def test_ranges_hold_exactly_the_numbers_of_their_parts(parts: list[set[int]]) -> None:
    ranges = [np.array([[number, number] for number in part], dtype=np.int64) for part in parts]
    union = union_of_ranges(ranges)
    held = [number for first, last in union.tolist() for number in range(first, last + 1)]
    assert held == sorted(set().union(*parts))
    assert all(
        later - earlier > 1 for earlier, later in zip(union[:-1, 1].tolist(), union[1:, 0].tolist(), strict=True)
    )
