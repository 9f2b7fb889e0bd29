"""Small segments, rolled up as they come and go, are the roll-up of all their turns at each moment."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from telemetry.model.turns import Turn
from telemetry.store.manifest import Segment
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.pairs import pair
from telemetry.store.rollups.partials import partial
from telemetry.store.rollups.rollup import SLOWEST, Rollup
from telemetry.store.rollups.small_segments import SmallSegments
from telemetry.store.schema import turns_table
from tests.unit.telemetry.store.rollups.test_rollups_partials import comparable, mixed_turns


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with open_database() as opened:
        yield opened


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
    """The content without the text of the slowest turns."""
    cells, sequences = comparable(rollup)
    return {key: cell[:-3] + cell[-2:] if key.part == SLOWEST else cell for key, cell in cells.items()}, sequences


@pytest.mark.parametrize(("most_at_once", "of_each"), [(0, 6), (24, 6), (10_000, 1)])
def test_the_roll_up_is_that_of_all_turns_whatever_came_and_was_merged(
    database: Database, tmp_path: Path, most_at_once: int, of_each: int
) -> None:
    dice = random.Random(of_each)
    turns = mixed_turns(of_each, 70)
    dice.shuffle(turns)
    by_span = {turn.span_id: turn for turn in turns if turn.source == "client"}
    store, small = Store(tmp_path, turns, of_each), SmallSegments(tmp_path, most_at_once=most_at_once)
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
        found = pair(database, small.rollup(database, asked), is_last=True)
        for key, cell in found.cells.items():
            if key.part == SLOWEST:
                assert msgspec.json.decode(cell.text or "", type=Turn) == by_span[key.labels[1] or ""]
                shown += 1
        meant = [turn for segment in asked for turn in store.held[segment.file]]
        whole = pair(database, partial(database, turns_table(meant)), is_last=True)
        assert plain(found) == plain(whole)
    assert shown > 5
