"""The runs of a store are known from its roll-ups as they are from its segments, which then are not read."""

from pathlib import Path

import msgspec
import pytest

from telemetry.model import semconv
from telemetry.store import manifest as manifests
from telemetry.store.answers import Filter, RunRecord, TelemetryLoss
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import SEGMENTS_FOLDER
from telemetry.store.reader import StoreReader
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, generator_points, run_span, synthetic_run

RUNS = ("run-1", "run-2", "run-3")


def build(folder: Path, *, roll_up: bool) -> Path:
    """Three runs in merged segments. The first target of run 1 is named late, a turn of each run is missing, one has
    no run, and run 3 has not ended."""
    with StoreWriter(folder) as writer:
        for place, run_id in enumerate(RUNS):
            by_ns = place * 900 * SECOND
            turns = [
                msgspec.structs.replace(
                    turn,
                    started_unix_ns=turn.started_unix_ns + by_ns + number // 2 * 30 * SECOND,
                    process_id="assistant" if turn.source == "service" else f"{run_id}-worker-{number % 2}",
                    sequence=(20 * place if turn.source == "service" else 0) + number // 2,
                    target=None if number < 9 else f"ws://{run_id}/{number}",
                )
                for number, turn in enumerate(synthetic_run(run_id, turns=20, seed=place).turns)
                if number not in (11, 12)
            ]
            if place == 1:
                turns[3] = msgspec.structs.replace(turns[3], run_id="")
            declared = [run_span(run_id, START_UNIX_NS + by_ns, "start")]
            if place < 2:
                declared.append(run_span(run_id, START_UNIX_NS + by_ns + 60 * SECOND, "end"))
            for half in (turns[:17], turns[17:]):
                writer.append(Batch(half, declared, generator_points(run_id, 3)))
                declared = [span for span in synthetic_run(run_id, turns=3).spans if span.name != semconv.SPAN_RUN]
        maker = RollUpMaker(fewest_rows=2, most_of_segment=99.0)
        compactor = Compactor(
            writer, limits=MergeLimits(fan_in=2), roll_up=maker if roll_up else lambda _path, _segment: None
        )
        while compactor.run_once():
            pass
        compactor.stop()
        of_spans_and_turns = [each for each in writer.manifest.segments if each.table != "points"]
        assert [each.rollup is not None for each in of_spans_and_turns].count(True) >= 2 * roll_up
    return folder


def known(store: Path) -> tuple[list[RunRecord], list[TelemetryLoss]]:
    """What is asked of every segment of a store."""
    with StoreReader(store, wall_clock_ns=lambda: START_UNIX_NS + 9_999 * SECOND) as reader:
        return reader.runs(), [reader.summary(Filter(run_id=run_id)).loss for run_id in RUNS]


@pytest.mark.slow
def test_runs_from_roll_ups_are_those_of_the_turns(tmp_path: Path) -> None:
    runs, losses = known(build(tmp_path / "with", roll_up=True))
    assert (runs, losses) == known(build(tmp_path / "without", roll_up=False))
    assert [(run.run_id, run.ended) for run in runs] == [("run-3", False), ("run-2", True), ("run-1", True)]
    assert runs[2].target == "ws://run-1/10"  # the first of a client
    assert all(loss.missing for loss in losses)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "changed", "of-another"])
def test_what_a_damaged_roll_up_would_say_is_read_from_its_segment(tmp_path: Path, damage: str) -> None:
    store = build(tmp_path / "store", roll_up=True)
    before = known(store)
    files = sorted((store / SEGMENTS_FOLDER).glob("rollup-*"))
    contents = [path.read_bytes() for path in files]
    for place, path in enumerate(files):
        if damage == "missing":
            path.unlink()
        elif damage == "changed":
            path.write_bytes(contents[place][:60] + b"x" + contents[place][61:])
        else:
            path.write_bytes(contents[place - 1])
    assert known(store) == before


@pytest.mark.slow
def test_a_damaged_segment_is_named_although_it_has_a_roll_up(tmp_path: Path) -> None:
    store = build(tmp_path, roll_up=True)
    victims = [each for each in manifests.load(store).of("turns") if each.rollup is not None]
    for victim in victims:
        path = manifests.segment_path(store, victim)
        content = path.read_bytes()
        path.write_bytes(content[:40] + bytes([content[40] ^ 0xFF]) + content[41:])
    with StoreReader(store, fewest_rolled_up=0) as reader:
        # Values that cannot be are read from the turns themselves.
        reader.summary()
        assert reader.faults
        assert all(any(each.file in fault for each in victims) for fault in reader.faults)


@pytest.mark.slow
@pytest.mark.parametrize(("fewest", "is_rolled_up"), [(114, False), (113, True), (9, True)])
def test_how_many_turns_are_answered_from_roll_ups(tmp_path: Path, fewest: int, is_rolled_up: bool) -> None:
    assert is_estimated(build(tmp_path, roll_up=True), fewest) == is_rolled_up


@pytest.mark.parametrize(("fewest", "is_rolled_up"), [(113, False), (29, False), (28, True)])
def test_without_roll_ups_more_turns_are_read_one_by_one(tmp_path: Path, fewest: int, is_rolled_up: bool) -> None:
    assert is_estimated(build(tmp_path, roll_up=False), fewest) == is_rolled_up


def is_estimated(store: Path, fewest: int) -> bool:
    with StoreReader(store, fewest_rolled_up=fewest) as reader:
        found = reader.summary().metrics["voice_to_voice"]
    return found.approximate
