"""Tests of the edges of a corpus: in the header of its manifest, and how each command states and changes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.edges import set_edges
from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.library import BUNDLED, available, open_corpus
from corpora.manifest.manifest import read_manifest, write_manifest
from corpora.sources import install as installing
from tests.unit.corpora.conftest import Ran, Workshop

Command = Callable[..., Ran]


@pytest.fixture
def folder(workshop: Workshop) -> Path:
    workshop.add("one", seconds=0.4, seed=1)
    workshop.add("two", seconds=0.4, seed=2)
    return workshop.save()


def test_a_manifest_without_edges_is_exact(folder: Path) -> None:
    assert "edges" not in (folder / "manifest.jsonl").read_text()
    assert read_manifest(folder).edges == "exact"
    assert open_corpus(folder).edges == "exact"


@pytest.mark.parametrize("edges", ["exact", "recorded"])
def test_the_edges_are_written_and_read(folder: Path, edges: Any) -> None:
    manifest = read_manifest(folder)
    write_manifest(folder, manifest.name, manifest.kind, manifest.utterances, edges=edges)
    header = json.loads((folder / "manifest.jsonl").read_text().splitlines()[0])
    assert header == {"corpus": "made", "kind": "generated", "format": 2, "edges": edges}
    again = read_manifest(folder)
    assert (again.edges, again.utterances) == (edges, manifest.utterances)
    assert open_corpus(folder).edges == edges


@pytest.mark.parametrize("value", ["sharp", "Exact", "", 1, None, ["exact"], True])
def test_other_edges_are_a_fault_of_the_header(workshop: Workshop, value: Any) -> None:
    workshop.add("one", seconds=0.4)
    workshop.header["edges"] = value
    with pytest.raises(ManifestError, match=r":1: header: edges is .*; it must be exact or recorded\."):
        read_manifest(workshop.save())


def test_changing_the_edges_changes_nothing_else(folder: Path) -> None:
    file = folder / "manifest.jsonl"
    before = file.read_bytes()
    head, rest = before.split(b"\n", 1)
    # As another tool may have written it: a key of its own, blank lines, and Windows line endings.
    kept = b"\r\n" + rest.replace(b"\n", b"\r\n") + b"\r\n\r\n"
    file.write_bytes(head.replace(b"}", b', "mine": [1, 2]}') + kept)
    clips = {clip: clip.stat().st_mtime_ns for clip in (folder / "clips").iterdir()}
    assert set_edges(folder, "recorded")
    assert file.read_bytes().split(b"\r\n", 1)[1] == kept[2:]
    header = json.loads(file.read_bytes().split(b"\r\n")[0])
    assert header == {"corpus": "made", "kind": "generated", "format": 2, "mine": [1, 2], "edges": "recorded"}
    assert open_corpus(folder).edges == "recorded"
    written = file.stat().st_mtime_ns
    assert not set_edges(folder, "recorded")
    assert file.stat().st_mtime_ns == written, "nothing is written if nothing changes"
    assert set_edges(folder, "exact")
    assert read_manifest(folder).edges == "exact"
    assert clips == {clip: clip.stat().st_mtime_ns for clip in (folder / "clips").iterdir()}


def test_the_command_shows_and_changes_them(folder: Path, command: Command) -> None:
    for arguments, shown in (((), "exact"), (("recorded",), "recorded"), ((), "recorded"), (("exact",), "exact")):
        assert command("edges", folder, *arguments) == Ran(0, f"made: {shown} edges\n", "")
        assert read_manifest(folder).edges == shown


def test_unknown_edges_corpora_and_the_bundled_corpus_are_refused(folder: Path, command: Command) -> None:
    bundled = open_corpus(BUNDLED, check_clips=False).path
    for given, edges, says in (
        (folder, "sharp", "The value 'sharp' is unknown; use exact or recorded.\n"),
        (folder / "nowhere", "exact", "is neither a folder nor one of"),
        (BUNDLED, "recorded", "belongs to the installation and is not changed; copy it (cp -r "),
    ):
        before = [(each / "manifest.jsonl").read_bytes() for each in (folder, bundled)]
        ran = command("edges", given, edges)
        assert ran.code == 2
        assert says in ran.err
        assert [(each / "manifest.jsonl").read_bytes() for each in (folder, bundled)] == before
    assert command("edges", BUNDLED).out == f"{BUNDLED}: exact edges\n"


def test_a_folder_that_cannot_be_written_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("corpora.manifest.edges.replace_file", full)
    with pytest.raises(CorpusError, match=r"manifest\.jsonl: cannot be written \(No space left on device\); check"):
        set_edges(folder, "recorded")


def test_an_installed_corpus_is_changed_without_a_download(
    workshop: Workshop, home: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    workshop.header["corpus"] = "pocketsphinx-testdata"
    workshop.add("one", seconds=0.4)
    installed = home / "corpora" / "pocketsphinx-testdata"
    installed.parent.mkdir(parents=True)
    workshop.save().rename(installed)

    def no_download(*_: object) -> list[Path]:
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(installing, "_download", no_download)
    for given, shown in (((), "exact"), (("--edges", "recorded"), "recorded"), ((), "recorded")):
        ran = command("install", "pocketsphinx-testdata", *given)
        assert ran.code == 0
        assert f"1 utterances in {installed}, {shown} edges\n" in ran.out
        assert open_corpus("pocketsphinx-testdata").edges == shown
    ran = command("install", "pocketsphinx-testdata", "--edges", "sharp")
    assert (ran.code, ran.err) == (2, "--edges 'sharp' is unknown; use exact or recorded.\n")
    assert command("edges", "pocketsphinx-testdata", "exact").code == 0
    assert {info.name: info.edges for info in available()} == {BUNDLED: "exact", "pocketsphinx-testdata": "exact"}


def test_the_list_states_them(workshop: Workshop, home: Path, command: Command) -> None:
    workshop.with_edges("recorded").add("one", seconds=0.4)
    (home / "corpora").mkdir(parents=True)
    workshop.save().rename(home / "corpora" / "made")
    rows = json.loads(command("list", "--json").out)
    assert {row["name"]: row["edges"] for row in rows} == {BUNDLED: "exact", "made": "recorded"}
    printed = " ".join(command("list").out.split())
    assert "exact edges" in printed
    assert "recorded edges" in printed


def test_the_table_of_a_corpus_states_them(folder: Path, command: Command) -> None:
    assert "exact edges: speech ends where its fade of 5 ms begins" in command("show", folder).out
    set_edges(folder, "recorded")
    assert "recorded edges: speech ends known to ±5 ms (median)" in command("show", folder).out
