"""Tests of each layout: it is detected, read, and every wrong line is reported."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.errors import SourceError
from corpora.sources.importing.formats import layout_of
from corpora.sources.importing.tree import open_tree
from tests.unit.corpora.sources.importing.sources import RATE_HZ, import_source, opened, put, speech, texts


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def rows(file: Path, *objects: Any) -> None:
    content = "".join(json.dumps(each) + "\n" for each in objects).encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def detected_layout(source: Path) -> str:
    return layout_of(open_tree(source), None).name


def faults_of(source: Path, **changes: Any) -> tuple[str, ...]:
    with pytest.raises(SourceError) as caught:
        import_source(source, source.parent / "out", **changes)
    assert not (source.parent / "out").exists()
    return caught.value.faults


def test_a_folder_with_a_text_beside_each_file(source: Path) -> None:
    put(source / "a" / "yes.wav", speech(0), text="yes please")
    put(source / "b" / "yes.flac", speech(1), text="of course\nyes")
    put(source / "no.ogg", speech(2))
    (source / "readme.md").write_text("not audio")
    assert detected_layout(source) == "folder"
    outcome = import_source(source, source.parent / "out")
    assert texts(outcome) == {"no": None, "a-yes": "yes please", "b-yes": "of course yes"}


def test_librispeech(source: Path) -> None:
    put(source / "LibriSpeech" / "dev" / "84" / "121" / "84-121-0000.flac", speech(0))
    put(source / "LibriSpeech" / "dev" / "84" / "121" / "84-121-0001.flac", speech(1))
    listing = source / "LibriSpeech" / "dev" / "84" / "121" / "84-121.trans.txt"
    listing.write_text("84-121-0000 GO ON\n84-121-0001 STOP HERE\n")
    assert detected_layout(source) == "librispeech"
    outcome = import_source(source, source.parent / "out")
    assert texts(outcome) == {"84-121-0000": "GO ON", "84-121-0001": "STOP HERE"}
    assert {(each.speaker, each.language) for each in outcome.imported} == {("librispeech-84", "en")}


def test_common_voice(source: Path) -> None:
    put(source / "cv" / "clips" / "common_voice_de_1.mp3", speech(0))
    put(source / "cv" / "clips" / "common_voice_de_2.mp3", speech(1))
    header = "client_id\tpath\tsentence\tup_votes\tlocale\n"
    lines = 'abc\tcommon_voice_de_1.mp3\tEr sagte "ja\t2\tde\nxyz\tcommon_voice_de_2.mp3\tNein.\t2\tde\n'
    (source / "cv" / "validated.tsv").write_text(header + lines)
    assert detected_layout(source) == "common-voice"
    outcome = import_source(source, source.parent / "out")
    assert list(texts(outcome).values()) == ['Er sagte "ja', "Nein."]
    assert {each.language for each in outcome.imported} == {"de"}
    assert len({each.speaker for each in outcome.imported}) == 2
    assert "abc" not in {each.speaker for each in outcome.imported}


def test_nemo(source: Path) -> None:
    put(source / "wavs" / "a.wav", speech(0))
    row = {"audio_filepath": "wavs/a.wav", "text": "hello there", "duration": 1.0, "speaker": 7, "license": "MIT"}
    absolute = {"audio_filepath": str(source / "wavs" / "a.wav"), "text": "again", "offset": 0.0, "duration": 0.9}
    rows(source / "train.json", row, absolute)
    assert detected_layout(source) == "nemo"
    assert detected_layout(source / "train.json") == "nemo"
    outcome = import_source(source / "train.json", source.parent / "out")
    first, second = opened(outcome).utterances
    assert (first.text, first.speaker, first.license) == ("hello there", "7", "MIT")
    assert (second.text, second.samples, second.license) == ("again", round(0.9 * RATE_HZ), "CC0-1.0")


def test_kaldi_with_segments(source: Path) -> None:
    put(source / "wav" / "call.wav", speech(0))
    (source / "wav.scp").write_text("call wav/call.wav\n")
    (source / "segments").write_text("utt1 call 0.0 0.95\n")
    (source / "text").write_text("utt1 turn it off\n")
    (source / "utt2spk").write_text("utt1 anna\n")
    assert detected_layout(source) == "kaldi"
    (utterance,) = opened(import_source(source, source.parent / "out")).utterances
    assert (utterance.id, utterance.text, utterance.speaker) == ("utt1", "turn it off", "anna")
    assert utterance.samples == round(0.95 * RATE_HZ)


def test_kaldi_never_runs_a_command(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "wav.scp").write_text(f"a a.wav\nb touch {source}/proof |\nc a.ark:17\n")
    command, missing = faults_of(source)
    assert "wav.scp:2" in command
    assert "never run" in command
    assert missing.startswith("wav.scp:3: a.ark:17: is missing")
    assert not (source / "proof").exists()


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_lhotse_recordings_and_supervisions(source: Path, gz: str) -> None:
    put(source / "a.wav", speech(0))
    recording = {
        "id": "rec",
        "sources": [{"type": "file", "channels": [0], "source": "a.wav"}],
        "sampling_rate": RATE_HZ,
    }
    supervision = {"id": "sup-1", "recording_id": "rec", "start": 0.0, "duration": 0.9, "channel": 0}
    rows(source / f"recordings_dev.jsonl{gz}", recording)
    rows(
        source / f"supervisions_dev.jsonl{gz}",
        supervision | {"text": "good day", "speaker": "bo", "language": "English"},
    )
    assert detected_layout(source) == "lhotse"
    (utterance,) = opened(import_source(source, source.parent / "out")).utterances
    assert (utterance.id, utterance.text, utterance.speaker) == ("sup-1", "good day", "bo")


def test_lhotse_cuts(source: Path) -> None:
    put(source / "a.wav", speech(0))
    recording = {"id": "rec", "sources": [{"type": "file", "channels": [0], "source": "a.wav"}]}
    cut = {"id": "cut-1", "start": 0.0, "duration": 0.9, "channel": 0, "recording": recording}
    command = recording | {"sources": [{"type": "command", "channels": [0], "source": "cat a.wav"}]}
    rows(source / "cuts.jsonl", cut | {"supervisions": [{"text": "good"}, {"text": "day"}]})
    assert texts(import_source(source, source.parent / "out")) == {"cut-1": "good day"}
    (source.parent / "out").rename(source.parent / "before")
    rows(source / "cuts.jsonl", cut | {"recording": command}, {"id": "x"}, 5)
    assert [fault.split(" ", 1)[0] for fault in faults_of(source)] == [
        "cuts.jsonl:1:",
        "cuts.jsonl:2:",
        "cuts.jsonl:3:",
    ]


def test_a_table_with_its_own_licenses_and_conversations(source: Path) -> None:
    put(source / "a.wav", speech(0))
    put(source / "b.wav", speech(1))
    (source / "list.csv").write_text(
        "file;text;speaker;license;consent;conversation;think_s;intent\n"
        'a.wav;"one; two";eve;MIT;by contract;first;;greet\n'
        "b.wav;three;;;;first;0.8;\n"
    )
    assert detected_layout(source) == "csv"
    corpus = opened(import_source(source, source.parent / "out", speaker="somebody"))
    first, second = corpus.utterances
    assert (first.text, first.speaker, first.license, first.consent) == ("one; two", "eve", "MIT", "by contract")
    assert (second.text, second.speaker, second.license, second.consent) == (
        "three",
        "somebody",
        "CC0-1.0",
        "asked by a test",
    )
    (conversation,) = corpus.conversations
    assert [(turn.utterance, turn.think_s, turn.intent) for turn in conversation.turns] == [
        ("a", None, "greet"),
        ("b", 0.8, None),
    ]


def test_all_wrong_rows_are_reported_at_once_and_nothing_is_written(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "text.wav").write_text("this is not audio")
    (source / "list.csv").write_text(
        "file,text,start_s\na.wav,fine,\ngone.wav,x,\n../../x.wav,x,\na.wav,x,soon\ntext.wav,x,\n,x,\n"
    )
    faults = faults_of(source)
    assert [fault.split(": ", 1)[0] for fault in faults] == [
        "list.csv:3",
        "list.csv:4",
        "list.csv:5",
        "list.csv:7",
        "text.wav",
    ]
    assert "gone.wav: is missing" in faults[0]
    assert "leads out of" in faults[1]
    assert "start_s is 'soon'" in faults[2]
    assert "is not audio in a supported format" in faults[4]


def test_bad_recordings_can_be_skipped_and_are_reported(source: Path) -> None:
    put(source / "a.wav", speech(0), text="fine")
    (source / "broken.wav").write_bytes(b"RIFF\x00\x00")
    outcome = import_source(source, source.parent / "out", skip_bad=True)
    assert texts(outcome) == {"a": "fine"}
    (fault,) = outcome.faults
    assert fault.startswith("broken.wav: cannot be decoded")
