"""Rendering with exact edges: the fade, and what follows it; tests/properties has any chain of stages after it."""

import hashlib
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from corpora.annotation.exact_end import find_exact_end
from corpora.manifest.library import Corpus, open_corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.cache import cache_entry_name
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import Rendered, render
from corpora.rendering.renderings import Renderings
from loadtest.conversation.prepared_clip import prepare_positions
from tests.unit.corpora.conftest import burst, encoded

FADE_MS = 5
RATES_HZ = (8_000, 16_000, 24_000, 44_100, 48_000)
PROFILES = {
    "speed": Profile(speed=1.2),
    "slow": Profile(speed=0.8),
    "pitch": Profile(pitch=0.9),
    "high": Profile(pitch=1.25, speed=0.9),
}


@pytest.fixture(scope="module")
def english() -> Corpus:
    return open_corpus("voiceprobe-en", check_clips=False)


@pytest.fixture(scope="module")
def utterance(english: Corpus) -> Utterance:
    """One with 60 ms of breath after its exact end."""
    return next(candidate for candidate in english.utterances if candidate.id == "home-garage")


def both(corpus: Corpus, utterance: Utterance, profile: Profile, rate_hz: int) -> tuple[Rendered, Rendered]:
    """The rendering with exact and with recorded edges."""
    exact, recorded = (replace(corpus, edges=edges) for edges in ("exact", "recorded"))
    return render(exact, utterance, profile, rate_hz), render(recorded, utterance, profile, rate_hz)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_the_clip_fades_out_over_5_ms_and_then_is_silent(english: Corpus, utterance: Utterance, rate_hz: int) -> None:
    exact, recorded = both(english, utterance, Profile(), rate_hz)
    assert len(exact.pcm) == len(recorded.pcm)
    end, fade = exact.speech_end_sample, round(rate_hz * FADE_MS / 1000)
    assert not exact.pcm[end + fade :].any()
    assert recorded.pcm[end + fade :].any()
    # The samples of the file, resampled by other code, tell the gain of each sample.
    clip, file_rate_hz = soundfile.read(english.path / utterance.path)
    original = soxr.resample(clip, file_rate_hz, rate_hz, quality="VHQ")
    spoken = slice(exact.speech_start_sample, end + 1)
    gain = float(np.dot(exact.pcm[spoken], original[spoken]) / np.dot(original[spoken], original[spoken]))
    factors = np.clip(1.0 - np.arange(-end, len(original) - end) / fade, 0.0, 1.0)
    assert np.abs(exact.pcm - gain * factors * original[: len(exact.pcm)]).max() < 1.0


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_the_end_keeps_its_time_at_every_rate(english: Corpus, rate_hz: int) -> None:
    for utterance in english.utterances[::9]:
        exact, recorded = both(english, utterance, Profile(), rate_hz)
        at = find_exact_end(english.read(utterance), utterance)
        assert at is not None
        assert exact.speech_end_sample / rate_hz == pytest.approx(at / utterance.sample_rate_hz, abs=0.51 / rate_hz)
        assert exact.speech_start_sample == recorded.speech_start_sample
        assert exact.speech_start_uncertainty_ns == recorded.speech_start_uncertainty_ns
        stated_ms = utterance.speech_end_uncertainty_ms
        assert stated_ms is not None
        assert (exact.speech_end_uncertainty_ns, recorded.speech_end_uncertainty_ns) == (0, round(stated_ms * 1e6))
        assert (exact.end_is_exact, recorded.end_is_exact) == (True, False)


@pytest.mark.parametrize("name", PROFILES)
def test_speed_and_pitch_end_in_silence(english: Corpus, utterance: Utterance, name: str) -> None:
    exact, recorded = both(english, utterance, PROFILES[name], 16_000)
    assert not exact.pcm[exact.speech_end_sample + 80 :].any()
    assert exact.pcm[exact.speech_end_sample - 800 : exact.speech_end_sample + 1].any()
    assert recorded.pcm[exact.speech_end_sample + 80 :].any()


def test_a_room_rings_after_the_end_and_noise_goes_on(english: Corpus, utterance: Utterance) -> None:
    plain = render(english, utterance, Profile(), 16_000)
    after = plain.speech_end_sample + 80
    ringing = render(english, utterance, Profile(room="0.4s"), 16_000).pcm[after:].astype(float)
    assert np.mean(ringing[:800] ** 2) > 100 * np.mean(ringing[4_000:4_800] ** 2) > 0
    noise = render(english, utterance, Profile("white", 10.0), 16_000).pcm.astype(float) - plain.pcm
    rms = np.sqrt(np.mean(noise[:after] ** 2))
    assert np.sqrt(np.mean(noise[after:] ** 2)) == pytest.approx(rms, rel=0.1)


