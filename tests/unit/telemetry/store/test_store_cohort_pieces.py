"""Cohorts that are read segment by segment: the same figures as of all turns at once, and no segment read twice."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.cohort_comparison import default_plan
from telemetry.rollout.cohort_turns import CALL, CohortTurns
from telemetry.rollout.plan import AssignmentUnit
from telemetry.store import cohort_pieces, manifest
from telemetry.store.cohort_reading import ReadCohorts, read_cohorts
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.connection import StoreConnection
from telemetry.store.rollout_turns import RolloutQuestion, question_of
from telemetry.store.schema import Batch
from telemetry.store.snapshot import Snapshots
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn

ASKED = question_of(default_plan("a", "b"), None)


def turns_of(numbers: range, noise: str = "clean") -> list[Turn]:
    """Calls of four turns: of each part of the store the last one goes on in the next. From the 300th on, one turn in
    five is slow, and one without a reply."""
    return [
        client_turn(
            index,
            call_id=f"call-{(index + 2) // 4}",
            cohort=("a", "b")[(index + 2) // 4 % 2],
            noise_profile=noise,
            voice_to_voice_ms=((500.0 + index % 7), 1_500.0, None)[index % 5 // 2 if index >= 300 else 0],
        )
        for index in numbers
    ]


def write(store: Path, turns: Sequence[Turn]) -> None:
    with StoreWriter(store) as writer:
        writer.append(Batch(list(turns), []))


def by_hand(store: Path) -> dict[str, tuple[int, int, int]]:
    """Turns, eligible ones and callers of each cohort, by a question of its own to the files."""
    found = duckdb.execute(f"""
        SELECT cohort, count(*), count(*) FILTER (outcome NOT IN ('invalid', 'cut')), count(DISTINCT call_id)
        FROM read_parquet('{store}/segments/turns-*.parquet', union_by_name = true)
        WHERE source = 'client' AND phase_kind IS DISTINCT FROM 'ramp' AND turn_kind IS DISTINCT FROM 'silence'
        GROUP BY cohort""").fetchall()  # noqa: S608 - a folder of the test's own
    return {cohort: tuple(rest) for cohort, *rest in found}


def segments_of(store: Path) -> set[Path]:
    return {manifest.segment_path(store, each) for each in manifest.load(store).of("turns")}


def check(found: ReadCohorts, store: Path) -> None:
    expected = by_hand(store)
    assert {each.cohort: (each.turns, each.eligible, each.callers) for each in found.sizes} == expected


def values_of(turns: CohortTurns, name: str) -> NDArray[np.float64]:
    values = turns.number(name)
    assert values is not None
    return np.sort(values)


@pytest.mark.parametrize(("most_kept", "fewest_rows"), [(0, 10_000), (1_000_000, 10_000), (1_000_000, 800)])
def test_pieces_come_to_what_all_turns_come_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_kept: int, fewest_rows: int
) -> None:
    monkeypatch.setattr(cohort_pieces, "FEWEST_ROWS", fewest_rows)
    store = tmp_path / "store"
    snapshots = Snapshots(store)
    for part, (first, last) in enumerate(((0, 1000), (1000, 1500), (1500, 2500), (2500, 4000))):
        write(store, turns_of(range(first, last), ("clean", "cafe")[part % 2]))
        kept = snapshots.ask(lambda c: read_cohorts(c, ASKED, 2000, most_kept))
        check(kept, store)
        fresh = Snapshots(store)
        anew = fresh.ask(lambda c: read_cohorts(c, ASKED, 2000, most_kept))
        fresh.close()
        assert kept.one_in == (1 if last <= 2000 else 2)
        alike(kept, anew)
    snapshots.close()


def alike(one: ReadCohorts, other: ReadCohorts) -> None:
    """The same figures of both cohorts, the turns in any order."""
    assert (one.one_in, one.sizes) == (other.one_in, other.sizes)
    for mine, theirs in ((one.candidate, other.candidate), (one.control, other.control)):
        assert mine.labels == theirs.labels
        assert sorted(mine.numbers) == sorted(theirs.numbers)
        for name in mine.numbers:
            np.testing.assert_array_equal(values_of(mine, name), values_of(theirs, name))
        for name in mine.labels:
            assert np.bincount(mine.code(name) + 1).tolist() == np.bincount(theirs.code(name) + 1).tolist()
        assert mine.calls == np.unique(mine.code(CALL)).size == theirs.calls


@pytest.mark.parametrize("unit", ["call", "user"])
def test_merged_and_damaged_segments_are_read_anew(tmp_path: Path, unit: AssignmentUnit) -> None:
    store = tmp_path / "store"
    objectives = tuple(default_objectives())
    asked = replace(ASKED, objectives=objectives, unit=unit, with_audio=True)
    snapshots = Snapshots(store)

    def ask(from_start: Snapshots | None = None) -> ReadCohorts:
        return (from_start or snapshots).ask(lambda c: read_cohorts(c, asked))

    def same_as_from_start() -> None:
        fresh = Snapshots(store)
        try:
            alike(ask(), ask(fresh))
        finally:
            fresh.close()

    with StoreWriter(store) as writer:
        for part in range(3):
            writer.append(Batch(turns_of(range(part * 200, part * 200 + 200), ("clean", "cafe")[part % 2]), []))
            ask()
        before, files = ask(), segments_of(store)
        compactor = Compactor(writer, limits=MergeLimits(fan_in=3), grace_s=0.0)
        while compactor.run_once():
            pass
        compactor.stop()
        assert not files & segments_of(store)
        alike(ask(), before)
        same_as_from_start()
        whole, files = ask(), segments_of(store)
        writer.append(Batch(turns_of(range(600, 800)), []))
    (damaged,) = segments_of(store) - files
    damaged.write_bytes(damaged.read_bytes()[:-100])
    alike(ask(), whole)
    assert len(snapshots.faults) == 1
    same_as_from_start()
    snapshots.close()


def test_a_segment_that_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    write(store, turns_of(range(1000)))
    seen: list[str] = []
    execute = StoreConnection.execute

    def watched(self: StoreConnection, statement: str, parameters: Sequence[object] | None = None) -> object:
        seen.append(statement)
        return execute(self, statement, parameters)

    monkeypatch.setattr(StoreConnection, "execute", watched)
    snapshots = Snapshots(store)

    def ask(asked: RolloutQuestion = ASKED) -> int:
        seen.clear()
        snapshots.ask(lambda c: read_cohorts(c, asked))
        return len(seen)

    first = ask()
    assert first > 0
    assert ask() == 0
    write(store, turns_of(range(1000, 1100)))
    assert ask() == first
    snapshots.close()
