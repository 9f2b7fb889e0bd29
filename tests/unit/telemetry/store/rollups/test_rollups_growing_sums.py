"""Sums that grow with a store count at each moment as all of its turns do that are paired at once."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.compaction import Compactor
from telemetry.store.manifest import Segment
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import growing_sums, library
from telemetry.store.rollups.connected_turns import Links, connected_to
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.growing_sums import RECENT_ROWS, GrowingSums
from telemetry.store.rollups.pairs import pair
from telemetry.store.rollups.rollup import Key, Rollup, RollupCell, added
from telemetry.store.schema import ArrowTable, Batch
from telemetry.store.writer import StoreWriter
from tests.unit.telemetry.store.rollups import answers_compared
from tests.unit.telemetry.store.rollups.paired_turns import open_turns_of, reported_calls
from tests.unit.telemetry.store.rollups.test_rollups_partials import comparable

_LIKE = Segment(table="turns", file="", rows=0, size_bytes=1, crc32=1, raw_bytes=1, stored_unix_ns=0)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with open_database() as opened:
        yield opened


@dataclass
class Segments:
    """Segments with the roll-ups of their turns, as a store adds, merges and removes them."""

    database: Database
    turns: ArrowTable
    taken: int = 0
    number: Iterator[int] = field(default_factory=count)
    rollups: dict[Segment, Rollup] = field(default_factory=dict[Segment, Rollup])
    asked: int = 0

    def append(self, rows: int) -> None:
        open_turns = self.turns.slice(self.taken, rows)
        self.taken += rows
        runs = open_turns.column("run_id").to_pylist()
        cells = {Key("turns", run, *[None] * 5, labels=()): RollupCell(n=runs.count(run)) for run in set(runs)}
        self._add(Rollup(cells, {}, open_turns), 0)

    def merge(self, segments: Sequence[Segment], *, is_paired: bool) -> None:
        together = added([self.rollups.pop(segment) for segment in segments])
        # A large segment's roll-up is kept with the turns that are still open.
        merged = pair(self.database, together, is_last=False) if is_paired else together
        self._add(merged, 1 + max(segment.level for segment in segments))

    def _add(self, rollup: Rollup, level: int) -> None:
        number = next(self.number)
        rows = 0 if rollup.open_turns is None else rollup.open_turns.num_rows
        rows += growing_sums.SETTLED_ROWS if level > 1 else 0
        self.rollups[msgspec.structs.replace(_LIKE, file=f"turns-{number}", rows=rows, level=level)] = rollup

    def roll_up(self, segments: Sequence[Segment]) -> Rollup:
        self.asked += len(segments)
        return added([self.rollups[segment] for segment in segments])


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    latest_open=st.sampled_from((1, 8, 30)),
    recent_rows=st.sampled_from((0, 25, RECENT_ROWS)),
)
def test_the_sum_is_at_each_moment_that_of_all_turns_paired_at_once(
    database: Database, seed: int, latest_open: int, recent_rows: int
) -> None:
    dice = random.Random(seed)
    store = Segments(database, open_turns_of(database, reported_calls(seed % 50, 30)))
    sums = GrowingSums(latest_open, recent_rows)
    while store.taken < store.turns.num_rows:
        for _ in range(dice.randrange(1, 4)):
            store.append(dice.randrange(1, 12))
        held = list(store.rollups)
        for level in (0, 1):
            of_level = [segment for segment in held if segment.level == level]
            if len(of_level) > 3 and dice.random() < 0.6:
                store.merge(of_level[: dice.randrange(2, 5)], is_paired=dice.random() < 0.5)
        if dice.random() < 0.1:  # retention
            del store.rollups[next(iter(store.rollups))]
        asked = list(store.rollups)
        if dice.random() < 0.1:  # a segment that cannot be read for a moment
            asked.pop(dice.randrange(len(asked)))
        found = sums.of(database, asked, store.roll_up).total(database)
        whole = added([Rollup(), *(store.rollups[segment] for segment in asked)])
        assert comparable(found) == comparable(pair(database, whole, is_last=True))


def test_nothing_is_rolled_up_twice_but_what_was_merged(database: Database) -> None:
    store = Segments(database, open_turns_of(database, reported_calls(3, 30)))
    sums = GrowingSums(8)
    for _ in range(6):
        store.append(10)
        sums.of(database, list(store.rollups), store.roll_up)
    assert store.asked == 6
    store.merge(list(store.rollups)[:3], is_paired=False)
    sums.of(database, list(store.rollups), store.roll_up)
    assert store.asked == 10  # the merged one, and the three that remain of its level
    store.append(10)
    found = sums.of(database, list(store.rollups), store.roll_up)
    assert store.asked == 11
    assert sums.of(database, list(store.rollups), store.roll_up) is found
    assert store.asked == 11


@pytest.mark.parametrize(("recent_rows", "times"), [(RECENT_ROWS, 1), (70, 2), (0, 3)])
def test_few_turns_of_several_levels_are_rolled_up_at_once(database: Database, recent_rows: int, times: int) -> None:
    store = Segments(database, open_turns_of(database, reported_calls(3, 30)))
    for _ in range(16):
        store.append(5)
    for _ in range(3):
        store.merge([segment for segment in store.rollups if segment.level == 0][:4], is_paired=False)
    merged = [segment for segment in store.rollups if segment.level == 1]
    store.rollups[msgspec.structs.replace(merged[0], level=2)] = store.rollups.pop(merged[0])
    asked: list[list[int]] = []

    def roll_up(segments: Sequence[Segment]) -> Rollup:
        asked.append([segment.rows for segment in segments])
        return store.roll_up(segments)

    GrowingSums(8, recent_rows).of(database, list(store.rollups), roll_up)
    assert len(asked) == times
    assert sum(rows for of_tier in asked for rows in of_tier) == 80


def test_new_turns_are_paired_with_the_latest_and_not_with_all(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Segments(database, open_turns_of(database, reported_calls(5, 90, is_repeated=False)))
    sums = GrowingSums(20)
    store.append(store.turns.num_rows - 8)
    before = sums.of(database, list(store.rollups), store.roll_up)
    assert before.latest is not None
    paired: list[int] = []

    def counted(database: Database, rollup: Rollup, *, is_last: bool) -> Rollup:
        paired.append(0 if rollup.open_turns is None else rollup.open_turns.num_rows)
        return pair(database, rollup, is_last=is_last)

    monkeypatch.setattr(growing_sums, "pair", counted)
    before.total(database)
    assert paired == [before.latest.num_rows]
    assert before.latest.num_rows < 60 < store.turns.num_rows / 4


def turns_named(*named: tuple[str, str, str]) -> list[Turn]:
    return [
        Turn(
            run_id="a",
            call_id=call,
            turn_index=place,
            source="client" if source == "client" else "service",
            outcome="ok",
            trace_id=trace,
            span_id=f"{place:016x}",
            process_id="p",
            sequence=place,
            started_unix_ns=place,
            started_perf_ns=place,
        )
        for place, (source, trace, call) in enumerate(named)
    ]


A, B, C = "a" * 32, "b" * 32, "c" * 32


@pytest.mark.parametrize(
    ("one", "other", "are_connected"),
    [
        (("client", A, ""), ("client", A, ""), True),
        (("client", A, "x"), ("service", A, "y"), True),
        (("client", A, "x"), ("service", B, "x"), True),
        (("client", A, "x"), ("service", B, f"CA-{A.upper()}"), True),
        (("client", A, "x"), ("service", B, f"MZ{'a' * 8}-{'a' * 24}"), True),
        (("client", A, "x"), ("client", B, "x"), False),  # no service's turn is of either call
        (("service", A, "x"), ("service", B, "x"), False),
        (("client", A, ""), ("service", B, ""), False),
        (("client", "", "x"), ("client", "", "y"), False),
        (("service", "", "x"), ("service", "", "y"), True),
        (("client", "", "x"), ("service", "", "y"), False),
        (("client", A, "x"), ("service", B, "xa"), False),
    ],
)
def test_turns_are_connected_by_what_pairing_looks_at(
    database: Database, one: tuple[str, str, str], other: tuple[str, str, str], are_connected: bool
) -> None:
    turns = open_turns_of(database, turns_named(one, other))
    places = turns.column("started_unix_ns").to_numpy()
    assert connected_to(turns, places == 0).tolist() == [place == 0 or are_connected for place in places.tolist()]
    assert Links.of(turns.slice(0, 1)).meet(Links.of(turns.slice(1, 1))) == are_connected


def test_turns_are_connected_over_others(database: Database) -> None:
    named = [("client", A, "x"), ("service", B, "x"), ("client", C, "x"), ("service", C, "z"), ("client", "d" * 32, "")]
    turns = open_turns_of(database, turns_named(*named))
    places = turns.column("started_unix_ns").to_numpy()
    found = connected_to(turns, places == 0)
    assert sorted(places[found].tolist()) == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_store_that_grows_and_is_compacted_answers_as_its_turns_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "GrowingSums", lambda: GrowingSums(8))
    turns, f = reported_calls(7, 60, is_repeated=False), Filter(run_id="a")
    others = sorted({turn.run_id for turn in turns if turn.source == "client"} - {"a"})
    assert others

    def now() -> int:
        return answers_compared.NOW_NS

    with (
        StoreWriter(tmp_path) as writer,
        StoreReader(tmp_path, wall_clock_ns=now) as exact,
        StoreReader(tmp_path, wall_clock_ns=now, fewest_rolled_up=-1) as rolled,
    ):
        compactor = Compactor(writer, limits=answers_compared.LIMITS, roll_up=answers_compared.EVERY, grace_s=0.0)
        for step, begin in enumerate(range(0, len(turns), 40)):
            for first in range(begin, min(len(turns), begin + 40), 10):
                writer.append(Batch(turns[first : first + 10]))
            if step % 3 == 2:
                compactor.run_once()
            for asked in (f, Filter(run_id=others[step % len(others)]), f):
                answers_compared.compared(exact.summary(asked), rolled.summary(asked))
            assert rolled.slowest(f, limit=7) == exact.slowest(f, limit=7)
        assert rolled.summary(f).client_service_delta.joined > 30


def test_pairs_are_made_once_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = reported_calls(7, 30, is_repeated=False)
    with StoreWriter(tmp_path) as writer:
        for first in range(0, len(turns), 20):
            writer.append(Batch(turns[first : first + 20]))
        compactor = Compactor(writer, limits=answers_compared.LIMITS, roll_up=answers_compared.EVERY, grace_s=0.0)
        while compactor.run_once():
            pass
        compactor.stop()
        assert any(segment.rollup for segment in writer.manifest.segments)
    paired: list[int] = []

    def counted(database: Database, rollup: Rollup, *, is_last: bool) -> Rollup:
        if rollup.open_turns is not None:
            paired.append(rollup.open_turns.num_rows)
        return pair(database, rollup, is_last=is_last)

    monkeypatch.setattr(growing_sums, "pair", counted)
    runs = sorted({turn.run_id for turn in turns if turn.source == "client"})
    assert len(runs) > 1
    with StoreReader(tmp_path, fewest_rolled_up=-1) as rolled:
        rolled.summary(Filter(run_id=runs[0]))
        once = list(paired)
        assert once
        for run_id in (*runs[1:], None):
            assert rolled.summary(Filter(run_id=run_id)).turns.total
    assert paired == once
