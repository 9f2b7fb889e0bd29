"""Tests that no text is lost by tabs, encodings or quotation marks, and that unused files are reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.errors import CorpusError, SourceError
from corpora.sources.importing.formats import layout_of
from corpora.sources.importing.tree import open_tree
from tests.unit.corpora.sources.importing.sources import import_source, put, speech, texts

UMLAUT = "schöne Grüße, “ja”"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def detected_layout(source: Path) -> str:
    return layout_of(open_tree(source), None).name


def error_text(source: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        import_source(source, source.parent / "out")
    assert not (source.parent / "out").exists()
    return str(caught.value)


@pytest.mark.parametrize("gap", [" ", "\t", " \t ", "\u3000"])
def test_kaldi_separates_key_and_text_by_any_whitespace(source: Path, gap: str) -> None:
    put(source / "a.wav", speech(0))
    put(source / "b.wav", speech(1))
    (source / "wav.scp").write_text(f"u1{gap}a.wav\nu2{gap}b.wav\n")
    (source / "text").write_text(f"u1{gap}turn it off\nu2{gap}line\u2028separator and \x0b tab\r\n")
    (source / "utt2spk").write_text(f"u1{gap}anna\nu2{gap}bo\n")
    outcome = import_source(source, source.parent / "out")
    assert texts(outcome) == {"u1": "turn it off", "u2": "line separator and tab"}
    assert [each.speaker for each in outcome.imported] == ["anna", "bo"]
    assert outcome.skipped == ()


def test_a_kaldi_text_without_a_recording_is_reported(source: Path) -> None:
    put(source / "a.wav", speech(0))
    put(source / "more.wav", speech(1))
    (source / "wav.scp").write_text("u1 a.wav\n")
    (source / "text").write_text("u1 yes\nu7 lost words\n")
    assert import_source(source, source.parent / "out").skipped == (
        "text:2: the text of u7 is not used because no recording or segment has this name.",
        "more.wav: no list names it.",
    )


@pytest.mark.parametrize("field", ["transcription", "text", "sentence"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_hugging_face_audio_folders(source: Path, kind: str, field: str) -> None:
    put(source / "train" / "data" / "a.wav", speech(0))
    put(source / "train" / "b.flac", speech(1))
    rows = [{"file_name": "data/a.wav", field: "first, one"}, {"file_name": "b.flac", field: UMLAUT}]
    if kind == "csv":
        lines = [f"file_name,{field}", *(f'{row["file_name"]},"{row[field]}"' for row in rows)]
    else:
        lines = [json.dumps(row) for row in rows]
    (source / "train" / f"metadata.{kind}").write_text("\n".join(lines) + "\n")
    (source / "README.md").write_text("a data set")
    assert detected_layout(source) == "huggingface"
    outcome = import_source(source, source.parent / "out")
    assert list(texts(outcome).values()) == ["first, one", UMLAUT]


def test_hugging_face_splits_with_metadata_of_their_own(source: Path) -> None:
    for number, split in enumerate(("test", "train")):
        put(source / split / "a.wav", speech(number))
        (source / split / "metadata.csv").write_text(f"file_name,transcription\na.wav,in {split}\n")
    assert detected_layout(source) == "huggingface"
    assert texts(import_source(source, source.parent / "out")) == {"test-a": "in test", "train-a": "in train"}


def test_an_invalid_hugging_face_row_is_reported(source: Path) -> None:
    put(source / "train" / "a.wav", speech(0))
    lines = [{"file_name": "a.wav", "text": "x"}, {"file_name": "gone.wav"}, {"text": "no file"}, 5]
    (source / "train" / "metadata.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(SourceError) as caught:
        import_source(source, source.parent / "out", "huggingface")
    assert [fault.split(" ", 1)[0] for fault in caught.value.faults] == [f"metadata.jsonl:{n}:" for n in (2, 3, 4)]


def test_ljspeech(source: Path) -> None:
    put(source / "LJ" / "wavs" / "LJ001-0001.wav", speech(0))
    put(source / "LJ" / "wavs" / "LJ001-0002.wav", speech(1))
    (source / "LJ" / "metadata.csv").write_text(
        'LJ001-0001|in 1455, he "said|in fourteen fifty-five, he "said\nLJ001-0002|plain|\n'
    )
    (source / "LJ" / "README").write_text("about")
    assert detected_layout(source) == "ljspeech"
    outcome = import_source(source, source.parent / "out")
    assert texts(outcome) == {"LJ001-0001": 'in fourteen fifty-five, he "said', "LJ001-0002": "plain"}


def test_invalid_ljspeech_rows_are_reported(source: Path) -> None:
    put(source / "wavs" / "a.wav", speech(0))
    (source / "metadata.csv").write_text("a|x|y\nb|x|y\na|1|2|3\n")
    with pytest.raises(SourceError) as caught:
        import_source(source, source.parent / "out")
    missing, cells = caught.value.faults
    assert missing.startswith("metadata.csv:2: b.wav: is missing")
    assert cells.startswith("metadata.csv:3: has 4 cells")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_in_the_encodings_that_spreadsheets_write(source: Path, encoding: str, end: str) -> None:
    put(source / "a.wav", speech(0))
    (source / "list.csv").write_bytes(f'file;text{end}a.wav;"{UMLAUT}"{end}'.encode(encoding))
    assert detected_layout(source) == "csv"
    assert texts(import_source(source, source.parent / "out")) == {"a": UMLAUT}


def test_a_text_file_beside_a_recording_may_be_utf_16(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "a.txt").write_bytes(UMLAUT.encode("utf-16"))
    assert texts(import_source(source, source.parent / "out")) == {"a": UMLAUT}


def test_a_text_with_a_nul_character_is_an_error(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "a.txt").write_bytes(b"he\0llo and so on")
    assert "a.txt: contains NUL characters" in error_text(source)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (['a.wav,"never closed', "b.wav,fine", "c.wav,fine"], 2),
        (["a.wav,fine", 'b.wav,"never closed', "c.wav,fine"], 3),
        (["a.wav,fine", "b.wav,fine", 'c.wav,"'], 4),
        (['a.wav,"open', 'b.wav,"closed"', "c.wav,fine"], 2),
        (['a.wav,"open', 'b.wav,closed"', "c.wav,fine"], 2),
        (["a.wav,fine", '"b.wav,open', 'c.wav,"', "d.wav,fine"], 3),
    ],
)
def test_an_open_quotation_mark_is_reported_with_its_line(source: Path, rows: list[str], line: int) -> None:
    for number, name in enumerate("abcd"):
        put(source / f"{name}.wav", speech(number % 3))
    (source / "list.csv").write_text("\n".join(["file,text", *rows]) + "\n")
    error = error_text(source)
    assert error.startswith(f"list.csv:{line}: ")
    assert "quot" in error or "contains a row that names a recording" in error


def test_an_open_quotation_mark_in_a_long_table_is_reported_with_its_line(source: Path) -> None:
    put(source / "a.wav", speech(0))
    many = [f"a.wav,a long text of a line {number}" for number in range(10_000)]
    many[17] = 'a.wav,"never closed'
    (source / "list.csv").write_text("\n".join(["file,text", *many]) + "\n")
    assert error_text(source).startswith("list.csv:19: a quotation mark in this row is never closed")


def test_a_quoted_text_may_have_several_lines(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "list.csv").write_text('file,text\na.wav,"one,\ntwo, ""three"""\n')
    assert texts(import_source(source, source.parent / "out")) == {"a": 'one, two, "three"'}


