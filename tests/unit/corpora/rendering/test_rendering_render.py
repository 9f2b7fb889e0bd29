"""Tests of rendering: SNR, level, bounds, and the same bytes on every machine."""

import hashlib
import itertools
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corpora.annotation.levels import active_mask, active_speech_level_dbov
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus, open_corpus
from corpora.rendering.render import SPEECH_LEVEL_DBOV, Profile, background, render


@pytest.fixture(scope="module")
def english() -> Corpus:
    return open_corpus("voiceprobe-en")


def dbov(pcm: Any) -> float:
    return 10 * math.log10(np.mean((pcm / 32_768.0) ** 2))


@pytest.mark.parametrize("noise", ["white", "pink", "brown", "babble", "hum", "hum-60", "music"])
@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 10.0, 30.0, 50.0])
def test_the_snr_is_the_requested_one(english: Corpus, noise: str, snr_db: float) -> None:
    for utterance in english.utterances[::16]:
        clean = render(english, utterance, Profile(), 24_000, 3)
        noisy = render(english, utterance, Profile(noise, snr_db), 24_000, 3)
        speech = clean.pcm / 32_768.0
        mask = active_mask(speech, 24_000, clean.speech_start_sample, clean.speech_end_sample)
        added = (noisy.pcm.astype(float) - clean.pcm)[mask]
        measured = 10 * math.log10(np.mean(clean.pcm[mask].astype(float) ** 2) / np.mean(added**2))
        assert measured == pytest.approx(snr_db, abs=0.1)
        assert noisy.snr_obtained_db == pytest.approx(snr_db, abs=0.1)
        assert noisy.snr_asked_db == snr_db


def test_without_noise_there_is_no_snr(english: Corpus) -> None:
    clean = render(english, english.utterances[0], Profile(), 16_000, 1)
    assert clean.snr_asked_db is None
    assert clean.snr_obtained_db is None


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
def test_every_utterance_has_the_same_active_level(english: Corpus, rate_hz: int) -> None:
    for utterance in english.utterances[::12]:
        clean = render(english, utterance, Profile(), rate_hz, 1)
        level = active_speech_level_dbov(
            clean.pcm / 32_768.0, rate_hz, clean.speech_start_sample, clean.speech_end_sample
        )
        assert level == pytest.approx(SPEECH_LEVEL_DBOV, abs=0.05)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 44_100, 48_000])
def test_the_bounds_keep_their_time(workshop: Any, rate_hz: int) -> None:
    workshop.add("one", seconds=1.0)
    corpus = open_corpus(workshop.save())
    clean = render(corpus, corpus.utterances[0], Profile(), rate_hz, 1)
    assert len(clean.pcm) == pytest.approx(1.4 * rate_hz, abs=1)
    assert clean.speech_start_sample / rate_hz == pytest.approx(3_200 / 16_000, abs=0.51 / rate_hz)
    assert clean.speech_end_sample / rate_hz == pytest.approx(19_199 / 16_000, abs=0.51 / rate_hz)
    # The sound really is between the bounds: a band-limited edge rings, but not 2 ms away.
    margin = round(0.002 * rate_hz)
    loudest = np.abs(clean.pcm).max()
    assert np.abs(clean.pcm[: clean.speech_start_sample - margin]).max() < loudest * 0.02
    assert np.abs(clean.pcm[clean.speech_end_sample + margin :]).max() < loudest * 0.02
    assert np.abs(clean.pcm[clean.speech_start_sample : clean.speech_start_sample + margin]).max() > loudest * 0.1
    assert np.abs(clean.pcm[clean.speech_end_sample - margin : clean.speech_end_sample]).max() > loudest * 0.1


def test_noise_covers_the_clip_and_does_not_move_the_bounds(english: Corpus) -> None:
    utterance = english.utterances[0]
    clean = render(english, utterance, Profile(), 24_000, 1)
    noisy = render(english, utterance, Profile("white", 20.0), 24_000, 1)
    assert (noisy.speech_start_sample, noisy.speech_end_sample) == (clean.speech_start_sample, clean.speech_end_sample)
    assert len(noisy.pcm) == len(clean.pcm)
    assert dbov(noisy.pcm[: noisy.speech_start_sample - 100]) == pytest.approx(-46.0, abs=0.5)


@pytest.mark.parametrize("noise", ["white", "pink", "brown", "babble", "hum", "hum-60", "music"])
def test_the_background_has_the_noise_level_of_the_mix(english: Corpus, noise: str) -> None:
    line = background(english, Profile(noise, 15.0), 24_000, 5.0, 1)
    assert (line.shape, line.dtype) == ((120_000,), np.int16)
    assert dbov(line) == pytest.approx(-41.0, abs=0.05)


def test_white_noise_is_equally_loud_in_the_mix_and_the_background(english: Corpus) -> None:
    profile = Profile("white", 15.0)
    line = dbov(background(english, profile, 24_000, 5.0, 1))
    for utterance in english.utterances[::20]:
        clean = render(english, utterance, Profile(), 24_000, 1)
        noisy = render(english, utterance, profile, 24_000, 1)
        assert dbov(noisy.pcm.astype(float) - clean.pcm) == pytest.approx(line, abs=0.2)


def test_without_noise_the_background_is_digital_silence(english: Corpus) -> None:
    line = background(english, Profile(), 16_000, 0.5, 1)
    assert line.shape == (8_000,)
    assert not line.any()


