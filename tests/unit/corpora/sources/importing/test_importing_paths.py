"""Where a source is and how its files are called: by `..` and links, with spaces, in capitals, in any bytes."""

import json
import os
from pathlib import Path

import pytest

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.tree import open_tree
from tests.unit.corpora.sources.importing.sources import faults_of, import_source, put, speech, texts


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "my rec"
    put(folder / "a.wav", speech(), text="hello")
    (tmp_path / "work").mkdir()
    return folder


@pytest.mark.parametrize("given", ["../my rec", "../my rec/", "../work/../my rec", "../my rec/a.wav"])
def test_a_source_that_is_named_from_another_folder(source: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent / "work")
    assert texts(import_source(Path(given), source.parent / "out")) == {"a": "hello"}


def test_the_folder_that_one_is_in_and_the_one_above_it(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "deep").mkdir()
    monkeypatch.chdir(source / "deep")
    assert texts(import_source(Path(".."), source.parent / "out")) == {"a": "hello"}
    monkeypatch.chdir(source)
    assert texts(import_source(Path(), source.parent / "other")) == {"a": "hello"}


def test_a_source_behind_a_link_and_above_it(source: Path) -> None:
    link = source.parent / "work" / "link"
    link.symlink_to(source, target_is_directory=True)
    assert texts(import_source(link, source.parent / "out")) == {"a": "hello"}
    (source / "in").mkdir()
    inner = source.parent / "work" / "inner"
    inner.symlink_to(source / "in", target_is_directory=True)
    # Of a link, `..` is the folder that its target is in.
    assert texts(import_source(inner / "..", source.parent / "other")) == {"a": "hello"}


@pytest.mark.parametrize(
    "name", ["a.wav", "./a.wav", "sub/../a.wav", "../my rec/a.wav", "{link}/a.wav", "{real}/a.wav"]
)
def test_a_list_may_name_a_file_of_the_source_in_any_way(source: Path, name: str) -> None:
    link = source.parent / "link"
    link.symlink_to(source, target_is_directory=True)
    file = name.format(link=link, real=source)
    (source / "list.csv").write_text(f"file,text\n{file},from the list\n")
    for number, given in enumerate((source, link)):
        assert texts(import_source(given, source.parent / f"out-{number}")) == {"a": "from the list"}


@pytest.mark.parametrize("name", ["../b.wav", "sub/../../b.wav", "{outside}/b.wav", "out.wav", "../my rec2/b.wav"])
def test_a_name_that_really_leads_out_is_refused(source: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = put(source.parent / "b.wav", speech())
    put(source.parent / "my rec2" / "b.wav", speech())
    (source / "out.wav").symlink_to(outside)
    (source / "list.csv").write_text(f"file,text\n{name.format(outside=source.parent)},x\n")
    monkeypatch.chdir(source.parent / "work")
    (fault,) = faults_of(Path("../my rec"), form="csv")
    assert "leads out of my rec" in fault


@pytest.mark.parametrize(
    ("audio", "text"),
    [
        ("UPPER.WAV", "UPPER.TXT"),
        ("Upper.Wav", "Upper.Txt"),
        ("a.flac", "a.LAB"),
        ("A.FLAC", "A.txt"),
        ("A.WAV", "A.WAV.TXT"),
        ("with space.wav", "with space.TXT"),
        ("dots.in.name.wav", "dots.in.name.TXT"),
    ],
)
def test_suffixes_in_capital_letters(tmp_path: Path, audio: str, text: str) -> None:
    made = put(tmp_path / "in" / f"made{Path(audio).suffix.lower()}", speech())
    made.rename(made.with_name(audio))
    made.with_name(text).write_text("what was said")
    assert list(texts(import_source(made.parent, tmp_path / "out")).values()) == ["what was said"]


@pytest.mark.parametrize("name", ["LIST.CSV", "LIST.TSV", "METADATA.CSV", "metadata.JSONL", "MANIFEST.JSON"])
def test_lists_with_suffixes_in_capital_letters(tmp_path: Path, name: str) -> None:
    put(tmp_path / "in" / "a.wav", speech())
    rows = {
        "LIST.CSV": "file,text\na.wav,hello\n",
        "LIST.TSV": "file\ttext\na.wav\thello\n",
        "METADATA.CSV": "file_name,text\na.wav,hello\n",
        "metadata.JSONL": json.dumps({"file_name": "a.wav", "text": "hello"}),
        "MANIFEST.JSON": json.dumps({"audio_filepath": "a.wav", "text": "hello"}),
    }
    (tmp_path / "in" / name).write_text(rows[name])
    outcome = import_source(tmp_path / "in", tmp_path / "out")
    assert outcome.format in ("csv", "huggingface", "nemo")
    assert texts(outcome) == {"a": "hello"}


def test_layouts_without_suffixes_match_audio_in_capital_letters(tmp_path: Path) -> None:
    for folder, name in (("lj/wavs", "LJ1.wav"), ("libri/84/121", "84-121-0000.flac")):
        made = put(tmp_path / folder / name, speech())
        made.rename(made.with_suffix(made.suffix.upper()))
    (tmp_path / "lj" / "METADATA.CSV").write_text("LJ1|one|one\n")
    (tmp_path / "libri/84/121/84-121.trans.TXT").write_text("84-121-0000 GO ON\n")
    ljspeech = import_source(tmp_path / "lj", tmp_path / "out-lj")
    librispeech = import_source(tmp_path / "libri", tmp_path / "out-libri")
    assert (ljspeech.format, texts(ljspeech)) == ("ljspeech", {"LJ1": "one"})
    assert (librispeech.format, texts(librispeech)) == ("librispeech", {"84-121-0000": "GO ON"})


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"in-\xe9")
    folder.mkdir()
    put(tmp_path / "made.wav", speech()).rename(folder / "cafe.wav")
    (folder / "cafe.TXT").write_text("coffee")
    outcome = import_source(folder, tmp_path / "other")
    assert texts(outcome) == {"cafe": "coffee"}
    assert [clip.source for clip in outcome.imported] == ["in-\\xe9: cafe.wav"]
    (folder / "cafe.wav").rename(folder / os.fsdecode(b"caf\xe9.wav"))
    (folder / "broken.wav").write_bytes(b"RIFF\x00\x00")
    odd, broken = faults_of(folder)
    assert odd == r"caf\xe9.wav: its name is not in UTF-8; rename it."
    assert broken.startswith("broken.wav: ")


def test_the_root_of_a_source_has_no_dots_and_no_links(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent / "work")
    assert open_tree(Path("../my rec")).root == source
    with pytest.raises(CorpusError, match="no-such: cannot be read"):
        open_tree(Path("../no-such"))
