"""A fault that passes hides nothing for longer than it lasts: the next question sees everything again."""

import contextlib
import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.manifest import MANIFEST_NAME, QUARANTINE_FOLDER, SEGMENTS_FOLDER
from telemetry.store.reader import StoreReader
from telemetry.store.repair import repair
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn

TURNS = 6


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a segment for each turn."""
    with StoreWriter(tmp_path) as writer:
        for index in range(TURNS):
            writer.append(Batch([client_turn(index)]))
    return tmp_path


def _fails_once_for(victim: Path, number: int, original: Callable[[Path], int]) -> Callable[[Path], int]:
    refused: list[Path] = []

    def crc32_of(path: Path) -> int:
        if path == victim and not refused:
            refused.append(path)
            raise OSError(number, os.strerror(number))
        return original(path)

    return crc32_of


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EINTR, errno.ESTALE, errno.EIO])
def test_one_failed_open_hides_a_segment_from_one_answer_only(
    store: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    victim = sorted((store / SEGMENTS_FOLDER).iterdir())[2]
    monkeypatch.setattr(manifests, "crc32_of", _fails_once_for(victim, number, manifests.crc32_of))
    with StoreReader(store) as reader:
        assert len(reader.turns()) == TURNS - 1
        assert reader.faults == (f"{victim}: 1 rows of turns left out, {os.strerror(number)}",)
        assert len(reader.turns()) == TURNS
        assert reader.faults == ()


def test_without_descriptors_a_question_fails_and_the_next_one_sees_everything(store: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with StoreReader(store) as known, StoreReader(store) as new:
        assert len(known.turns()) == TURNS
        with StoreWriter(store) as writer:
            writer.append(Batch([client_turn(TURNS)]))
        used = max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1
        try:
            for spare in range(3):
                resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
                for reader in (known, new):
                    with contextlib.suppress(StoreError):
                        assert len(reader.turns()) + len(reader.faults) == TURNS + 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for reader in (known, new):
            assert len(reader.turns()) == TURNS + 1
            assert reader.faults == ()


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_file_that_is_brought_back_is_read_again(store: Path, damage: str) -> None:
    victim = sorted((store / SEGMENTS_FOLDER).iterdir())[1]
    content = victim.read_bytes()
    with StoreReader(store) as reader:
        if damage == "missing":
            victim.unlink()
        else:
            victim.write_bytes(content[:-5])
        for _ in range(2):
            assert len(reader.turns()) == TURNS - 1
            assert len(reader.faults) == 1
        victim.write_bytes(content)
        assert len(reader.turns()) == TURNS
        assert reader.faults == ()


def test_a_repair_is_seen_by_a_reader_that_is_open(store: Path) -> None:
    victim = sorted((store / SEGMENTS_FOLDER).iterdir())[1]
    with StoreReader(store) as reader:
        assert len(reader.turns()) == TURNS
        (store / QUARANTINE_FOLDER).mkdir()
        victim.rename(store / QUARANTINE_FOLDER / victim.name)
        (store / MANIFEST_NAME).write_bytes(b"{")
        with pytest.raises(StoreError, match="voiceprobe store repair"):
            reader.turns()
        repair(store)
        assert len(reader.turns()) == TURNS
        assert reader.faults == ()


def test_a_manifest_that_is_replaced_while_it_is_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look at its stamp and at its content: the answer is of one of the two, and the next one is new."""
    load = manifests.load
    with StoreWriter(store) as writer, StoreReader(store) as reader:
        appended: list[int] = []

        def load_and_append(directory: Path) -> manifests.StoreManifest:
            found = load(directory)
            if not appended:
                appended.append(1)
                writer.append(Batch([client_turn(TURNS)]))
            return found

        monkeypatch.setattr(manifests, "load", load_and_append)
        assert len(reader.turns()) in (TURNS, TURNS + 1)
        assert len(reader.turns()) == TURNS + 1