def test_every_unused_file_is_reported_with_the_reason(source: Path) -> None:
    put(source / "a.wav", speech(0), text="used")
    for name, content in {
        "b.txt": b"lost words",
        "labels.csv": b"id,words\n1,x\n",
        "notes.docx": b"x",
        "c.g729": b"x",
    }.items():
        (source / name).write_bytes(content)
    outcome = import_source(source, source.parent / "out")
    assert texts(outcome) == {"a": "used"}
    assert dict(sentence.split(": ", 1) for sentence in outcome.skipped) == {
        "b.txt": "there is no recording with this name beside it.",
        "c.g729": "it does not have the suffix of a supported recording.",
        "labels.csv": "it was not recognized as a list of recordings; if it is one, give its path or use --format.",
        "notes.docx": "it does not have the suffix of a supported recording.",
    }


def test_importing_one_file_does_not_report_its_neighbors(source: Path) -> None:
    put(source / "a.wav", speech(0))
    put(source / "b.wav", speech(1))
    assert import_source(source / "a.wav", source.parent / "out").skipped == ()


def test_a_file_with_a_fault_is_not_also_reported_as_unused(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "link.wav").symlink_to("/etc/hostname")
    outcome = import_source(source, source.parent / "out", skip_bad=True)
    assert len(outcome.faults) == 1
    assert outcome.skipped == ()


def test_a_file_name_that_is_not_utf_8_is_a_fault(source: Path) -> None:
    put(source / "a.wav", speech(0))
    put(source / "plain.wav", speech(1))
    odd = source / b"caf\xe9.wav".decode("utf-8", "surrogateescape")
    (source / "plain.wav").rename(odd)
    (source / "broken.wav").write_bytes(b"RIFF\x00\x00")
    with pytest.raises(SourceError) as caught:
        import_source(source, source.parent / "out")
    assert [fault.split(": ", 1)[0] for fault in caught.value.faults] == ["caf\\xe9.wav", "broken.wav"]
    assert caught.value.faults[0] == "caf\\xe9.wav: its name is not in UTF-8; rename it."
    str(caught.value).encode()
    outcome = import_source(source, source.parent / "out", skip_bad=True)
    assert list(texts(outcome)) == ["a"]


def test_a_source_and_an_unused_file_may_have_names_that_are_not_utf_8(source: Path) -> None:
    put(source / "plain" / "a.wav", speech(0))
    put(source / "plain" / "b.wav", speech(1))
    odd = source / b"gr\xfc\xdfe".decode("utf-8", "surrogateescape")
    (source / "plain").rename(odd)
    (odd / b"notiz\xe9.doc".decode("utf-8", "surrogateescape")).write_text("x")
    outcome = import_source(odd, source.parent / "out")
    assert outcome.skipped == ("notiz\\xe9.doc: it does not have the suffix of a supported recording.",)
    assert [each.source for each in outcome.imported] == ["gr\\xfc\\xdfe: a.wav", "gr\\xfc\\xdfe: b.wav"]


def test_a_lone_surrogate_in_a_list_is_a_fault(source: Path) -> None:
    put(source / "a.wav", speech(0))
    row: dict[str, Any] = {"audio_filepath": "a.wav", "text": "half \ud83d of it"}
    (source / "list.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(SourceError) as caught:
        import_source(source, source.parent / "out", "nemo")
    assert caught.value.faults[0].startswith("list.jsonl:1: ") or "half a character" in caught.value.faults[0]
