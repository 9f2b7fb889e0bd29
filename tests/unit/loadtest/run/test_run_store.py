"""`voiceprobe store`: what it prints, writes and ends with, and the file of transcripts that it writes."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols.stages.settings import read_recording
from loadtest.run.store import write_partials
from telemetry.model.turns import Turn
from telemetry.store.retention import Keep, Retention
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of six turns, the last of which came alone."""
    folder = tmp_path / "store"
    with StoreWriter(folder) as writer:
        writer.append(Batch([client_turn(index) for index in range(5)]))
        writer.append(Batch([client_turn(5)]))
    return folder


def _ended(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code and everything that the command printed, in one line."""
    code = guarded(lambda: app(["store", *map(str, arguments)]))
    printed = capfd.readouterr()
    return code, " ".join((printed.out + printed.err).split())


def test_a_sound_store_is_checked_exported_and_imported(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = _ended(capfd, "check", store, "--json", tmp_path / "check.json")
    assert (code, text) == (0, f"{store}: 6 turns, 0 spans, 0 points no faults")
    assert json.loads((tmp_path / "check.json").read_text())["rows"] == {"turns": 6, "spans": 0, "points": 0}
    code, text = _ended(capfd, "export", store, "--to", tmp_path / "csv", "--turns", "csv")
    assert (code, text) == (0, f"{tmp_path / 'csv'}: 6 turns, 0 spans and 0 metric points in 3 files")
    assert len((tmp_path / "csv" / "turns.csv").read_text().splitlines()) == 7
    code, text = _ended(capfd, "export", store, "--to", tmp_path / "csv")
    assert code == 2
    assert "is there already; name a folder that is new or empty" in text
    assert _ended(capfd, "export", store, "--to", tmp_path / "out", "--spans", "store")[0] == 0
    code, text = _ended(capfd, "import", tmp_path / "out", tmp_path / "new")
    assert (code, text) == (0, f"{tmp_path / 'new'}: 6 turns, 0 spans and 0 metric points stored")
    code, text = _ended(capfd, "import", tmp_path / "out", tmp_path / "new")
    assert text.endswith("0 turns, 0 spans and 0 metric points stored; 6 rows were there already")


def test_turns_that_are_counted_twice_are_a_fault(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with StoreWriter(store) as writer, writer.change() as cursor:
        cursor.execute("INSERT INTO turns SELECT * FROM turns LIMIT 2")
    code, text = _ended(capfd, "check", store)
    assert code == 7
    assert "fault: " in text
    assert "2 turns are in the store more than once" in text


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


MS = 1_000_000


def store_of(folder: Path, *turns: Turn) -> str:
    with StoreWriter(folder / "store", keep_text=True) as writer:
        writer.append(Batch(turns=turns))
    return str(folder / "store")


def heard(index: int, utterance: str, transcript: str | None, *partials: tuple[int, str]) -> Turn:
    turn = client_turn(index)
    start = turn.speech_start_perf_ns
    assert start is not None
    return client_turn(
        index,
        utterance_id=utterance,
        transcript_pii=transcript,
        asr_final_perf_ns=start + 900 * MS,
        asr_partials_pii=tuple(text for _, text in partials),
        asr_partials_after_ns=tuple(at_ms * MS for at_ms, _ in partials),
    )


def test_first_transcribed_turn_of_each_utterance_is_written(tmp_path: Path) -> None:
    turns = (
        heard(0, "u1", None, (100, "x")),
        heard(1, "u1", "turn it on", (180, "turn"), (420, "turn it")),
        heard(2, "u1", "later"),
        heard(3, "u2", "good night"),
    )
    out, shown = tmp_path / "partials.jsonl", io.StringIO()
    assert write_partials(store_of(tmp_path, *turns), out, Console(file=shown, soft_wrap=True)) is ExitCode.OK
    recording = read_recording(str(out))
    assert set(recording) == {"u1", "u2"}
    assert recording["u1"].partials == ((180.0, "turn"), (420.0, "turn it"))
    assert recording["u1"].final == (900.0, "turn it on")
    assert recording["u2"].partials == ()
    assert "2 utterances of run" in shown.getvalue()
    assert "2 partial transcripts" in shown.getvalue()


def test_a_run_without_transcripts_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no transcripts: run it with --keep-transcripts"):
        write_partials(
            store_of(tmp_path, heard(0, "u1", None)), tmp_path / "partials.jsonl", Console(file=io.StringIO())
        )
    assert not (tmp_path / "partials.jsonl").exists()
