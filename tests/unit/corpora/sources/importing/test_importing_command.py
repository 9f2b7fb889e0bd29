"""`corpus import` as people and scripts meet it: what it asks for, what it says, and how it ends."""

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


def call(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """The command in this process, decoding in this process."""
    monkeypatch.setattr(sys, "argv", ["corpora", "import", *map(str, words), "--jobs", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_what_was_done_is_said_and_written_for_machines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    words = (source, "--into", tmp_path / "out", *RIGHTS, "--rate", "16000", "--json", tmp_path / "out.json")
    assert call(monkeypatch, *words) == 0
    said = capsys.readouterr().out
    assert "out: 2 utterances imported (folder)" in said
    assert "1 resampled from 44100 Hz to 16000 Hz." in said
    assert "1 have no text, so their word errors will not be measured: no\n" in said
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["imported"], record["without_text"], record["faults"]) == (2, ["no"], [])
    assert (record["license"], record["consent"]) == ("CC-BY-4.0", "signed forms")
    corpus = open_corpus(tmp_path / "out")
    assert {(each.license, each.consent) for each in corpus.utterances} == {("CC-BY-4.0", "signed forms")}


def test_license_and_consent_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    assert call(monkeypatch, source, "--into", tmp_path / "out") == 2
    assert "add --license and --consent" in capsys.readouterr().err
    assert call(monkeypatch, source, "--into", tmp_path / "out", "--license", "MIT") == 2
    assert "add --consent (" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_on_a_terminal_they_are_asked_in_person(monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path) -> None:
    answers = {"License (SPDX name or text)": "MIT", "How did the speakers agree to this use?": "by e-mail"}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda question, default, err: answers[question])
    assert call(monkeypatch, source, "--into", tmp_path / "out") == 0
    (first, *_) = open_corpus(tmp_path / "out").utterances
    assert (first.license, first.consent) == ("MIT", "by e-mail")


def test_what_a_publisher_is_known_to_have_chosen_is_taken_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put(tmp_path / "in" / "1" / "2" / "1-2-0.flac", speech())
    (tmp_path / "in" / "1" / "2" / "1-2.trans.txt").write_text("1-2-0 SO IT IS\n")
    assert call(monkeypatch, tmp_path / "in", "--into", tmp_path / "out") == 0
    assert "License as known of librispeech: CC-BY-4.0" in capsys.readouterr().err
    (utterance,) = open_corpus(tmp_path / "out").utterances
    assert utterance.license == "CC-BY-4.0"
    assert "LibriVox" in (utterance.consent or "")


def test_every_wrong_flag_is_named_at_once(
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
    said = capsys.readouterr().err
    assert len(said.splitlines()) == len(wrong)
    for flag in wrong:
        assert ("format 'mp4' is unknown" if flag == "--format" else flag) in said


@pytest.mark.parametrize(("name", "says"), [("gone", "cannot be read"), ("empty", "nothing that can be recognized")])
def test_a_source_that_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert call(monkeypatch, tmp_path / name, "--into", tmp_path / "out", *RIGHTS) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


def test_faults_end_with_two_and_are_all_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    for number in range(3):
        (source / f"bad{number}.wav").write_text("no audio")
    words = (source, "--into", tmp_path / "out", *RIGHTS, "--json", tmp_path / "out.json")
    assert call(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert "in: 3 faults; nothing was written." in said
    assert all(f"bad{number}.wav: is not audio" in said for number in range(3))
    assert len(json.loads((tmp_path / "out.json").read_text())["faults"]) == 3
    assert call(monkeypatch, *words, "--skip-bad") == 0
    assert "3 left out:" in capsys.readouterr().err
