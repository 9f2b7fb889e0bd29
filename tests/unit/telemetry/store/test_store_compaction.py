"""Compaction: every turn once for every reader, before, while and after; damaged segments are left out and named."""

import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from telemetry.store import manifest as manifests
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits, plan
from telemetry.store.reader import StoreReader
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, stage_spans

FAN_IN = 4


def _compactor(writer: StoreWriter, **options: Any) -> Compactor:
    return Compactor(writer, limits=MergeLimits(fan_in=FAN_IN), **options)


def _segments(directory: Path) -> list[Path]:
    return sorted((directory / manifests.SEGMENTS_FOLDER).iterdir())


def _fill(writer: StoreWriter, count: int, first: int = 0) -> None:
    for index in range(first, first + count):
        writer.append(Batch(turns=[client_turn(index)]))


@pytest.mark.slow
def test_a_reader_sees_each_turn_once_while_segments_are_merged(tmp_path: Path) -> None:
    appended, total, done = [0], 80, threading.Event()

    def write() -> None:
        with StoreWriter(tmp_path) as writer:
            compactor = _compactor(writer, grace_s=0.0)
            for index in range(total):
                writer.append(Batch(turns=[client_turn(index)]))
                appended[0] = index + 1
                compactor.run_once()
            compactor.stop()
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    looks = 0
    with StoreReader(tmp_path) as reader:
        while not done.is_set() and thread.is_alive():
            least = appended[0]
            if least == 0:
                continue
            seen = [turn.sequence for turn in reader.turns(limit=10_000)]
            assert len(seen) == len(set(seen)), "a turn was seen twice"
            assert least <= len(seen) <= appended[0] + 1
            assert reader.faults == ()
            looks += 1
        thread.join()
        assert [turn.sequence for turn in reader.turns(limit=10_000)] == list(range(total))
    assert looks > 3
    assert len(_segments(tmp_path)) < 4 * FAN_IN


def test_files_vanish_between_the_manifest_and_the_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter(tmp_path) as writer, StoreReader(tmp_path) as reader:
        _fill(writer, FAN_IN)
        compactor = _compactor(writer, grace_s=0.0)
        prepare = reader._snapshots._prepare
        merged = []

        def prepare_then_merge(manifest: manifests.StoreManifest) -> None:
            prepare(manifest)
            if not merged:
                merged.append(compactor.run_once())
                compactor.stop()  # and the old files are gone

        monkeypatch.setattr(reader._snapshots, "_prepare", prepare_then_merge)
        assert len(reader.turns(limit=100)) == FAN_IN
        assert merged == [True]
        assert reader.faults == ()


