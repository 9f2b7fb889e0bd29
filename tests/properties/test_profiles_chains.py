"""Properties of any chain of stages: exact bounds, the requested SNR, and the same bytes for the same seed."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import signal

from corpora.manifest.library import Corpus, open_corpus
from corpora.manifest.manifest import Edges, Utterance, write_manifest
from corpora.rendering.profiles.impairments import Jitter, PacketLoss
from corpora.rendering.profiles.profile import CHANNEL_WORDS, Profile
from corpora.rendering.render import render

pytestmark = pytest.mark.slow

RATE_HZ = 16_000


def band_noise(seconds: float, seed: int) -> NDArray[np.float64]:
    """Noise of the telephone band between silence, for exact measurements of a lag after any codec."""
    taps = signal.firwin(129, (500, 3_000), pass_zero=False, fs=RATE_HZ)
    sound = np.random.default_rng(seed).standard_normal(round(seconds * RATE_HZ))
    return np.pad(signal.oaconvolve(sound, taps)[64:-64] * 0.2, 1_600)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("made")
    utterances: list[Utterance] = []
    for number in range(3):
        sound = band_noise(0.7 + 0.1 * number, number)
        file = folder / f"clip-{number}.flac"
        soundfile.write(file, sound, RATE_HZ)
        words = dict.fromkeys(("text", "speaker", "language", "domain", "license", "source"), "x")
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        bounds = (1_600, len(sound) - 1_601)
        utterances.append(Utterance(f"clip-{number}", file.name, *words.values(), sha256, RATE_HZ, len(sound), *bounds))
    write_manifest(folder, "made", "generated", utterances, edges="exact")
    return open_corpus(folder)


codecs = st.sampled_from([*CHANNEL_WORDS, "band", "g711u", "g711a", "g722", "opus:16", "opus:32"])
profiles = st.builds(
    lambda noise, snr, **others: Profile(noise, None if noise is None else snr, **others),
    noise=st.sampled_from([None, "white", "pink", "brown", "babble", "hum", "music"]),
    snr=st.floats(3, 40),
    speed=st.sampled_from([1.0, 0.8, 1.13, 1.25]),
    pitch=st.sampled_from([1.0, 0.85, 1.07, 1.25]),
    room=st.sampled_from([None, "0.2s", "0.5s"]),
    level_dbov=st.sampled_from([-32.0, -26.0]),
    channel=st.lists(codecs, max_size=2).map(tuple),
    loss=st.sampled_from([None, PacketLoss(0.03), PacketLoss(0.05, 2.0)]),
    jitter=st.sampled_from([None, Jitter(10.0, 40.0)]),
    gain_db=st.sampled_from([0.0, -6.0, 3.0]),
    clip_dbov=st.sampled_from([None, -12.0]),
    dc=st.sampled_from([0.0, 0.02]),
)


def lag_samples(out: NDArray[Any], reference: NDArray[Any]) -> float:
    out, reference = out - np.mean(out), reference.astype(np.float64)
    correlation = signal.correlate(out, reference, "full", method="fft")
    peak = int(np.argmax(correlation))
    left, top, right = correlation[peak - 1 : peak + 2]
    return peak - (len(reference) - 1) + (left - right) / (2 * (left - 2 * top + right))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    profile=profiles,
    rate_hz=st.sampled_from([8_000, 16_000, 24_000]),
    which=st.integers(0, 2),
    seed=st.integers(0),
    edges=st.sampled_from(["exact", "recorded"]),
)
def test_the_bounds_are_exact_through_any_chain(
    corpus: Corpus, profile: Profile, rate_hz: int, which: int, seed: int, edges: Edges
) -> None:
    corpus = replace(corpus, edges=edges)
    utterance = corpus.utterances[which]
    rendered = render(corpus, utterance, profile, rate_hz, seed)
    # With the same speed and pitch but no other stage, only the bounds could differ.
    alone = render(corpus, utterance, Profile(speed=profile.speed, pitch=profile.pitch), rate_hz, seed)
    assert (rendered.speech_start_sample, rendered.speech_end_sample) == (
        alone.speech_start_sample,
        alone.speech_end_sample,
    )
    assert abs(lag_samples(rendered.pcm, alone.pcm)) <= 1.0
    length = rendered.speech_end_sample - rendered.speech_start_sample + 1
    # The sound is as loud as its end is annotated up to its last sample, but for the slopes of its filter.
    slope_s = 0.004 if edges == "exact" else 0.0
    expected = utterance.speech_s * rate_hz / profile.speed
    assert expected - slope_s * rate_hz - 1.0 <= length <= expected + 1.0
    assert rendered.end_is_exact == (edges == "exact")
    assert (rendered.speech_end_uncertainty_ns == 0) == (edges == "exact")
    if profile.snr_db is not None:
        assert rendered.obtained.snr_db == pytest.approx(profile.snr_db, abs=0.1)
    assert rendered.obtained.level_dbov == pytest.approx(profile.level_dbov, abs=0.1)
    assert (rendered.obtained.loss_ratio is None) == (profile.loss is None)
    again = render(corpus, utterance, replace(profile), rate_hz, seed)
    assert np.array_equal(rendered.pcm, again.pcm)
    assert rendered.obtained == again.obtained
