"""Answers narrowed by noise, length, channel and route: from the sums of a roll-up, they are those of the turns."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.store.answers import Filter
from telemetry.store.compaction import Compactor
from telemetry.store.manifest import SEGMENTS_FOLDER, load
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import library, making, windows
from telemetry.store.rollups.by_value import is_asked, narrowed
from telemetry.store.rollups.files import RollupFile, content_of
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.rollups.rollup import RollupCell, without_faster
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.summed_tables import summed
from telemetry.store.schema import ArrowTable, Batch
from telemetry.store.writer import StoreWriter
from tests.unit.telemetry.store.rollups.answers_compared import (
    EVERY,
    LIMITS,
    NARROWED,
    NOW_NS,
    answers_agree,
    compared,
    mixed_turns,
    stored,
)

STREET = Filter(run_id="run-1", noise_profile="street")


def files_of(folder: Path) -> list[RollupFile]:
    return [
        RollupFile(content_of(folder / SEGMENTS_FOLDER / segment.rollup), segment.crc32)
        for segment in load(folder).segments
        if segment.rollup is not None and segment.table == "turns"
    ]


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(
    seed=st.integers(1, 10_000),
    compacted=st.integers(0, 7),
    f=st.sampled_from(NARROWED),
    value_turns=st.sampled_from((0, 12)),
)
def test_any_values_are_answered_as_their_turns_are(
    tmp_path_factory: pytest.TempPathFactory, seed: int, compacted: int, f: Filter, value_turns: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    maker = RollUpMaker(fewest_rows=2, most_of_segment=99.0, slot_turns=4, value_turns=value_turns)
    stored(folder, mixed_turns(seed, 300), segments=7, compacted=compacted, roll_up=maker)
    answers_agree(folder, [f])


@pytest.mark.slow
def test_values_are_counted_as_a_statement_by_hand_counts_them(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(8, 400), segments=4, compacted=4)
    files = [str(folder / SEGMENTS_FOLDER / each.file) for each in load(folder).segments if each.table == "turns"]
    expected = duckdb.execute(
        """
        SELECT count(*), count(*) FILTER (WHERE outcome = 'invalid') FROM read_parquet(?)
        WHERE source = 'client' AND run_id = 'run-1' AND route = 'cache' AND noise_profile = 'clean'
              AND phase_kind IS DISTINCT FROM 'ramp' AND turn_kind IS DISTINCT FROM 'silence'
        """,
        [files],
    ).fetchall()
    with StoreReader(folder, fewest_rolled_up=-1) as reader:
        found = reader.summary(Filter(run_id="run-1", route="cache", noise_profile="clean")).turns
    assert [(found.total, found.invalid)] == expected
    assert found.total > 10


@pytest.mark.slow
def test_no_turn_is_read_for_values_that_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored(tmp_path / "store", mixed_turns(2, 200), segments=4, compacted=4)
    with StoreReader(folder) as exact:
        expected = exact.summary(STREET).turns
    monkeypatch.setattr(windows, "_clients", None)
    monkeypatch.setattr(windows, "_services", None)
    with StoreReader(folder, fewest_rolled_up=-1) as reader:
        assert reader.summary(STREET).turns == expected


@pytest.mark.slow
def test_turns_of_unknown_values_are_read_as_long_as_they_are_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = RollUpMaker(fewest_rows=2, most_of_segment=99.0, value_turns=10**6)
    folder = stored(tmp_path / "store", mixed_turns(2, 200), segments=4, compacted=4, roll_up=maker)
    assert not any(file.has_values for file in files_of(folder))
    monkeypatch.setattr(windows, "FEWEST_ROWS", 1)
    for most, is_rolled_up in ((10**6, True), (10, False)):
        monkeypatch.setattr(library, "_MOST_ROWS_MADE", most)
        with StoreReader(folder, fewest_rolled_up=-1) as reader:
            assert reader.summary(STREET).metrics["voice_to_voice"].approximate is is_rolled_up


def test_many_combinations_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.store.rollups.by_value.MOST_COMBINATIONS", 2)
    folder = stored(tmp_path / "store", mixed_turns(2, 60), segments=2, compacted=2)
    assert [file.has_values for file in files_of(folder)] == [False]


@pytest.mark.slow
def test_a_file_that_would_be_too_large_is_kept_without_values(tmp_path: Path) -> None:
    def made(name: str, maker: RollUpMaker) -> tuple[bool, float]:
        folder = stored(tmp_path / name, mixed_turns(2, 100), segments=2, compacted=2, roll_up=maker)
        (segment,) = (each for each in load(folder).segments if each.table == "turns")
        assert segment.rollup is not None
        size = (folder / SEGMENTS_FOLDER / segment.rollup).stat().st_size
        return files_of(folder)[0].has_values, size / segment.size_bytes

    (has_values, whole), (_, less) = made("whole", EVERY), made("less", dataclasses.replace(EVERY, value_turns=10**6))
    assert has_values
    assert not made("between", dataclasses.replace(EVERY, most_of_segment=(whole + less) / 2))[0]


@pytest.mark.slow
def test_values_of_a_merged_segment_come_from_those_that_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    roll_up_by_value = making.roll_up_by_value

    def counted(database: making.Database, path: Path, tables: Iterable[ArrowTable]) -> making.Rollup:
        made.append(path)
        return roll_up_by_value(database, path, tables)

    monkeypatch.setattr(making, "roll_up_by_value", counted)
    folder = stored(tmp_path / "store", mixed_turns(2, 200), segments=4, compacted=4, roll_up=EVERY)
    assert [file.has_values for file in files_of(folder)] == [True]
    assert len(made) == 2


@pytest.mark.slow
def test_rows_of_cells_are_added_up_as_cells_are(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(5, 300), segments=6, compacted=4, roll_up=EVERY)
    files = [file for file in files_of(folder) if file.has_values]
    for f in (Filter(), *NARROWED):
        tables = [narrowed(values, f) for file in files if (values := file.values(f.run_id)) is not None]
        cells = [
            (key._replace(slot=None), cell)
            for file in files
            if (each := file.by_value()) is not None
            for key, cell in each.cells.items()
            if is_asked(key.slot or "", f) and f.run_id in (None, key.run_id)
        ]
        expected, found = without_faster(gathered(cells)), summed(tables)
        assert found.keys() == expected.keys()
        assert {key: _plain(cell) for key, cell in found.items()} == {k: _plain(cell) for k, cell in expected.items()}


def _plain(cell: RollupCell) -> dict[str, Any]:
    histogram = cell.histogram
    found = {name: getattr(cell, name) for name in ("n", "least", "most", "first", "last", "text_at", "text")}
    found["total"] = pytest.approx(cell.total)
    if histogram is not None:
        found["histogram"] = (*map(list, (histogram.buckets, histogram.counts)), histogram.low, histogram.high)
    return found


def test_rows_of_no_cells_add_up_to_nothing() -> None:
    assert summed([]) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("kept_bytes", "times"), [(1 << 30, 1), (0, 2)])
def test_the_rows_of_values_are_read_once_as_far_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int, times: int
) -> None:
    folder = stored(tmp_path / "store", mixed_turns(2, 200), segments=4, compacted=4)
    monkeypatch.setattr(library, "_KEPT_BYTES", kept_bytes)
    read: list[str | None] = []
    values = RollupFile.values

    def counted(file: RollupFile, run_id: str | None) -> ArrowTable | None:
        read.append(run_id)
        return values(file, run_id)

    monkeypatch.setattr(RollupFile, "values", counted)
    clean = Filter(run_id="run-1", noise_profile="clean")
    with StoreReader(folder) as exact, StoreReader(folder, fewest_rolled_up=-1) as reader:
        for f in (STREET, clean):
            assert reader.summary(f).turns == exact.summary(f).turns
    assert read == ["run-1"] * times * len(files_of(folder))


@pytest.mark.parametrize("value", ["a\x1fb", ""])
def test_a_value_that_no_combination_can_name_is_looked_for_turn_by_turn(tmp_path: Path, value: str) -> None:
    folder = stored(tmp_path / "store", mixed_turns(2, 100), segments=2, compacted=2)
    f = Filter(channel_profile=value) if value == "" else Filter(noise_profile=value)
    with StoreReader(folder, fewest_rolled_up=-1) as reader:
        found = reader.summary(f)
    assert found.turns.total > 5
    assert not found.metrics["voice_to_voice"].approximate


@pytest.mark.slow
def test_a_reader_that_stays_open_sees_the_turns_of_a_value_that_arrive(tmp_path: Path) -> None:
    turns, folder = mixed_turns(9, 300), tmp_path / "store"
    with (
        StoreWriter(folder) as writer,
        StoreReader(folder, wall_clock_ns=lambda: NOW_NS, fewest_rolled_up=-1) as rolled,
    ):
        compactor = Compactor(writer, limits=LIMITS, roll_up=EVERY)
        seen: list[int] = []
        for place, begin in enumerate(range(0, len(turns), 60)):
            writer.append(Batch(turns[begin : begin + 60]))
            if place % 2:
                compactor.run_once()
            with StoreReader(folder, wall_clock_ns=lambda: NOW_NS) as exact:
                for f in (STREET, Filter(length_class="short")):
                    compared(exact.summary(f), rolled.summary(f))
                    compared(exact.stage_budget(f), rolled.stage_budget(f))
                seen.append(exact.summary(STREET).turns.total)
        compactor.stop()
    assert seen == sorted(set(seen))
