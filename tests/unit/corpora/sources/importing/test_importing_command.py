"""Tests of the command `voiceprobe corpus import`: its prompts, its output, and its exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.manifest.library import open_corpus
from tests.unit.corpora.conftest import Ran
from tests.unit.corpora.sources.importing.sources import put, speech

RIGHTS = ("--license", "CC-BY-4.0", "--consent", "signed forms")
Import = Callable[..., Ran]


@pytest.fixture
def source(source: Path) -> Path:
    put(source / "yes.wav", speech(0), 44_100, text="yes")
    put(source / "no.wav", speech(1))
    return source


@pytest.fixture
def imported(command: Callable[..., Ran]) -> Import:
    """Run the command and its decoding in this process."""
    return lambda *arguments: command("import", *arguments, "--jobs", "1")


def test_the_result_is_printed_and_written_as_json(imported: Import, source: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    ran = imported(source, "--into", tmp_path / "out", *RIGHTS, "--rate", "16000", "--json", file)
    assert ran.code == 0
    assert "out: 2 utterances imported (folder)" in ran.out
    assert "1 resampled from 44100 Hz to 16000 Hz." in ran.out
    assert "1 have no text, so their word error rate cannot be measured: no\n" in ran.out
    record = json.loads(file.read_text())
    assert (record["imported"], record["without_text"], record["faults"]) == (2, ["no"], [])
    assert (record["license"], record["consent"]) == ("CC-BY-4.0", "signed forms")
    corpus = open_corpus(tmp_path / "out")
    assert {(utterance.license, utterance.consent) for utterance in corpus.utterances} == {
        ("CC-BY-4.0", "signed forms")
    }


def test_license_and_consent_are_required(imported: Import, source: Path, tmp_path: Path) -> None:
    for given, missing in (((), "add --license and --consent"), (("--license", "MIT"), "add --consent (")):
        ran = imported(source, "--into", tmp_path / "out", *given)
        assert ran.code == 2
        assert missing in ran.err
    assert not (tmp_path / "out").exists()


def test_on_a_terminal_the_user_is_prompted_for_them(
    imported: Import, monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    answers = {"License (SPDX name or text)": "MIT", "How did the speakers consent to this use?": "by e-mail"}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda question, default, err: answers[question])
    assert imported(source, "--into", tmp_path / "out").code == 0
    (first, *_) = open_corpus(tmp_path / "out").utterances
    assert (first.license, first.consent) == ("MIT", "by e-mail")


def test_the_known_license_of_a_publisher_is_used_and_printed(imported: Import, tmp_path: Path) -> None:
    put(tmp_path / "libri" / "1" / "2" / "1-2-0.flac", speech())
    (tmp_path / "libri" / "1" / "2" / "1-2.trans.txt").write_text("1-2-0 SO IT IS\n")
    ran = imported(tmp_path / "libri", "--into", tmp_path / "out")
    assert ran.code == 0
    assert "License of librispeech: CC-BY-4.0" in ran.err
    (utterance,) = open_corpus(tmp_path / "out").utterances
    assert utterance.license == "CC-BY-4.0"
    assert "LibriVox" in (utterance.consent or "")


def test_all_wrong_flags_are_reported_at_once(imported: Import, source: Path, tmp_path: Path) -> None:
    wrong = {
        "--format": "mp4",
        "--loudness": "loud",
        "--rate": "96000",
        "--channel": "middle",
        "--raw-format": "pcm",
        "--caller-channel": "mix",
        "--edges": "sharp",
        "--level": "3",
        "--pause": "0",
        "--max-seconds": "nan",
        "--license": " ",
    }
    ran = imported(source, "--into", tmp_path / "out", *(word for pair in wrong.items() for word in pair))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == len(wrong)
    for flag in wrong:
        assert ("format 'mp4' is unknown" if flag == "--format" else flag) in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "expected"), [("gone", "cannot be read"), ("empty", "has no recognized layout")])
def test_an_unusable_source_is_an_error(imported: Import, tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "empty").mkdir()
    ran = imported(tmp_path / name, "--into", tmp_path / "out", *RIGHTS)
    assert ran.code == 2
    assert expected in ran.err
    assert "Traceback" not in ran.err


def test_faults_exit_with_two_and_are_all_listed(imported: Import, source: Path, tmp_path: Path) -> None:
    for number in range(3):
        (source / f"bad{number}.wav").write_text("no audio")
    arguments = (source, "--into", tmp_path / "out", *RIGHTS, "--json", tmp_path / "out.json")
    ran = imported(*arguments)
    assert ran.code == 2
    assert "in: 3 faults; nothing was written." in ran.err
    assert all(f"bad{number}.wav: is not audio" in ran.err for number in range(3))
    assert len(json.loads((tmp_path / "out.json").read_text())["faults"]) == 3
    ran = imported(*arguments, "--skip-bad")
    assert ran.code == 0
    assert "3 left out:" in ran.err


def test_the_edges_of_a_new_corpus_are_exact_or_as_requested(imported: Import, source: Path, tmp_path: Path) -> None:
    for name, flags, edges in (("plain", (), "exact"), ("asked", ("--edges", "recorded"), "recorded")):
        ran = imported(source, "--into", tmp_path / name, *RIGHTS, *flags, "--json", tmp_path / "out.json")
        assert f"into {tmp_path / name}, {edges} edges\n" in ran.out
        assert json.loads((tmp_path / "out.json").read_text())["edges"] == edges
        assert open_corpus(tmp_path / name).edges == edges


def test_appending_keeps_the_edges_of_a_corpus(imported: Import, source: Path, tmp_path: Path) -> None:
    into = tmp_path / "out"
    assert imported(source, "--into", into, *RIGHTS, "--edges", "recorded", "--append").code == 0
    put(source / "later.wav", speech(3), text="later")
    assert imported(source, "--into", into, *RIGHTS, "--append").code == 0
    assert open_corpus(into).edges == "recorded"
    before = (into / "manifest.jsonl").read_bytes()
    ran = imported(source, "--into", into, *RIGHTS, "--append", "--edges", "exact")
    assert ran.code == 2
    assert "is a corpus with recorded edges; omit --edges to keep them" in ran.err
    assert (into / "manifest.jsonl").read_bytes() == before
