"""Tests of the command `voiceprobe corpus import`: its prompts, its output, and its exit codes."""

import json
import sys
from pathlib import Path

import pytest

from corpora.cli import main
from corpora.manifest.library import open_corpus
from tests.unit.corpora.sources.importing.sources import put, speech

RIGHTS = ("--license", "CC-BY-4.0", "--consent", "signed forms")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    put(tmp_path / "in" / "yes.wav", speech(0), 44_100, text="yes")
    put(tmp_path / "in" / "no.wav", speech(1))
    return tmp_path / "in"


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Run the command and its decoding in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["corpora", "import", *map(str, arguments), "--jobs", "1"])
    with pytest.raises(SystemExit) as exit_info:
        main()
    return int(exit_info.value.code or 0)


def test_the_result_is_printed_and_written_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    arguments = (source, "--into", tmp_path / "out", *RIGHTS, "--rate", "16000", "--json", tmp_path / "out.json")
    assert call(monkeypatch, *arguments) == 0
    stdout = capsys.readouterr().out
    assert "out: 2 utterances imported (folder)" in stdout
    assert "1 resampled from 44100 Hz to 16000 Hz." in stdout
    assert "1 have no text, so their word error rate cannot be measured: no\n" in stdout
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["imported"], record["without_text"], record["faults"]) == (2, ["no"], [])
    assert (record["license"], record["consent"]) == ("CC-BY-4.0", "signed forms")
    corpus = open_corpus(tmp_path / "out")
    assert {(each.license, each.consent) for each in corpus.utterances} == {("CC-BY-4.0", "signed forms")}


def test_license_and_consent_are_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    assert call(monkeypatch, source, "--into", tmp_path / "out") == 2
    assert "add --license and --consent" in capsys.readouterr().err
    assert call(monkeypatch, source, "--into", tmp_path / "out", "--license", "MIT") == 2
    assert "add --consent (" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_on_a_terminal_the_user_is_prompted_for_them(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    answers = {"License (SPDX name or text)": "MIT", "How did the speakers consent to this use?": "by e-mail"}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda question, default, err: answers[question])
    assert call(monkeypatch, source, "--into", tmp_path / "out") == 0
    (first, *_) = open_corpus(tmp_path / "out").utterances
    assert (first.license, first.consent) == ("MIT", "by e-mail")


def test_the_known_license_of_a_publisher_is_used_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put(tmp_path / "in" / "1" / "2" / "1-2-0.flac", speech())
    (tmp_path / "in" / "1" / "2" / "1-2.trans.txt").write_text("1-2-0 SO IT IS\n")
    assert call(monkeypatch, tmp_path / "in", "--into", tmp_path / "out") == 0
    assert "License of librispeech: CC-BY-4.0" in capsys.readouterr().err
    (utterance,) = open_corpus(tmp_path / "out").utterances
    assert utterance.license == "CC-BY-4.0"
    assert "LibriVox" in (utterance.consent or "")


def test_all_wrong_flags_are_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    wrong = {
        "--format": "mp4",
        "--loudness": "loud",
        "--rate": "96000",
        "--channel": "middle",
        "--raw-format": "pcm",
        "--caller-channel": "mix",
        "--pause": "0",
        "--max-seconds": "nan",
        "--license": " ",
    }
    flags = [word for pair in wrong.items() for word in pair]
    assert call(monkeypatch, source, "--into", tmp_path / "out", *flags) == 2
    stderr = capsys.readouterr().err
    assert len(stderr.splitlines()) == len(wrong)
    for flag in wrong:
        assert ("format 'mp4' is unknown" if flag == "--format" else flag) in stderr


@pytest.mark.parametrize(("name", "expected"), [("gone", "cannot be read"), ("empty", "has no recognized layout")])
def test_an_unusable_source_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, expected: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert call(monkeypatch, tmp_path / name, "--into", tmp_path / "out", *RIGHTS) == 2
    stderr = capsys.readouterr().err
    assert expected in stderr
    assert "Traceback" not in stderr


def test_faults_exit_with_two_and_are_all_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    for number in range(3):
        (source / f"bad{number}.wav").write_text("no audio")
    arguments = (source, "--into", tmp_path / "out", *RIGHTS, "--json", tmp_path / "out.json")
    assert call(monkeypatch, *arguments) == 2
    stderr = capsys.readouterr().err
    assert "in: 3 faults; nothing was written." in stderr
    assert all(f"bad{number}.wav: is not audio" in stderr for number in range(3))
    assert len(json.loads((tmp_path / "out.json").read_text())["faults"]) == 3
    assert call(monkeypatch, *arguments, "--skip-bad") == 0
    assert "3 left out:" in capsys.readouterr().err


def test_the_edges_of_a_new_corpus_are_exact_or_as_requested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    for name, flags, edges in (("plain", (), "exact"), ("asked", ("--edges", "recorded"), "recorded")):
        arguments = (source, "--into", tmp_path / name, *RIGHTS, *flags, "--json", tmp_path / "out.json")
        assert call(monkeypatch, *arguments) == 0
        assert f"into {tmp_path / name}, {edges} edges\n" in capsys.readouterr().out
        assert json.loads((tmp_path / "out.json").read_text())["edges"] == edges
        assert open_corpus(tmp_path / name).edges == edges
    assert call(monkeypatch, source, "--into", tmp_path / "new", *RIGHTS, "--edges", "sharp", "--rate", "1") == 2
    error = capsys.readouterr().err
    assert "--edges 'sharp' is unknown; use exact or recorded." in error
    assert "--rate is 1" in error, "all faults at once"
    assert not (tmp_path / "new").exists()


def test_appending_keeps_the_edges_of_a_corpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    into = tmp_path / "out"
    assert call(monkeypatch, source, "--into", into, *RIGHTS, "--edges", "recorded", "--append") == 0
    put(source / "later.wav", speech(3), text="later")
    assert call(monkeypatch, source, "--into", into, *RIGHTS, "--append") == 0
    assert open_corpus(into).edges == "recorded"
    capsys.readouterr()
    before = (into / "manifest.jsonl").read_bytes()
    assert call(monkeypatch, source, "--into", into, *RIGHTS, "--append", "--edges", "exact") == 2
    assert "is a corpus with recorded edges; omit --edges to keep them" in capsys.readouterr().err
    assert (into / "manifest.jsonl").read_bytes() == before
