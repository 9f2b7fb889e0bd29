"""Tests of `voiceprobe corpus show`: the tables, the page, and the choice of clips."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import BUNDLED, Corpus, open_corpus
from corpora.rendering.profiles.parsing import profile_from_text
from corpora.reports.gather import choose, gather
from corpora.reports.page import MAX_ROWS, page
from tests.unit.corpora.conftest import Ran, Workshop

pytestmark = pytest.mark.slow


def test_the_chosen_clips_span_all_lengths() -> None:
    corpus = open_corpus(BUNDLED)
    chosen = choose(corpus, (), 5)
    lengths = [utterance.speech_s for utterance in chosen]
    everything = sorted(utterance.speech_s for utterance in corpus.utterances)
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (everything[0], everything[-1])
    assert choose(corpus, (), 1000) == sorted(
        corpus.utterances, key=lambda utterance: (utterance.speech_s, utterance.id)
    )
    assert choose(corpus, (), 0) == []
    with pytest.raises(CorpusError, match="has no utterance nobody, nothing"):
        choose(corpus, ("nobody", "home-stop", "nothing"), 5)


def test_the_page_has_measured_values_audio_and_pictures(workshop: Workshop) -> None:
    for seed, name in enumerate(("one", "two", "three")):
        workshop.add(name, seed=seed, seconds=0.5, domain=f"domain-{seed}", bounds_confidence_db=60.0)
    corpus = open_corpus(workshop.save())
    shown = gather(corpus, choose(corpus, ("two",), 0), [profile_from_text("noise=white snr=10 channel=telephone")])
    text = page(shown)
    assert text.count("<audio") == 2
    assert text.count("data:audio/flac;base64,") == 2
    assert re.search(r"SNR (10\.0\d|9\.9\d) dB \(10 requested\)", text)
    assert "white-10dB+telephone" in text
    for domain in ("domain-0", "domain-1", "domain-2"):
        assert domain in text, "the table has them all"
    assert text.count("speech starts ± 2.5 ms, ends exactly") == 1
    assert "exact edges: speech ends where its fade of 5 ms begins" in text
    assert "end ±, ms" not in text
    HTMLParser().feed(text)


def test_recorded_edges_state_their_uncertainty(workshop: Workshop) -> None:
    workshop.add("one", seed=1, seconds=0.5)
    corpus = open_corpus(workshop.with_edges("recorded").save())
    text = page(gather(corpus, corpus.utterances, ()))
    assert text.count("speech starts ± 2.5 ms, ends ± 5 ms") == 1
    assert "recorded edges: speech ends known to ±5 ms (median), ±5 ms (worst)" in text
    assert "<th class='n'>end ±, ms</th></tr>" in text
    assert "<td class='n'>2.5</td><td class='n'>5</td></tr>" in text


def test_levels_below_0_have_the_minus_sign_of_the_pictures(workshop: Workshop) -> None:
    workshop.add("one", seed=1, seconds=0.5)
    corpus = open_corpus(workshop.save())
    text = page(gather(corpus, choose(corpus, ("one",), 0), [profile_from_text("noise=white snr=-5")]))
    assert re.search(r"\(level −\d\d\.\d dBov, SNR −(5\.0\d|4\.9\d) dB \(−5 requested\)", text)


def test_unknown_uncertainties_are_stated(workshop: Workshop) -> None:
    workshop.with_edges("recorded").add("one", seconds=0.3, seed=1, speech_end_uncertainty_ms=None)
    assert gather(open_corpus(workshop.save()), (), ()).bounds_sentence == (
        "recorded edges: the uncertainty of its speech ends is unknown"
    )
    workshop.add("two", seconds=0.3, seed=2, speech_end_uncertainty_ms=40.0)
    workshop.add("three", seconds=0.3, seed=3, speech_end_uncertainty_ms=10.0)
    sentence = gather(open_corpus(workshop.save()), (), ()).bounds_sentence
    assert sentence == "recorded edges: speech ends known to ±25 ms (median), ±40 ms (worst), unknown for 1 of 3"


def test_text_of_a_manifest_is_escaped(workshop: Workshop) -> None:
    evil = "<script>alert(1)</script>"
    workshop.add("one", text=evil, speaker="$x_{<b>", domain='"><img src=x>', license="<i>", seconds=0.3)
    corpus = open_corpus(workshop.save())
    text = page(gather(corpus, corpus.utterances, ()))
    assert evil not in text
    assert '"><img src=x>' not in text
    assert "&lt;script&gt;" in text


def test_the_page_of_a_large_corpus_stays_usable(workshop: Workshop) -> None:
    workshop.add("u", seconds=0.05, text=None)
    (only,) = open_corpus(workshop.save()).utterances
    names = ((f"u{index}", f"speaker-{index}") for index in range(MAX_ROWS + 3))
    many = tuple(replace(only, id=name, speaker=speaker) for name, speaker in names)
    corpus = Corpus("made", workshop.folder, "generated", many)
    text = page(gather(corpus, (), ()))
    assert text.count("<tr><td>") == MAX_ROWS
    assert "and 3 more" in text
    assert len(text) < 1_000_000


def test_the_command_writes_a_page_atomically(command: Callable[..., Ran], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    ran = command("show", BUNDLED, "--out", out, "--clip", "home-stop")
    assert ran.code == 0
    printed = "".join(ran.out.split())
    assert "67utterances,4.9minutes(CC0-1.0)" in printed
    assert f"page:{out}" in printed
    assert out.read_text().startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert command("show", BUNDLED, "--out", tmp_path / "new" / "page.html", "--clips", "0").code == 0
    assert (tmp_path / "new" / "page.html").is_file()
    ran = command("show", BUNDLED, "--out", out / "page.html", "--clips", "0")
    assert ran.code == 2
    assert "cannot be written" in ran.err
    assert ran.out == "", "nothing was rendered before"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("no-such-corpus",), "neither a folder nor one of"),
        ((BUNDLED, "--clips", "101"), "a page can show 0 to 100 clips"),
        ((BUNDLED, "--profile", "noise=rain snr=5"), "rain"),
        ((BUNDLED, "--profile", "nonsense"), "'nonsense' is not part of a profile"),
        ((BUNDLED, "--clip", "nobody"), "has no utterance nobody"),
    ],
)
def test_a_wrong_argument_of_show_is_one_sentence(
    command: Callable[..., Ran], arguments: tuple[str, ...], expected: str
) -> None:
    ran = command("show", *arguments)
    assert ran.code == 2
    assert expected in ran.err