def test_the_noise_depends_on_seed_utterance_and_type_but_not_on_the_level(english: Corpus) -> None:
    one, two = english.utterances[:2]
    white = render(english, one, Profile("white", 10.0), 16_000, 1).pcm
    assert np.array_equal(white, render(english, one, Profile("white", 10.0), 16_000, 1).pcm)
    assert not np.array_equal(white, render(english, one, Profile("white", 10.0), 16_000, 2).pcm)
    assert not np.array_equal(white, render(english, one, Profile("pink", 10.0), 16_000, 1).pcm)
    added = [
        (render(english, which, Profile("white", snr), 16_000, 1).pcm.astype(float))
        - render(english, which, Profile(), 16_000, 1).pcm
        for which, snr in itertools.product((one, two), (10.0, 0.0))
    ]
    shared = min(map(len, added))
    correlation = np.corrcoef([signal[:shared] for signal in added])
    assert correlation[0, 1] > 0.999
    assert abs(correlation[0, 2]) < 0.05


def test_the_bytes_are_pinned(english: Corpus) -> None:
    """Fails if another processor, NumPy or soxr gives other bytes, because cohorts could then not be compared."""
    english = replace(english, edges="recorded")  # test_rendering_exact_edges pins the others
    found = {}
    for noise in (None, "white", "pink", "babble"):
        profile = Profile(noise, None if noise is None else 10.0)
        rendered = render(english, english.utterances[3], profile, 24_000, 2026)
        line = background(english, profile, 24_000, 1.0, 2026)
        content = rendered.pcm.astype("<i2").tobytes() + line.astype("<i2").tobytes()
        found[profile.label] = hashlib.sha256(content).hexdigest()[:16]
    assert found == {
        "clean": "8e03d15fafd4444d",
        "white-10dB": "aa0c40e39569aba7",
        "pink-10dB": "d60557006daaf0ac",
        "babble-10dB": "267f9c20c7f591d1",
    }


@pytest.mark.slow
def test_another_process_with_another_hash_seed_gives_the_same_bytes(english: Corpus) -> None:
    program = (
        "import sys; from corpora import *; c = open_corpus('voiceprobe-en');"
        "r = render(c, c.utterances[1], Profile('babble', 5.0), 24_000, 9); sys.stdout.buffer.write(r.pcm.tobytes())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=180)
    here = render(english, english.utterances[1], Profile("babble", 5.0), 24_000, 9)
    assert other.stdout == here.pcm.tobytes()


@pytest.mark.parametrize(
    ("noise", "snr_db", "expected"),
    [
        (
            "violet",
            10.0,
            "The noise 'violet' is unknown; use one of white, pink, brown, babble, hum, hum-60, music, or",
        ),
        ("white", None, "The noise white requires an SNR in dB"),
        (None, 10.0, "An SNR requires a noise; use one of white, pink, brown, babble, hum, hum-60, music."),
        ("white", math.nan, "An SNR of nan dB cannot be rendered"),
        ("white", math.inf, "cannot be rendered"),
        ("white", 51.0, "An SNR of 51 dB cannot be rendered; use -5 to 50 dB."),
        ("white", -6.0, "cannot be rendered"),
    ],
)
def test_an_invalid_profile_is_an_error(noise: str | None, snr_db: float | None, expected: str) -> None:
    with pytest.raises(CorpusError) as caught:
        Profile(noise, snr_db)
    assert expected in str(caught.value)


def test_labels() -> None:
    assert [Profile().label, Profile("babble", 10.0).label, Profile("pink", -2.5).label] == [
        "clean",
        "babble-10dB",
        "pink--2.5dB",
    ]


@pytest.mark.parametrize("rate_hz", [0, -1, 7_999, 1_000_000])
def test_an_unsupported_rate_is_an_error(english: Corpus, rate_hz: int) -> None:
    with pytest.raises(CorpusError, match="cannot be rendered"):
        render(english, english.utterances[0], Profile(), rate_hz, 1)
    with pytest.raises(CorpusError, match="cannot be rendered"):
        background(english, Profile(), rate_hz, 1.0, 1)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 601.0, math.nan])
def test_an_invalid_background_duration_is_an_error(english: Corpus, seconds: float) -> None:
    with pytest.raises(CorpusError, match="cannot be rendered"):
        background(english, Profile("white", 10.0), 16_000, seconds, 1)


def test_babble_requires_other_utterances(workshop: Any) -> None:
    workshop.add("alone")
    corpus = open_corpus(workshop.save())
    with pytest.raises(CorpusError, match="Babble is made from other utterances"):
        render(corpus, corpus.utterances[0], Profile("babble", 10.0), 16_000, 1)
    assert background(corpus, Profile("babble", 10.0), 16_000, 1.0, 1).any()


def test_babble_does_not_contain_the_utterance_itself(workshop: Any) -> None:
    for seed, name in enumerate("abc"):
        workshop.add(name, seed=seed)
    corpus = open_corpus(workshop.save())
    alone = render(corpus, corpus.utterances[0], Profile(), 16_000, 1).pcm.astype(float)
    noisy = render(corpus, corpus.utterances[0], Profile("babble", 0.0), 16_000, 1).pcm
    added = noisy - alone
    spectrum = np.fft.rfft(alone, 2**17) * np.conj(np.fft.rfft(added, 2**17))
    correlation = np.abs(np.fft.irfft(spectrum)).max() / (np.linalg.norm(alone) * np.linalg.norm(added))
    assert correlation < 0.1
