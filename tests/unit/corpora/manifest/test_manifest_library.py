"""Finding corpora, and choosing from them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import available, installed_root, open_corpus


@pytest.fixture
def mixed(workshop: Any) -> Any:
    workshop.add("short-home", seconds=1.0, seed=1)
    workshop.add("medium-bank", seconds=2.5, seed=2, domain="banking", pii_kinds=["name"])
    workshop.add("long-home", seconds=6.5, seed=3)
    return open_corpus(workshop.save())


def ids(utterances: tuple[Any, ...]) -> list[str]:
    return [utterance.id for utterance in utterances]


def test_select_by_length_domain_and_pii(mixed: Any) -> None:
    assert ids(mixed.select()) == ["short-home", "medium-bank", "long-home"]
    assert ids(mixed.select(length="long")) == ["long-home"]
    assert ids(mixed.select(domains=["home"])) == ["short-home", "long-home"]
    assert ids(mixed.select(include_pii=False)) == ["short-home", "long-home"]
    assert ids(mixed.select(length="medium", domains=["banking", "home"])) == ["medium-bank"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"length": "tiny"}, "The length 'tiny' is unknown; use one of short, medium, long."),
        ({"domains": ["space"]}, "The corpus made has no domain space; it has banking, home."),
        ({"length": "long", "domains": ["banking"]}, "The corpus made has no utterance that is long, banking;"),
        ({"domains": ["banking"], "include_pii": False}, "no utterance that is banking, free of PII;"),
        ({"domains": []}, "The corpus made has no utterance"),
    ],
)
def test_nothing_matches_in_one_sentence(mixed: Any, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(CorpusError) as caught:
        mixed.select(**asked)
    assert says in str(caught.value)
    assert str(caught.value).count(".") == 1


def test_without_recorded_speech_the_bundled_set_is_used(home: Path) -> None:
    corpus = open_corpus()
    assert (corpus.name, corpus.kind) == ("voiceprobe-en", "generated")
    assert open_corpus("voiceprobe-en").path == corpus.path


def test_installed_recorded_speech_is_preferred_and_found_by_name(home: Path, workshop: Any) -> None:
    workshop.header["corpus"], workshop.header["kind"] = "pocketsphinx-testdata", "recorded human"
    workshop.add("one")
    folder = home / "corpora" / "pocketsphinx-testdata"
    shutil.copytree(workshop.save(), folder)
    assert open_corpus().path == folder
    assert open_corpus(None).kind == "recorded human"
    assert open_corpus("pocketsphinx-testdata").path == folder
    names = [info.name for info in available()]
    assert names == ["voiceprobe-en", "pocketsphinx-testdata"]
    found = available()[1]
    assert (found.kind, found.utterance_count, found.short_count, found.licenses) == (
        "recorded human",
        1,
        1,
        ("CC0-1.0",),
    )
    assert found.speech_s == pytest.approx(1.0)


def test_a_broken_installed_corpus_is_listed_with_its_fault(home: Path) -> None:
    folder = home / "corpora" / "asterisk-core-sounds-en"
    folder.mkdir(parents=True)
    (folder / "manifest.jsonl").write_text("nonsense")
    info = available()[1]
    assert info.utterance_count == 0
    assert info.fault is not None
    assert "is not JSON" in info.fault


def test_a_folder_opens_as_text_or_path(workshop: Any) -> None:
    workshop.add("one")
    folder = workshop.save()
    assert open_corpus(folder).path == open_corpus(str(folder)).path == folder


def test_an_unknown_name_lists_what_there_is(home: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        open_corpus("nowhere")
    assert str(caught.value) == "The corpus 'nowhere' is neither a folder nor one of voiceprobe-en."


def test_the_home_of_installed_corpora(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VOICEPROBE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert installed_root().parts[-2:] == ("voiceprobe", "corpora")
    monkeypatch.setenv("VOICEPROBE_HOME", "~/somewhere")
    assert installed_root() == Path.home() / "somewhere" / "corpora"
