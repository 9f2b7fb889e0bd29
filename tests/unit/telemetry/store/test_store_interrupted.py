"""What a killed writer left is deleted where every row of it is in the store; otherwise it is kept, and named."""

from pathlib import Path

import pytest

from telemetry.model.turns import Turn
from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment
from telemetry.store.merging import merged
from telemetry.store.reader import StoreReader
from telemetry.store.row_groups import row_groups
from telemetry.store.schema import Batch, points_table, spans_table, turns_table
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, exchange, generator_points, stage_spans

TURNS = [client_turn(index) for index in range(4)]


def interrupted_append(store: Path, turns: list[Turn]) -> Segment:
    """The file of a writer that was killed before it named it in the manifest."""
    with StoreWriter(store) as writer:
        return writer.write_segment("turns", row_groups(turns_table(turns)), level=0)


def interrupted_merge(store: Path) -> tuple[Segment, tuple[Segment, ...]]:
    """A merged file that no manifest names, and what it was made of."""
    with StoreWriter(store) as writer:
        for turn in TURNS:
            writer.append(Batch([turn]))
        sources = writer.manifest.of("turns")
        return writer.write_segment("turns", merged(store, sources), level=1, replaces=sources), sources


def left_after_start(store: Path, turns: list[Turn]) -> list[str]:
    """What is in quarantine after the next writer has committed these turns, which it also counts."""
    with StoreWriter(store) as writer:
        if turns:
            writer.append(Batch(turns))
        writer.remove_redundant()
        counted = writer.faults().quarantined
    folder = store / "quarantine"
    left = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    assert counted == len(left)
    return left


def stored(store: Path) -> list[int | None]:
    with StoreReader(store) as reader:
        return sorted((turn.sequence for turn in reader.turns()), key=str)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def test_an_append_that_was_committed_anew_leaves_nothing(tmp_path: Path) -> None:
    interrupted_append(tmp_path, TURNS[:2])
    assert left_after_start(tmp_path, TURNS[:3]) == []
    assert stored(tmp_path) == [0, 1, 2]


def test_every_table_of_an_append_is_looked_at(tmp_path: Path) -> None:
    turn, points = exchange(0)[0], generator_points("run", 1)
    spans = stage_spans(turn)
    with StoreWriter(tmp_path) as writer:
        writer.write_segment("turns", row_groups(turns_table([turn])), level=0)
        writer.write_segment("spans", row_groups(spans_table(spans)), level=0)
        writer.write_segment("points", row_groups(points_table(points)), level=0)
    with StoreWriter(tmp_path) as writer:
        assert writer.faults().quarantined == 3
        writer.append(Batch([turn], spans, points))
        writer.remove_redundant()
        assert writer.faults().quarantined == 0


def test_rows_that_are_committed_in_several_segments_are_all_found(tmp_path: Path) -> None:
    interrupted_append(tmp_path, TURNS)
    with StoreWriter(tmp_path) as writer:
        for turn in TURNS:
            writer.append(Batch([turn]))
    assert left_after_start(tmp_path, []) == []
    assert stored(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("committed", [0, 1])
def test_a_file_with_a_row_beside_the_store_is_kept(tmp_path: Path, committed: int) -> None:
    segment = interrupted_append(tmp_path, TURNS[:2])
    assert left_after_start(tmp_path, TURNS[:committed]) == [segment.file]


def test_a_file_whose_rows_are_in_a_damaged_segment_is_kept(tmp_path: Path) -> None:
    segment = interrupted_append(tmp_path, TURNS[:2])
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch(TURNS[:2]))
        (committed,) = writer.manifest.of("turns")
    damage(manifests.segment_path(tmp_path, committed))
    assert left_after_start(tmp_path, []) == [segment.file]


def test_a_damaged_file_is_kept(tmp_path: Path) -> None:
    segment = interrupted_append(tmp_path, TURNS[:2])
    damage(manifests.segment_path(tmp_path, segment))
    assert left_after_start(tmp_path, TURNS[:2]) == [segment.file]


def test_a_file_that_only_has_a_name_of_ours_is_kept(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch(TURNS))
    name = "turns-000000077-00000000.parquet"
    (tmp_path / "segments" / name).write_bytes(b"somebody's")
    assert left_after_start(tmp_path, TURNS) == [name]


def test_a_merge_whose_sources_are_in_the_store_leaves_nothing(tmp_path: Path) -> None:
    interrupted_merge(tmp_path)
    assert left_after_start(tmp_path, []) == []
    assert stored(tmp_path) == [0, 1, 2, 3]


def test_a_merged_file_is_kept_when_one_of_its_sources_is_damaged(tmp_path: Path) -> None:
    segment, sources = interrupted_merge(tmp_path)
    damage(manifests.segment_path(tmp_path, sources[2]))
    assert left_after_start(tmp_path, []) == [segment.file]


def test_a_merged_file_is_kept_when_one_of_its_sources_left_the_store(tmp_path: Path) -> None:
    segment, sources = interrupted_merge(tmp_path)
    with StoreWriter(tmp_path) as writer:
        writer.remove(sources[:1])
    assert left_after_start(tmp_path, []) == [segment.file]
