"""A store answers from roll-ups as it does from its turns: counts the same, percentiles within a bucket."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.turns import Turn
from telemetry.objectives.slo import Objective
from telemetry.store import turn_questions
from telemetry.store.answers import Filter
from telemetry.store.compaction import Compactor
from telemetry.store.manifest import SEGMENTS_FOLDER, load, publish
from telemetry.store.missing_rollups import FEWEST_ROWS, MissingRollUps
from telemetry.store.pages import PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import distributions, files, library, windows
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.distributions import SHORT_TICK_NS
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.rollups.partials import unpaired
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, START_UNIX_NS, client_turn
from tests.unit.telemetry.store.rollups.answers_compared import (
    EVERY,
    FILTERS,
    LIMITS,
    NOW_NS,
    answers_agree,
    compared,
    mixed_turns,
    stored,
)


@pytest.mark.slow
def test_a_store_without_roll_ups_answers_the_same(tmp_path: Path) -> None:
    answers_agree(stored(tmp_path / "store", mixed_turns(1, 300), segments=3))


@pytest.mark.slow
def test_a_small_store_with_roll_ups_answers_the_same(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(1, 200), segments=3, compacted=2)
    assert rollups_of(folder)
    answers_agree(folder, FILTERS[1:2])


def rollups_of(folder: Path) -> list[Path]:
    named = [segment.rollup for segment in load(folder).segments]
    return [folder / SEGMENTS_FOLDER / name for name in named if name is not None]


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(1, 10_000), segments=st.integers(4, 9), compacted=st.integers(2, 9))
def test_segments_with_and_without_roll_up_answer_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, segments: int, compacted: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    stored(folder, mixed_turns(seed, 400), segments=segments, compacted=min(compacted, segments))
    assert rollups_of(folder)
    answers_agree(folder)


@pytest.mark.slow
def test_a_roll_up_that_is_missing_or_damaged_is_made_anew(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(4, 300), segments=6, compacted=6)
    missing, damaged, *_ = rollups_of(folder)
    missing.unlink()
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    answers_agree(folder, FILTERS[1:3])


@pytest.mark.slow
def test_a_roll_up_of_other_turns_is_not_believed(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(4, 300), segments=6, compacted=6)
    one, other, *_ = rollups_of(folder)
    content = other.read_bytes()
    manifest = load(folder)
    forged = one.with_name(f"rollup-turns-forged-{zlib.crc32(content):08x}.parquet")
    forged.write_bytes(content)
    changed = [
        msgspec.structs.replace(segment, rollup=forged.name) if segment.rollup == one.name else segment
        for segment in manifest.segments
    ]
    publish(folder, msgspec.structs.replace(manifest, segments=tuple(changed), sequence=manifest.sequence + 1))
    answers_agree(folder, FILTERS[1:2])


@pytest.mark.slow
def test_roll_ups_of_merged_segments_come_from_those_that_they_replace(tmp_path: Path) -> None:
    folder, turns = tmp_path / "store", mixed_turns(8, 200)
    with StoreWriter(folder) as writer:
        for begin in range(0, 400, 100):
            writer.append(Batch(turns[begin : begin + 100]))
        compactor = Compactor(writer, limits=LIMITS, roll_up=EVERY, grace_s=0.0)
        while compactor.run_once():
            pass
        compactor.stop()
    (segment,) = load(folder).segments
    left = [path.name for path in (folder / SEGMENTS_FOLDER).iterdir()]
    assert sorted(left) == sorted([segment.file, segment.rollup or ""])
    answers_agree(folder, FILTERS[:3])


@pytest.mark.slow
def test_a_roll_up_larger_than_it_is_worth_is_not_kept(tmp_path: Path) -> None:
    # A run for each turn: a roll-up would say as much as the turns.
    turns = [msgspec.structs.replace(turn, run_id=f"run-{place}") for place, turn in enumerate(mixed_turns(8, 100))]
    folder = stored(tmp_path / "store", turns, segments=2, compacted=2, roll_up=RollUpMaker(fewest_rows=2))
    assert rollups_of(folder) == []
    answers_agree(folder, FILTERS[:1])


@pytest.mark.slow
def test_a_service_that_does_not_know_the_run_is_joined_across_segments(tmp_path: Path) -> None:
    turns = [
        msgspec.structs.replace(turn, run_id="") if turn.source == "service" else turn for turn in mixed_turns(2, 150)
    ]
    folder = stored(tmp_path / "store", turns, segments=6, compacted=4)
    with StoreReader(folder) as exact, StoreReader(folder, fewest_rolled_up=-1) as rolled:
        found = rolled.summary(Filter(run_id="run-1")).client_service_delta
        compared(exact.summary(Filter(run_id="run-1")).client_service_delta, found)
    assert found.joined > 50
    assert found.client_only > 3


def slotted(folder: Path, turns: Sequence[Turn], *, merged: bool) -> Path:
    """A store of two segments with roll-ups by slot, made from turns or added up from those of merged segments."""
    with StoreWriter(folder) as writer:
        size = -(-len(turns) // 4)
        for begin in range(0, len(turns), size):
            writer.append(Batch(turns[begin : begin + size]))
        compactor = Compactor(writer, limits=LIMITS, roll_up=EVERY, grace_s=0.0)
        missing = MissingRollUps(
            writer, EVERY, clock_s=lambda: 0.0, on_damage=lambda _segment: None, fewest_rows={"turns": 2}
        )
        while (not merged and compactor.run_once()) or missing.make_one() or (merged and compactor.run_once()):
            pass
        compactor.stop()
    return folder


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(data=st.data(), seed=st.integers(1, 10_000), merged=st.booleans())
def test_any_window_from_slots_is_that_of_its_turns(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, seed: int, merged: bool
) -> None:
    turns = mixed_turns(seed, 300)
    folder = slotted(tmp_path_factory.mktemp("store"), turns, merged=merged)
    (rollup, *_) = rollups_of(folder)
    families = files.RollupFile(files.content_of(rollup), int(rollup.name.split("-")[3], 16)).families
    assert len(families) > 2, "a window looks into several"
    # Windows begin and end with a turn, just before one, or anywhere.
    moments = sorted(turn.started_unix_ns for turn in turns)
    edges = st.one_of(
        st.none(),
        st.sampled_from(moments),
        st.sampled_from(moments).map(lambda moment: moment + 1),
        st.integers(moments[0] - 10**9, moments[-1] + 10**9),
    )
    filters = [
        Filter(run_id=run_id, cohort=cohort, since_unix_ns=data.draw(edges), until_unix_ns=data.draw(edges))
        for run_id, cohort in ((None, None), ("run-1", None), ("run-1", "streaming"))
    ]
    answers_agree(folder, filters)


@pytest.mark.slow
def test_a_window_reads_the_turns_of_no_more_than_its_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = mixed_turns(3, 300)
    folder = slotted(tmp_path, turns, merged=True)
    read: list[int] = []

    def counted(database: Database, table: Any) -> Any:
        read.append(sum(source == "client" for source in table.column("source").to_pylist()))
        return unpaired(database, table)

    monkeypatch.setattr(windows, "unpaired", counted)
    moments = sorted(turn.started_unix_ns for turn in turns if turn.source == "client")
    window = Filter(run_id="run-1", since_unix_ns=moments[len(moments) // 3] + 1)
    with StoreReader(folder, wall_clock_ns=lambda: NOW_NS, fewest_rolled_up=-1) as rolled:
        found = rolled.summary(window).turns.total
    assert found > 100
    assert 0 < sum(read) <= 2 * 4 * EVERY.slot_turns


@pytest.mark.slow
def test_a_page_of_many_turns_a_second_has_a_timeline_of_short_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributions, "_TURNS_OF_SHORT_TICKS", 10)
    # What mixed_turns spreads over an hour, within seconds.
    turns = [
        msgspec.structs.replace(turn, started_unix_ns=START_UNIX_NS + (turn.started_unix_ns - START_UNIX_NS) // 100)
        for turn in mixed_turns(6, 1_500)
    ]
    folder = slotted(tmp_path, turns, merged=False)
    asked = PageQuestion(Filter(run_id="run-1"), fewest_buckets=3, dots=0)
    with (
        StoreReader(folder, wall_clock_ns=lambda: NOW_NS) as exact,
        StoreReader(folder, wall_clock_ns=lambda: NOW_NS, fewest_rolled_up=-1) as rolled,
    ):
        with monkeypatch.context() as patched:
            patched.setattr(turn_questions, "timeline", None)  # reads turns one by one
            found = rolled.page(asked).timeline
        assert len(found) >= 3
        assert {point.start_unix_ns % SHORT_TICK_NS for point in found} == {0}
        compared(exact.timeline(asked.filter, buckets=len(found) + 1), list(found))


def test_few_turns_are_answered_exactly(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(1, 100), segments=2)
    with StoreReader(folder, fewest_rolled_up=1_000) as few, StoreReader(folder, fewest_rolled_up=-1) as rolled:
        assert not few.summary(Filter()).metrics["voice_to_voice"].approximate
        assert rolled.summary(Filter()).metrics["voice_to_voice"].approximate


def test_a_database_for_roll_ups_is_opened_only_where_they_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Database] = []

    def counted() -> Database:
        opened.append(open_database())
        return opened[-1]

    monkeypatch.setattr(library, "open_database", counted)
    folder = stored(tmp_path / "store", mixed_turns(1, 100), segments=2)
    with StoreReader(folder, fewest_rolled_up=1_000) as few:
        assert few.summary(Filter()).turns.total
        assert few.runs()
        assert opened == []
    with StoreReader(folder, fewest_rolled_up=-1) as rolled:
        for _ in range(2):
            assert rolled.summary(Filter()).turns.total
        assert len(opened) == 1
    with pytest.raises(duckdb.ConnectionException):
        opened[0].execute("SELECT 1")


def test_objectives_that_no_edge_decides_are_counted_over_turns(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(1, 200), segments=2)
    odd = [
        Objective("fine", "metric", 0.9, "voice_to_voice", 512.3456 * MS),
        Objective("rate", "metric", 0.9, "tokens_per_s", 40.0),
        Objective("short", "metric", 0.9, "voice_to_voice", 500.0 * MS, length_class="short"),
    ]
    with StoreReader(folder) as exact, StoreReader(folder, fewest_rolled_up=-1) as rolled:
        for objective in odd:
            assert rolled.objective_counts(Filter(), [objective]) == exact.objective_counts(Filter(), [objective])


@pytest.mark.slow
def test_new_turns_are_seen_at_once(tmp_path: Path) -> None:
    folder, turns = tmp_path / "store", mixed_turns(1, 100)
    with StoreWriter(folder) as writer, StoreReader(folder, fewest_rolled_up=-1) as rolled:
        seen: list[int] = []
        for begin in range(0, 150, 50):
            writer.append(Batch(turns[begin : begin + 50]))
            seen.append(rolled.summary(Filter()).turns.total)
    heard = [sum(t.source == "client" and t.turn_kind != "silence" and t.phase != "up" for t in turns[:end])
             for end in (50, 100, 150)]  # fmt: skip
    assert seen == heard


@pytest.mark.slow
def test_of_runs_that_were_asked_long_ago_nothing_is_kept(tmp_path: Path) -> None:
    """A dashboard that visits every run of a store stays as small as one that visits a few."""
    runs = [f"run-{number}" for number in range(3 * library.KEPT_RUNS)]
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch([client_turn(place, run_id=run_id) for place, run_id in enumerate(runs)]))
        compactor = Compactor(writer, roll_up=EVERY)
        with patch.dict(FEWEST_ROWS, turns=1):
            assert compactor.roll_up_once()
    assert rollups_of(tmp_path)
    with StoreReader(tmp_path, fewest_rolled_up=-1) as reader:
        for _ in range(2):
            for place, run_id in enumerate(runs):
                assert reader.summary(Filter(run_id=run_id)).turns.total == 1
                kept = {known for _, known in reader._library._known}
                assert run_id in kept
                assert len(kept) <= library.KEPT_RUNS, f"after {place + 1} runs"