def test_the_snr_is_over_the_active_speech_that_is_sent(english: Corpus, utterance: Utterance) -> None:
    plain = render(english, utterance, Profile(), 16_000)
    noisy = render(english, utterance, Profile("white", 10.0), 16_000)
    assert (
        noisy.obtained.level_dbov == pytest.approx(plain.obtained.level_dbov, abs=0.01) == pytest.approx(-26, abs=0.1)
    )
    silent = slice(plain.speech_end_sample + 80, None)
    assert not plain.pcm[silent].any()


def noisy_clip(workshop: Any, **changes: Any) -> Path:
    workshop.add("it", **changes)
    samples = burst()
    samples = np.clip(samples + 0.02 * np.random.default_rng(5).standard_normal(len(samples)), -0.99, 0.99)
    workshop.replace("it", encoded(samples))
    return workshop.save()


@pytest.mark.parametrize("profile", [Profile(), Profile(speed=1.2), Profile(room="0.4s"), Profile("pink", 20.0)])
@pytest.mark.parametrize("stated_ms", [40.0, None])
def test_recorded_end_stays_if_no_speech_is_certain(workshop: Any, profile: Profile, stated_ms: float | None) -> None:
    folder = noisy_clip(workshop, speech_end_uncertainty_ms=stated_ms)
    corpus = open_corpus(folder)
    exact, recorded = both(corpus, corpus.utterances[0], profile, 24_000)
    assert not exact.end_is_exact
    assert np.array_equal(exact.pcm, recorded.pcm)
    assert exact.speech_end_sample == recorded.speech_end_sample
    assert exact.speech_end_uncertainty_ns == recorded.speech_end_uncertainty_ns
    assert (exact.speech_end_uncertainty_ns is None) == (stated_ms is None)
    assert exact.obtained == recorded.obtained


def test_a_clip_that_is_all_speech_fades_out_within_it(workshop: Any) -> None:
    workshop.add("it", speech_end_sample=19_199, samples=19_200)
    workshop.replace("it", encoded(burst()[:19_200]))
    corpus = open_corpus(workshop.save())
    for rate_hz, pitch in itertools.product(RATES_HZ, (1.0, 0.8, 1.25)):
        rendered = render(corpus, corpus.utterances[0], Profile(pitch=pitch), rate_hz)
        assert rendered.end_is_exact
        assert rendered.pcm[-1] == 0
        assert rendered.speech_end_sample < len(rendered.pcm) - rate_hz * 0.0039


def test_the_length_class_is_that_of_the_annotation(english: Corpus) -> None:
    """So that the classes of a corpus stay the same whatever its edges are."""
    lengths = [replace(english, edges=edges).select("short") for edges in ("exact", "recorded")]
    assert lengths[0] == lengths[1]


def test_the_last_frame_is_that_of_the_exact_end(english: Corpus, utterance: Utterance) -> None:
    exact, recorded = both(english, utterance, Profile(), 24_000)
    assert prepare_positions(exact, 480)[1] == exact.speech_end_sample // 480
    assert prepare_positions(exact, 480)[1] < prepare_positions(recorded, 480)[1]


def test_the_bytes_are_pinned(english: Corpus) -> None:
    """Fails if another processor or library gives other bytes, because cohorts could then not be compared."""
    digests = {}
    for name in (None, "white", "babble"):
        profile = Profile(name, None if name is None else 10.0)
        pcm = render(english, english.utterances[3], profile, 24_000, 2026).pcm
        digests[profile.label] = hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest()[:16]
    assert digests == {
        "clean": "a91a97adebd95772",
        "white-10dB": "d149e44ff15cc9ae",
        "babble-10dB": "68ed84bc6b3ef48f",
    }


def test_the_cache_keeps_both_edges_apart(english: Corpus, utterance: Utterance, tmp_path: Path) -> None:
    exact, recorded = (replace(english, edges=edges) for edges in ("exact", "recorded"))
    names = {cache_entry_name(corpus, Profile(), 16_000, 1) for corpus in (exact, recorded)}
    assert len(names) == 2
    for corpus in (exact, recorded, exact):
        renderings = Renderings.open(corpus, Profile(), 16_000, 1, tmp_path)
        with renderings.cache_entry.writer() as into:
            renderings.make(utterance, into)
        again = Renderings.open(corpus, Profile(), 16_000, 1, tmp_path).get(utterance)
        direct = render(corpus, utterance, Profile(), 16_000, 1)
        assert again is not None
        assert np.array_equal(again.pcm, direct.pcm)
        assert (again.speech_end_sample, again.end_is_exact) == (direct.speech_end_sample, direct.end_is_exact)
        assert again.speech_end_uncertainty_ns == direct.speech_end_uncertainty_ns
        assert again.end_is_exact == (corpus.edges == "exact")


def test_babble_is_made_from_speech_as_it_is_sent(english: Corpus, utterance: Utterance) -> None:
    exact, recorded = both(english, utterance, Profile("babble", 5.0), 16_000)
    spoken = slice(exact.speech_start_sample, exact.speech_end_sample)
    assert not np.array_equal(exact.pcm[spoken], recorded.pcm[spoken])
