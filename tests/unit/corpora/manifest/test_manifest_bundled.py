"""The committed clips agree with their texts, hashes and bounds, and flite makes them again."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from corpora.annotation.boundary_uncertainty import stated_ms
from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus, open_corpus
from corpora.manifest.manifest import MANIFEST_NAME
from corpora.sources.synthesis import voices
from corpora.sources.synthesis.bundled import build, bundled_texts, flite_draft
from corpora.sources.synthesis.voices import Flite
from tests.corpus_faults import find_faults
from tests.programs import needed


@pytest.fixture(scope="module")
def english() -> Corpus:
    return open_corpus("voiceprobe-en")


def test_every_clip_is_what_the_manifest_says(english: Corpus) -> None:
    assert find_faults(english.path) == ()


def test_texts_and_manifest_agree(english: Corpus) -> None:
    lines = bundled_texts(english.path)
    assert [(u.id, u.text, u.domain, u.pii_kinds, u.speaker) for u in english.utterances] == [
        (line.id, line.text, line.domain, line.pii_kinds, f"flite-{line.voice}") for line in lines
    ]


def test_there_is_enough_of_everything(english: Corpus) -> None:
    assert len(english.utterances) >= 48
    lengths = Counter(utterance.length for utterance in english.utterances)
    assert min(lengths["short"], lengths["medium"], lengths["long"]) >= 12
    domains = Counter(utterance.domain for utterance in english.utterances)
    assert {"home", "travel", "banking", "health", "retail", "smalltalk"} <= domains.keys()
    assert min(domains.values()) >= 8
    speakers = Counter(utterance.speaker for utterance in english.utterances)
    assert len(speakers) == 4
    assert min(speakers.values()) >= 10
    kinds = {kind for utterance in english.utterances for kind in utterance.pii_kinds}
    assert {"name", "address", "phone", "email", "card_number", "account_number", "date_of_birth"} == kinds


def test_all_is_sixteen_kilohertz_public_domain_and_small(english: Corpus) -> None:
    assert {utterance.sample_rate_hz for utterance in english.utterances} == {16_000}
    assert {utterance.license for utterance in english.utterances} == {"CC0-1.0"}
    assert sum(file.stat().st_size for file in english.path.rglob("*") if file.is_file()) < 8_000_000
    named = {utterance.path for utterance in english.utterances}
    assert {file.relative_to(english.path).as_posix() for file in english.path.glob("clips/*")} == named


@pytest.mark.slow
def test_the_bounds_are_found_again_and_are_as_far_off_as_stated(english: Corpus) -> None:
    for utterance in english.utterances:
        bounds = find_speech_bounds(english.read(utterance), utterance.sample_rate_hz)
        assert bounds.start_sample == utterance.speech_start_sample, utterance.id
        assert bounds.end_sample == utterance.speech_end_sample, utterance.id
        stated = (utterance.speech_start_uncertainty_ms, utterance.speech_end_uncertainty_ms)
        assert stated == (stated_ms(bounds.start_uncertainty_s), stated_ms(bounds.end_uncertainty_s)), utterance.id


def test_clips_are_not_cut_or_silenced_at_annotated_bounds(english: Corpus) -> None:
    """Else the bounds could not be checked against the clip: whatever they missed would be gone from it."""
    for utterance in english.utterances:
        samples = english.read(utterance)
        assert np.any(samples[: utterance.speech_start_sample]), utterance.id
        assert np.any(samples[utterance.speech_end_sample + 1 :]), utterance.id


@pytest.mark.slow
def test_flite_speaks_the_committed_samples_again(english: Corpus) -> None:
    needed("flite")
    lines = {line.id: line for line in bundled_texts(english.path)}
    for utterance in english.utterances[::9]:
        draft = flite_draft(lines[utterance.id], Flite())
        np.testing.assert_array_equal(draft.pcm / 32_768.0, english.read(utterance), err_msg=utterance.id)


def test_a_build_makes_a_corpus_that_passes_its_check(tmp_path: Path) -> None:
    needed("flite")
    source = tmp_path / "source"
    source.mkdir()
    header = "id,voice,stretch,domain,pii_kinds,text\n"
    (source / "texts.csv").write_text(
        header + 'a,slt,1.0,home,,"Hello, you."\nb,rms,1.2,home,name;phone,Goodbye Tim.\n'
    )
    assert build(source, tmp_path / "out") == 2
    built = open_corpus(tmp_path / "out")
    assert [u.pii_kinds for u in built.utterances] == [(), ("name", "phone")]
    first = (tmp_path / "out" / MANIFEST_NAME).read_bytes()
    assert build(source, tmp_path / "out") == 2
    assert (tmp_path / "out" / MANIFEST_NAME).read_bytes() == first
    assert built.edges == "exact"
    assert build(source, tmp_path / "out", "recorded") == 2
    assert open_corpus(tmp_path / "out").edges == "recorded"
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


HEADER = "id,voice,stretch,domain,pii_kinds,text\n"


def test_without_flite_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "texts.csv").write_text(f"{HEADER}a,slt,1.0,home,,hello\n")
    with pytest.raises(CorpusError, match="flite is not installed; install the package flite"):
        build(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("voice", "script", "says"),
    [
        ("slt", "exit 3", "flite exited with code 3"),
        ("slt", "exec /bin/sleep 60", "flite did not finish"),
        ("bob", "exit 0", "The flite voice 'bob' is not supported"),
    ],
)
def test_a_text_that_flite_does_not_speak_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, voice: str, script: str, says: str
) -> None:
    (tmp_path / "flite").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "flite").chmod(0o755)
    (tmp_path / "texts.csv").write_text(f"{HEADER}a,{voice},1.0,home,,hello\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(voices, "_FLITE_TIMEOUT_S", 0.2)
    with pytest.raises(CorpusError, match=f"a: {says}"):
        build(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,slt,fast,home,,hi", "stretch must be a number"),
        ("a,slt,9,home,,hi", "stretch must be a number from 0.5 to 2"),
        ("a,slt,nan,home,,hi", "stretch must be a number"),
        ("a,slt,1.0,home,secret,hi", "pii_kinds may be any of"),
        ("a,slt,1.0,home,, ", "has no text"),
        ("a,slt,1.0,home,,hi, there", "has too many columns; quote texts"),
        ("a,slt,1.0", "has no text"),
    ],
)
def test_a_line_of_the_texts_that_cannot_be_spoken(tmp_path: Path, row: str, says: str) -> None:
    (tmp_path / "texts.csv").write_text(f"{HEADER}{row}\n")
    with pytest.raises(CorpusError) as caught:
        bundled_texts(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/texts.csv:2: ")
    assert says in str(caught.value)


def test_texts_that_are_missing_or_have_other_columns(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read"):
        bundled_texts(tmp_path)
    (tmp_path / "texts.csv").write_text("a,text\n1,2\n")
    with pytest.raises(CorpusError, match="the column 'a' is unknown; use any of text, id"):
        bundled_texts(tmp_path)
