"""`voiceprobe store`: what it prints, writes and ends with."""

import json
from pathlib import Path

import pytest

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from telemetry.store.compaction import Compactor
from telemetry.store.manifest import MANIFEST_NAME, SEGMENTS_FOLDER, load
from telemetry.store.reader import StoreReader
from telemetry.store.retention import Keep
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of six turns in as many segments."""
    folder = tmp_path / "store"
    with StoreWriter(folder) as writer:
        for index in range(6):
            writer.append(Batch([client_turn(index)]))
    return folder


def _ended(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code and everything that the command printed, in one line."""
    code = guarded(lambda: app(["store", *map(str, arguments)]))
    printed = capfd.readouterr()
    return code, " ".join((printed.out + printed.err).split())


def test_a_sound_store_has_no_faults(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = _ended(capfd, "check", store)
    assert (code, text) == (0, f"{store}: 6 segments with 6 turns, 0 spans, 0 points no faults")
    assert _ended(capfd, "repair", store) == (0, "nothing to repair: the store holds 6 turns, 0 spans, 0 points")


def test_a_damaged_store_is_checked_and_repaired(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    victim = sorted((store / SEGMENTS_FOLDER).iterdir())[2]
    victim.write_bytes(b"PAR1")
    (store / MANIFEST_NAME).unlink()
    (store / SEGMENTS_FOLDER / "notes.txt").touch()
    code, text = _ended(capfd, "check", store, "--json", tmp_path / "check.json")
    assert code == 7
    assert f"fault: {victim} is damaged: its content is not what was written" in text
    assert "files among the segments that are not the store's: 1" in text
    assert f"to repair it: voiceprobe store repair {store}" in text
    written = json.loads((tmp_path / "check.json").read_text())
    assert (written["strangers"], written["segments"], written["is_in_use"]) == (1, 0, False)
    assert any("manifest.json: is missing" in fault for fault in written["faults"])
    code, text = _ended(capfd, "repair", store, "--dry-run")
    assert "nothing was changed; after a repair the store would hold 5 turns" in text
    assert not (store / MANIFEST_NAME).exists()
    code, text = _ended(capfd, "repair", store)
    assert "repaired: the store holds 5 turns, 0 spans, 0 points" in text
    assert code == 7, "one turn is lost"
    assert _ended(capfd, "check", store)[0] == 0
    with StoreReader(store) as reader:
        assert len(reader.turns()) == 5


def test_small_segments_are_merged(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with StoreWriter(store) as writer:
        for index in range(6, 33):
            writer.append(Batch([client_turn(index)]))
    assert _ended(capfd, "compact", store) == (0, f"{store}: 33 segments before, 3 after 2 merges")
    assert [segment.rows for segment in load(store).segments] == [16, 16, 1]
    assert _ended(capfd, "check", store)[0] == 0


def test_turns_and_spans_are_exported(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = _ended(capfd, "export", store, "--to", tmp_path / "out", "--turns", "csv")
    assert (code, text) == (0, f"{tmp_path / 'out'}: 6 turns, 0 spans and 0 metric points in 3 files")
    assert len((tmp_path / "out" / "turns.csv").read_text().splitlines()) == 7
    code, text = _ended(capfd, "export", store, "--to", tmp_path / "out")
    assert code == 2
    assert "is there already; name a folder that is new or empty" in text
    min((store / SEGMENTS_FOLDER).iterdir()).unlink()
    assert _ended(capfd, "export", store, "--to", tmp_path / "rest")[0] == 7


@pytest.mark.parametrize("command", ["check", "repair", "compact"])
def test_what_is_not_a_store_is_a_usage_error(tmp_path: Path, command: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = _ended(capfd, command, tmp_path / "nowhere")
    assert (code, text) == (2, f"voiceprobe: {tmp_path / 'nowhere'}: is not a folder; name the folder of a store")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", ["repair", "compact"])
def test_a_store_that_is_written_is_left_alone(store: Path, command: str, capfd: pytest.CaptureFixture[str]) -> None:
    with StoreWriter(store):
        code, text = _ended(capfd, command, store)
    assert code == 2
    assert "another sidecar is writing to this store" in text


def test_what_was_removed_for_its_age_is_stated(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with StoreWriter(store) as writer:
        Compactor(writer, keep=Keep(size_bytes=0)).remove_old()
    code, text = _ended(capfd, "check", store)
    assert code == 0
    assert "removed because they were old: 5 turns, of until 2026-09-21 14:13:24 UTC" in text
    assert "runs that lack some of their turns: run-1" in text
