"""The transcripts of a run as a file that the caller of a language model reads."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols.stages.settings import read_recording
from loadtest.run.store import write_partials
from telemetry.model.turns import Turn
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn

MS = 1_000_000


def store(folder: Path, *turns: Turn) -> str:
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
    assert write_partials(store(tmp_path, *turns), out, Console(file=shown, soft_wrap=True)) is ExitCode.OK
    recording = read_recording(str(out))
    assert set(recording) == {"u1", "u2"}
    assert recording["u1"].partials == ((180.0, "turn"), (420.0, "turn it"))
    assert recording["u1"].final == (900.0, "turn it on")
    assert recording["u2"].partials == ()
    assert "2 utterances of run" in shown.getvalue()
    assert "2 partial transcripts" in shown.getvalue()


def test_a_run_without_transcripts_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no transcripts: run it with --keep-transcripts"):
        write_partials(store(tmp_path, heard(0, "u1", None)), tmp_path / "partials.jsonl", Console(file=io.StringIO()))
    assert not (tmp_path / "partials.jsonl").exists()
