"""`voiceprobe store`: what it prints, writes and ends with."""

import json
from pathlib import Path

import pytest

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from telemetry.store.retention import Keep, Retention
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


def test_a_sound_store_has_no_faults(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = _ended(capfd, "check", store, "--json", tmp_path / "check.json")
    assert (code, text) == (0, f"{store}: 6 turns, 0 spans, 0 points no faults")
    assert json.loads((tmp_path / "check.json").read_text())["rows"] == {"turns": 6, "spans": 0, "points": 0}


def test_turns_that_are_counted_twice_are_a_fault(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with StoreWriter(store) as writer, writer.change() as cursor:
        cursor.execute("INSERT INTO turns SELECT * FROM turns LIMIT 2")
    code, text = _ended(capfd, "check", store)
    assert code == 7
    assert "fault: " in text
    assert "2 turns are in the store more than once" in text


def test_an_export_is_imported_once(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _ended(capfd, "export", store, "--to", tmp_path / "out", "--spans", "store")[0] == 0
    code, text = _ended(capfd, "import", tmp_path / "out", tmp_path / "new")
    assert (code, text) == (0, f"{tmp_path / 'new'}: 6 turns, 0 spans and 0 metric points stored")
    code, text = _ended(capfd, "import", tmp_path / "out", tmp_path / "new")
    assert text.endswith("0 turns, 0 spans and 0 metric points stored; 6 rows were there already")


def test_turns_and_spans_are_exported(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = _ended(capfd, "export", store, "--to", tmp_path / "out", "--turns", "csv")
    assert (code, text) == (0, f"{tmp_path / 'out'}: 6 turns, 0 spans and 0 metric points in 3 files")
    assert len((tmp_path / "out" / "turns.csv").read_text().splitlines()) == 7
    code, text = _ended(capfd, "export", store, "--to", tmp_path / "out")
    assert code == 2
    assert "is there already; name a folder that is new or empty" in text


def test_folder_without_store_is_usage_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = _ended(capfd, "check", tmp_path / "nowhere")
    assert code == 2
    assert f"{tmp_path / 'nowhere'}: there is no store here" in text
    assert not (tmp_path / "nowhere").exists()


def test_a_store_that_is_written_is_left_alone(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["check", store], ["export", store, "--to", tmp_path / "out"], ["import", tmp_path / "out", store]):
        with StoreWriter(store):
            code, text = _ended(capfd, *command)
        assert code == 2
        assert "this process writes to the store already" in text or "is not a folder" in text


def test_turns_removed_for_their_age_are_stated(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with StoreWriter(store) as writer:
        Retention(writer, Keep(age_ns=0), portion_rows=5).remove_some()
    code, text = _ended(capfd, "check", store)
    assert code == 0
    assert "removed because they were old: 5 turns, of until 2026-09-21 14:13:24 UTC" in text
    assert "runs that lack some of their turns: run-1" in text
