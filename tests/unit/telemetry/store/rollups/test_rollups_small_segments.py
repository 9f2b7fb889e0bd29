"""Small segments, rolled up as they come and go, are the roll-up of all their turns at each moment, also of a stretch
of time."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.compaction import Compactor
from telemetry.store.manifest import Segment
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import small_segments, windows
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.distributions import LONG_TICK_NS
from telemetry.store.rollups.pairs import pair
from telemetry.store.rollups.partials import partial, unpaired
from telemetry.store.rollups.rollup import SLOWEST, Key, Rollup
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.small_segments import SmallSegments
from telemetry.store.schema import ArrowTable, Batch, turns_table
from telemetry.store.writer import StoreWriter
from tests.unit.telemetry.store.rollups import answers_compared
from tests.unit.telemetry.store.rollups.test_rollups_partials import comparable, mixed_turns


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with open_database() as opened:
        yield opened


def in_long_ticks(key: Key) -> Key:
    """Of few turns at once, some are counted in shorter ticks than of all of them."""
    if key.part != "tick":
        return key
    tick, length_ns = (int(label or 0) for label in key.labels)
    return key._replace(labels=(str(tick * length_ns // LONG_TICK_NS), str(LONG_TICK_NS)))


class Store:
    """Segments in a folder: some that stay, some that become one, as compaction has it."""

    def __init__(self, folder: Path, turns: Sequence[Turn], of_each: int) -> None:
        self._folder = folder
        self._waiting = [turns[begin : begin + of_each] for begin in range(0, len(turns), of_each)]
        self.held: dict[str, Sequence[Turn]] = {}
        self._written = 0

    def add(self) -> None:
        self._write(self._waiting.pop())

    def merge(self, files: Sequence[str]) -> None:
        together = [turn for file in files for turn in self.held.pop(file)]
        for file in files:
            (self._folder / file).unlink()
        self._write(together)

    def _write(self, turns: Sequence[Turn]) -> None:
        file = f"turns-{self._written}.parquet"
        self._written += 1
        pq.write_table(turns_table(list(turns)), self._folder / file)
        self.held[file] = turns

    def segments(self) -> list[Segment]:
        like = Segment(table="turns", file="", rows=0, size_bytes=1, crc32=1, raw_bytes=1, stored_unix_ns=0)
        return [msgspec.structs.replace(like, file=file, rows=len(turns)) for file, turns in self.held.items()]


def plain(rollup: Rollup) -> object:
    """The content without the text of the slowest turns, what is counted over time in long ticks."""
    long_ticks = ((in_long_ticks(key), cell) for key, cell in rollup.cells.items())
    cells, sequences = comparable(Rollup(gathered(long_ticks), rollup.sequences))
    return {key: cell[:-3] + cell[-2:] if key.part == SLOWEST else cell for key, cell in cells.items()}, sequences


@pytest.mark.slow
@pytest.mark.parametrize(("most_blocks", "of_each"), [(0, 6), (3, 6), (64, 1)])
def test_the_roll_up_is_that_of_all_turns_whatever_came_and_was_merged(
    database: Database, tmp_path: Path, most_blocks: int, of_each: int
) -> None:
    dice = random.Random(of_each)
    turns = mixed_turns(of_each, 70)
    dice.shuffle(turns)
    by_span = {turn.span_id: turn for turn in turns if turn.source == "client"}
    store, small = Store(tmp_path, turns, of_each), SmallSegments(tmp_path, most_blocks=most_blocks)
    shown = 0
    for _ in range(9):
        for _ in range(dice.randrange(3)):
            store.add()
        if len(store.held) > 4 and dice.random() < 0.4:
            store.merge(dice.sample(list(store.held), 3))
        asked = store.segments()
        if dice.random() < 0.2:  # a question about a run that not every segment holds
            asked = dice.sample(asked, len(asked) // 2)
        small.keep_only(set(store.held))
        if not asked:
            continue
        found = small.with_text(database, pair(database, small.rollup(database, asked), is_last=True))
        for key, cell in found.cells.items():
            if key.part == SLOWEST:
                assert msgspec.json.decode(cell.text or "", type=Turn) == by_span[key.labels[1] or ""]
                shown += 1
        meant = [turn for segment in asked for turn in store.held[segment.file]]
        whole = pair(database, partial(database, turns_table(meant)), is_last=True)
        assert plain(found) == plain(whole)
    assert shown > 5


@pytest.mark.slow
def test_segments_that_several_runs_ask_for_are_rolled_up_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled_up: list[int] = []

    def counted(database: Database, turns: ArrowTable) -> Rollup:
        rolled_up.append(turns.num_rows)
        return unpaired(database, turns)

    monkeypatch.setattr(small_segments, "unpaired", counted)
    store, small = Store(tmp_path, mixed_turns(3, 40), 2), SmallSegments(tmp_path)
    for _ in range(20):  # the run that is asked all the while
        store.add()
        small.rollup(database, store.segments()[-1:])
    assert rolled_up == [2] * 20
    whole = small.rollup(database, store.segments())
    assert rolled_up == [2] * 20
    meant = [turn for turns in store.held.values() for turn in turns]
    assert plain(pair(database, whole, is_last=True)) == plain(closed(database, meant))
    store.merge(list(store.held)[:4])
    small.keep_only(set(store.held))
    again = pair(database, small.rollup(database, store.segments()), is_last=True)
    assert plain(again) == plain(closed(database, meant))


@pytest.mark.parametrize("noise", [None, "clean"])
def test_a_stretch_of_time_is_not_rolled_up_again_where_all_of_the_run_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str | None
) -> None:
    rolled_up: list[int] = []

    def counted(database: Database, turns: ArrowTable) -> Rollup:
        rolled_up.append(turns.num_rows)
        return unpaired(database, turns)

    for module in (small_segments, windows):
        monkeypatch.setattr(module, "unpaired", counted)
    turns = answers_compared.mixed_turns(6, 60)
    with (
        StoreWriter(tmp_path) as writer,
        StoreReader(tmp_path, wall_clock_ns=lambda: answers_compared.NOW_NS) as exact,
        StoreReader(tmp_path, wall_clock_ns=lambda: answers_compared.NOW_NS, fewest_rolled_up=-1) as rolled,
    ):
        for begin in range(0, len(turns), 20):
            writer.append(Batch(turns[begin : begin + 20]))
        rolled.summary(Filter("run-1"))
        assert rolled_up == [len(turns)]
        f = Filter("run-1", since_unix_ns=min(turn.started_unix_ns for turn in turns), noise_profile=noise)
        answers_compared.compared(exact.summary(f), rolled.summary(f))
        assert (rolled_up == [len(turns)]) is (noise is None), "a value is counted by the turns that have it"


def closed(database: Database, turns: Sequence[Turn]) -> Rollup:
    return pair(database, partial(database, turns_table(list(turns))), is_last=True)


def test_a_longer_segment_is_rolled_up_once_whatever_becomes_of_others(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_segments, "ALONE_ROWS", 12)
    rolled_up: list[int] = []

    def counted(database: Database, turns: ArrowTable) -> Rollup:
        rolled_up.append(turns.num_rows)
        return unpaired(database, turns)

    monkeypatch.setattr(small_segments, "unpaired", counted)
    store, small = Store(tmp_path, mixed_turns(4, 40)[:32], 4), SmallSegments(tmp_path)
    for _ in range(8):
        store.add()
    store.merge(list(store.held)[:3])
    small.rollup(database, store.segments())
    assert rolled_up == [12, 20]
    store.merge([file for file, turns in store.held.items() if len(turns) == 4][:2])
    small.keep_only(set(store.held))
    found = pair(database, small.rollup(database, store.segments()), is_last=True)
    assert rolled_up == [12, 20, 20]  # of the shorter ones, two became one
    assert plain(found) == plain(closed(database, [turn for turns in store.held.values() for turn in turns]))


@pytest.mark.slow
def test_a_stretch_of_time_is_that_of_the_turns_whatever_came_and_was_merged(tmp_path: Path) -> None:
    turns = answers_compared.mixed_turns(5, 120)
    since_unix_ns = turns[len(turns) // 2].started_unix_ns
    asked = (
        Filter("run-1"),
        Filter("run-1", since_unix_ns=since_unix_ns),
        Filter("run-1", until_unix_ns=since_unix_ns),
    )

    def now() -> int:
        return answers_compared.NOW_NS

    with (
        StoreWriter(tmp_path) as writer,
        StoreReader(tmp_path, wall_clock_ns=now) as exact,
        StoreReader(tmp_path, wall_clock_ns=now, fewest_rolled_up=-1) as rolled,
    ):
        compactor = Compactor(writer, limits=answers_compared.LIMITS, grace_s=0.0)  # what it writes stays small, too
        for step in range(3):
            for begin in range(step * 80, min(len(turns), step * 80 + 80), 12):
                writer.append(Batch(turns[begin : begin + 12]))
            if step % 2:
                compactor.run_once()
            for f in asked:
                found = rolled.summary(f)
                answers_compared.compared(exact.summary(f), found)
                assert found.metrics["voice_to_voice"].approximate  # of roll-ups
                assert rolled.slowest(f, limit=7) == exact.slowest(f, limit=7)