def test_levels_are_merged_in_turn_and_order_is_kept(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        compactor = _compactor(writer, grace_s=0.0)
        _fill(writer, FAN_IN * FAN_IN)
        while compactor.run_once():
            pass
        compactor.stop()
        (only,) = writer.manifest.segments
        assert (only.level, only.rows, plan(writer.manifest, MergeLimits(fan_in=FAN_IN))) == (2, FAN_IN * FAN_IN, ())
    assert len(_segments(tmp_path)) == 1
    assert pq.read_table(_segments(tmp_path)[0], columns=["sequence"]).column(0).to_pylist() == list(range(FAN_IN**2))


def test_tables_do_not_mix(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer, StoreReader(tmp_path) as reader:
        for index in range(FAN_IN):
            turn = client_turn(index)
            spans = stage_spans(turn) or []
            writer.append(Batch([turn], spans))
        compactor = _compactor(writer)
        while compactor.run_once():
            pass
        assert reader.summary().turns.total == FAN_IN


def test_retired_files_stay_for_readers_for_a_while(tmp_path: Path) -> None:
    now = [0.0]
    with StoreWriter(tmp_path) as writer:
        compactor = _compactor(writer, grace_s=10.0, clock_s=lambda: now[0])
        _fill(writer, FAN_IN)
        assert compactor.run_once()
        assert len(_segments(tmp_path)) == FAN_IN + 1
        now[0] = 11.0
        assert not compactor.run_once()
        assert len(_segments(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "remove"])
@pytest.mark.parametrize("known", [True, False], ids=["read-before", "new"])
def test_a_damaged_segment_is_left_out_and_named(tmp_path: Path, damage: str, known: bool) -> None:
    with StoreWriter(tmp_path) as writer, StoreReader(tmp_path) as reader:
        _fill(writer, 3)
        if known:
            assert reader.summary().turns.total == 3
        victim = _segments(tmp_path)[1]
        content = victim.read_bytes()
        if damage == "remove":
            victim.unlink()
        else:
            middle = len(content) // 2
            flipped = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
            victim.write_bytes({"truncate": content[:-10], "flip": flipped, "empty": b""}[damage])
        summary = reader.summary()
        assert summary.skipped_segments == 1
        assert [victim.name in fault for fault in reader.faults] == [True]
        assert summary.turns.total == 2


def test_compaction_goes_on_beside_a_damaged_segment(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        _fill(writer, FAN_IN + 1)
        _segments(tmp_path)[2].write_bytes(b"PAR1")
        compactor = _compactor(writer, grace_s=0.0)
        while compactor.run_once():
            pass
        compactor.stop()
        assert sorted(segment.rows for segment in writer.manifest.segments) == [1, FAN_IN]
    with StoreReader(tmp_path) as reader:
        assert reader.summary().turns.total == FAN_IN
        assert len(reader.faults) == 1


def test_segments_of_an_older_schema_are_read_and_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from telemetry.store import writer as writing

    full = writing.turns_table
    with StoreWriter(tmp_path) as writer:
        monkeypatch.setattr(writing, "turns_table", lambda turns: full(turns).drop_columns(["pacer", "wer"]))
        writer.append(Batch(turns=[client_turn(0)]))
        with StoreReader(tmp_path) as reader:
            assert reader.turns() == [client_turn(0)]
        monkeypatch.setattr(writing, "turns_table", full)
        for index in range(1, FAN_IN):
            writer.append(Batch(turns=[client_turn(index, pacer="timerfd")]))
        with StoreReader(tmp_path) as reader:
            before = reader.turns()
            assert _compactor(writer, grace_s=0.0).run_once()
            assert reader.turns() == before
            assert reader.summary().generator.pacer == "timerfd"


@pytest.mark.parametrize("stopped_in", ["the rows", "the roll-up"])
def test_a_merge_is_given_up_when_its_process_ends(tmp_path: Path, stopped_in: str) -> None:
    stopping = threading.Event()
    rolled_up: list[Path] = []

    def roll_up(path: Path, _segment: manifests.Segment) -> None:
        rolled_up.append(path)
        stopping.set()

    with StoreWriter(tmp_path) as writer:
        _fill(writer, FAN_IN)
        before = writer.manifest
        compactor = _compactor(writer, grace_s=0.0, roll_up=roll_up, stopping=stopping)
        if stopped_in == "the rows":
            stopping.set()
        assert not compactor.run_once()
        assert len(rolled_up) == (stopped_in == "the roll-up")
        assert compactor.health.last_failure is None
        compactor.stop()
        assert writer.manifest == before
        assert {path.name for path in _segments(tmp_path)} == before.files
    with StoreWriter(tmp_path) as writer:
        compactor = _compactor(writer, grace_s=0.0)
        assert compactor.run_once(), "it is made by the next process"
        compactor.stop()
    with StoreReader(tmp_path) as reader:
        assert [turn.sequence for turn in reader.turns()] == list(range(FAN_IN))


def test_a_roll_up_is_given_up_when_its_process_ends(tmp_path: Path) -> None:
    stopping = threading.Event()
    make = RollUpMaker(fewest_rows=1, most_of_segment=1e3, is_stopping=stopping.is_set)
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch(turns=[client_turn(index) for index in range(FAN_IN)]))
        (segment,) = writer.manifest.segments
        path = manifests.segment_path(tmp_path, segment)
        stopping.set()
        assert make(path, segment) is None
        assert {each.name for each in _segments(tmp_path)} == writer.manifest.files
        stopping.clear()
        assert make(path, segment) is not None
