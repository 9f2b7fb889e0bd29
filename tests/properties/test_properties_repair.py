"""Whatever files of a store are lost, damaged or moved: a repair counts every row of an intact file exactly once."""

import io
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.store import manifest as manifests
from telemetry.store.check import check
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import MANIFEST_NAME, PREVIOUS_NAME, QUARANTINE_FOLDER, SEGMENTS_FOLDER
from telemetry.store.repair import repair
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, generator_points

TURNS = 11
IDENTITY = {"turns": ("trace_id", "span_id"), "points": ("name", "unix_ns", "attributes")}
Row = tuple[object, ...]


@dataclass(frozen=True)
class Life:
    """Every file that a store ever had, by name, and every manifest."""

    files: dict[str, bytes]
    manifests: list[bytes]


@cache
def _life() -> Life:
    files: dict[str, bytes] = {}
    known: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder, StoreWriter(Path(folder) / "store") as writer:
        store = writer.directory
        compactor = Compactor(writer, limits=MergeLimits(fan_in=2))
        for index in range(TURNS):
            writer.append(Batch([client_turn(index)], points=generator_points(f"run-{index}", 0)[:2]))
            if index % 3 == 2:
                compactor.run_once()
            files |= {path.name: path.read_bytes() for path in (store / SEGMENTS_FOLDER).iterdir()}
            known.append((store / MANIFEST_NAME).read_bytes())
    return Life(files, known)


def _rows(table: str, content: bytes) -> list[Row]:
    """The identities of the rows of a Parquet file."""
    rows = pq.read_table(io.BytesIO(content)).to_pylist()
    return [(table, *(row[name] for name in IDENTITY[table])) for row in rows]


FATES = st.sampled_from(["kept", "kept", "kept", "lost", "cut", "flipped", "quarantined", "both", "temporary"])


def _place(store: Path, name: str, content: bytes, fate: str) -> bool:
    """Put a file where its fate says; whether it is intact there."""
    segments, quarantine = store / SEGMENTS_FOLDER, store / QUARANTINE_FOLDER
    middle = len(content) // 2
    match fate:
        case "lost":
            return False
        case "cut":
            (segments / name).write_bytes(content[:middle])
            return False
        case "flipped":
            (segments / name).write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
            return False
        case "quarantined":
            (quarantine / f"{name}.3").write_bytes(content)
        case "both":
            (quarantine / name).write_bytes(content)
            (segments / name).write_bytes(content)
        case "temporary":
            (segments / f"{name}.tmp").write_bytes(content)
        case _:
            (segments / name).write_bytes(content)
    return True


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_repair_counts_every_row_of_an_intact_file_once(data: st.DataObject) -> None:
    life = _life()
    current, previous = (
        data.draw(st.one_of(st.sampled_from(life.manifests), st.sampled_from([None, b"", b'{"version": 4', b"[]"])))
        for _ in range(2)
    )
    fates = {name: data.draw(FATES, label=name) for name in sorted(life.files)}
    if data.draw(st.booleans(), label="nothing that the manifest names is there"):
        fates |= {name: "lost" for name in fates if current is not None and f'"{name}"'.encode() in current}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        for inner in (SEGMENTS_FOLDER, QUARANTINE_FOLDER):
            (store / inner).mkdir(parents=True)
        (store / SEGMENTS_FOLDER / "of-somebody-else.parquet").write_bytes(b"PAR1")
        for name, content in ((MANIFEST_NAME, current), (PREVIOUS_NAME, previous)):
            if content is not None:
                (store / name).write_bytes(content)
        intact = [name for name, fate in fates.items() if _place(store, name, life.files[name], fate)]
        if not intact and current is None and previous is None:
            return
        before = Counter(path.read_bytes() for path in store.rglob("*.parquet*") if path.is_file())
        repair(store)
        named = manifests.load(store).segments
        found = [row for each in named for row in _rows(each.table, manifests.segment_path(store, each).read_bytes())]
        expected = {row for name in intact for row in _rows(name.partition("-")[0], life.files[name])}
        assert Counter(found) == dict.fromkeys(expected, 1)
        assert [each.rows for each in named] == [
            pq.read_metadata(manifests.segment_path(store, each)).num_rows for each in named
        ]
        after = Counter(path.read_bytes() for path in store.rglob("*.parquet*") if path.is_file())
        assert before <= after, "a file was deleted"
        assert check(store).faults == ()
        StoreWriter(store).close()
        shutil.rmtree(store)
