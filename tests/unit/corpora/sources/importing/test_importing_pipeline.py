"""Tests of the import pipeline: atomic writes, appending, ids, conversations, and crashing decoders."""

import os
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError, SourceError
from corpora.manifest.library import open_corpus
from corpora.manifest.manifest import Utterance, read_manifest
from corpora.sources.importing.clip_processes import ClipJob, make_clips
from corpora.sources.importing.items import Item, Settings
from tests.corpus_faults import find_faults
from tests.unit.corpora.sources.importing.sources import import_source, opened, put, speech, texts


@pytest.fixture
def source(tmp_path: Path) -> Path:
    put(tmp_path / "in" / "a.wav", speech(0), text="one")
    put(tmp_path / "in" / "b.wav", speech(1), text="two")
    return tmp_path / "in"


def test_an_existing_corpus_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    import_source(source, tmp_path / "out")
    before = (tmp_path / "out" / "manifest.jsonl").read_bytes()
    with pytest.raises(CorpusError, match="already exists; choose another folder"):
        import_source(source, tmp_path / "out")
    assert (tmp_path / "out" / "manifest.jsonl").read_bytes() == before


def test_an_empty_folder_can_be_used(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert set(texts(import_source(source, tmp_path / "out"))) == {"a", "b"}


def test_the_same_source_gives_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("x", "y"):
        import_source(source, tmp_path / name / "out")
    files = [path.relative_to(tmp_path / "x") for path in (tmp_path / "x").rglob("*") if path.is_file()]
    assert len(files) == 3
    for file in files:
        assert (tmp_path / "x" / file).read_bytes() == (tmp_path / "y" / file).read_bytes()


def test_new_recordings_are_appended_and_existing_recognized(source: Path, tmp_path: Path) -> None:
    first = import_source(source, tmp_path / "out", append=True)
    put(source / "c.wav", speech(2), text="three")
    second = import_source(source, tmp_path / "out", append=True)
    assert (len(first.imported), first.already, len(second.imported), second.already) == (2, 0, 1, 2)
    assert texts(second) == {"a": "one", "b": "two", "c": "three"}


def test_appending_keeps_valid_recordings_and_reports_the_others(source: Path, tmp_path: Path) -> None:
    (source / "bad.wav").write_text("no audio")
    with pytest.raises(SourceError, match="the valid recordings were kept") as caught:
        import_source(source, tmp_path / "out", append=True)
    assert len(caught.value.faults) == 1
    assert {utterance.id for utterance in open_corpus(tmp_path / "out").utterances} == {"a", "b"}


def test_existing_clips_with_other_names_are_not_overwritten(workshop: Any, tmp_path: Path) -> None:
    workshop.header["kind"] = "recorded human"
    workshop.add("x")
    (workshop.folder / "clips" / "x.flac").rename(workshop.folder / "clips" / "y.flac")
    workshop.rows[0]["path"] = "clips/y.flac"
    put(tmp_path / "in" / "y.wav", speech())
    outcome = import_source(tmp_path / "in", workshop.save(), append=True)
    assert [utterance.id for utterance in outcome.imported] == ["y-2"]
    assert find_faults(workshop.folder) == ()


@pytest.mark.slow
def test_a_manifest_never_names_a_missing_clip(source: Path, tmp_path: Path) -> None:
    """While an import appends, the folder always contains either a valid corpus or none."""
    from corpora.sources.importing import pipeline

    for number in range(3, 9):
        put(source / f"{number}.wav", speech(0))
    counts: list[int] = []

    def check(done: int, total: int) -> None:
        if (tmp_path / "out" / "manifest.jsonl").exists():
            assert find_faults(tmp_path / "out") == ()
            counts.append(len(read_manifest(tmp_path / "out").utterances))

    settings = Settings("CC0-1.0", "asked", "in")
    tree = pipeline.open_tree(source)
    before = pipeline._CHECKPOINT
    try:
        pipeline._CHECKPOINT = 3
        pipeline.import_corpus(tree, _folder(), tmp_path / "out", settings, append=True, progress=check)
    finally:
        pipeline._CHECKPOINT = before
    assert counts == [3, 3, 3, 6, 6]
    assert len(read_manifest(tmp_path / "out").utterances) == 8


def _folder() -> Any:
    from corpora.sources.importing.layouts import LAYOUTS

    return LAYOUTS["folder"]


def test_folder_of_killed_import_only_is_removed(source: Path, tmp_path: Path) -> None:
    gone = 2**22 + 1  # above the largest process id
    for owner in (gone, os.getpid()):
        (tmp_path / f".out.importing-{owner}-x" / "fresh").mkdir(parents=True)
    import_source(source, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", f".out.importing-{os.getpid()}-x"}


def test_an_incomplete_conversation_is_left_out_and_reported(source: Path, tmp_path: Path) -> None:
    (source / "list.csv").write_text(
        "file,text,conversation,barge_in_after_s\n"
        "a.wav,x,whole,\nb.wav,x,whole,0.5\na.wav,x,torn,\ngone.wav,x,torn,\nb.wav,x,rude,1\n"
    )
    outcome = import_source(source, tmp_path / "out", skip_bad=True)
    assert [conversation.id for conversation in opened(outcome).conversations] == ["whole"]
    gone, torn, rude = outcome.faults
    assert "gone.wav: is missing" in gone
    assert torn == (
        "The conversation 'torn' is left out because some of its utterances cannot be imported; correct them."
    )
    assert "the first turn cannot interrupt" in rude


@pytest.mark.slow
def test_file_that_crashes_decoder_is_reported_and_others_kept(source: Path, tmp_path: Path) -> None:
    class Killer(PosixPath):
        """A path that ends the process that unpickles it."""

        def __reduce__(self) -> Any:
            return (os._exit, (3,))

    (tmp_path / "clips").mkdir()
    settings = Settings("CC0-1.0", "asked", "in")
    items = [Item("a", source / "a.wav", "a.wav"), Item("k", Killer(source / "a.wav"), "k.wav")]
    items += [Item("b", source / "b.wav", "b.wav")]
    jobs = [ClipJob(item.name, item, tmp_path, settings) for item in items]
    first, killer, last = (made for _, made in make_clips(jobs, 2))
    assert isinstance(first, Utterance)
    assert isinstance(last, Utterance)
    assert killer == "k.wav: its decoder crashed, so the file is damaged or malicious; convert it again."


def test_ids_are_derived_from_names_and_unique(tmp_path: Path) -> None:
    for name in ("Straße 1.wav", "straße-1.wav", ("x" * 150) + ".wav", "...wav"):
        put(tmp_path / "in" / name, np.concatenate((speech(0), np.zeros(len(name)))))
    ids = [utterance.id for utterance in import_source(tmp_path / "in", tmp_path / "out").imported]
    assert ids == ["Stra-e-1", "stra-e-1-2", "x" * 90]


@pytest.mark.slow
def test_an_import_that_is_interrupted_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    from corpora.sources.importing.pipeline import import_corpus, open_tree

    for number in range(20):
        put(source / f"{number:02}.wav", speech(0))

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    settings = Settings("CC0-1.0", "asked", "in")
    with pytest.raises(KeyboardInterrupt):
        import_corpus(open_tree(source), _folder(), tmp_path / "out", settings, processes=2, progress=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"in"}
