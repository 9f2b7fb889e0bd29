"""Rendering: SNR, level, bounds, mixes and noise, and the same bytes on every machine."""

import hashlib
import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import welch

from corpora.annotation.levels import active_mask, active_speech_level_dbov
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus, open_corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.mix import deal, largest_remainder, mix_from_text
from corpora.rendering.noise import babble, derive_seed, pink, white
from corpora.rendering.render import SPEECH_LEVEL_DBOV, Profile, background, render


@pytest.fixture(scope="module")
def english() -> Corpus:
    return open_corpus("voiceprobe-en")


def dbov(pcm: Any) -> float:
    return 10 * math.log10(np.mean((pcm / 32_768.0) ** 2))


@pytest.mark.parametrize("noise", ["white", "pink", "brown", "babble", "hum", "hum-60", "music"])
def test_the_snr_is_the_requested_one(english: Corpus, noise: str) -> None:
    for utterance, snr_db in itertools.product(english.utterances[::32], (-5.0, 0.0, 10.0, 30.0, 50.0)):
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


def test_white_noise_is_equally_loud_in_mix_and_background(english: Corpus) -> None:
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


def test_noise_depends_on_seed_utterance_and_type_but_not_level(english: Corpus) -> None:
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
    digests = {}
    for noise in (None, "white", "pink", "babble"):
        profile = Profile(noise, None if noise is None else 10.0)
        rendered = render(english, english.utterances[3], profile, 24_000, 2026)
        line = background(english, profile, 24_000, 1.0, 2026)
        content = rendered.pcm.astype("<i2").tobytes() + line.astype("<i2").tobytes()
        digests[profile.label] = hashlib.sha256(content).hexdigest()[:16]
    assert digests == {
        "clean": "8e03d15fafd4444d",
        "white-10dB": "aa0c40e39569aba7",
        "pink-10dB": "d60557006daaf0ac",
        "babble-10dB": "267f9c20c7f591d1",
    }


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


SECONDS = {"short": 1.0, "medium": 4.0, "long": 8.0}


def utterance(name: str, length: str, domain: str = "home", speaker: str = "ann") -> Utterance:
    end = round(SECONDS[length] * 16_000) - 1
    return Utterance(
        name, f"{name}.flac", "x", speaker, "en", domain, "CC0-1.0", "x", "0" * 64, 16_000, end + 1, 0, end
    )


def all_kinds(per_kind: int = 3) -> list[Utterance]:
    return [
        utterance(f"{length}-{domain}-{speaker}-{number}", length, domain, speaker)
        for length in SECONDS
        for domain in ("home", "shop")
        for speaker in ("ann", "bob")
        for number in range(per_kind)
    ]


def counts(selected: Any, kind: str) -> Counter[str]:
    return Counter(str(getattr(chosen, kind)) for chosen in selected)


@pytest.mark.parametrize("count", [10, 37, 200])
def test_lengths_have_their_shares_by_largest_remainder(count: int) -> None:
    selected = deal(all_kinds(), mix_from_text("short=60, medium=30 long=10%"), count, 1)
    assert len(selected) == count
    assert dict(counts(selected, "length")) == largest_remainder({"short": 60, "medium": 30, "long": 10}, count)


def test_the_rest_goes_to_the_largest_remainders() -> None:
    assert largest_remainder({"a": 60, "b": 30, "c": 10}, 37) == {"a": 22, "b": 11, "c": 4}
    assert largest_remainder({"a": 1, "b": 1, "c": 1}, 10) == {"a": 4, "b": 3, "c": 3}
    assert largest_remainder({"a": 1.0, "b": 0.0}, 5) == {"a": 5, "b": 0}


def test_every_kind_has_its_shares_at_once() -> None:
    mix = mix_from_text("short=60 medium=30 long=10 domain.home=3 domain.shop=1 speaker.ann=1 speaker.bob=1")
    selected = deal(all_kinds(), mix, 80, 4)
    assert counts(selected, "length") == {"short": 48, "medium": 24, "long": 8}
    assert counts(selected, "domain") == {"home": 60, "shop": 20}
    assert counts(selected, "speaker") == {"ann": 40, "bob": 40}
    # The kinds are nearly independent: three of four short ones have the domain home.
    short_home = sum(chosen.length == "short" and chosen.domain == "home" for chosen in selected)
    assert abs(short_home - 36) <= 1


def test_dependent_kinds_have_their_shares_if_possible() -> None:
    # Bob only has utterances of the shop, so Ann gets fewer of them than with independent kinds.
    limited = [chosen for chosen in all_kinds() if chosen.speaker == "ann" or chosen.domain == "shop"]
    selected = deal(limited, mix_from_text("domain.home=1 domain.shop=1 speaker.ann=1 speaker.bob=1"), 40, 1)
    assert counts(selected, "domain") == {"home": 20, "shop": 20}
    assert counts(selected, "speaker") == {"ann": 20, "bob": 20}
    with pytest.raises(CorpusError, match="The mix is impossible: no 40 utterances of the corpus have these shares"):
        deal(limited, mix_from_text("domain.home=3 domain.shop=1 speaker.ann=1 speaker.bob=1"), 40, 1)


def test_an_utterance_repeats_only_after_all_others_of_its_cell() -> None:
    selected = deal(all_kinds(2), mix_from_text("short=1"), 20, 1)
    times = Counter(chosen.id for chosen in selected)
    assert len(times) == 8
    assert set(times.values()) <= {2, 3}


def test_the_selection_depends_on_the_seed_only() -> None:
    mix = mix_from_text("short=1 medium=1 speaker.ann=2 speaker.bob=1")
    assert deal(all_kinds(), mix, 21, 5) == deal(list(reversed(all_kinds())), mix, 21, 5)
    assert deal(all_kinds(), mix, 21, 5) != deal(all_kinds(), mix, 21, 6)


def test_without_weights_all_utterances_are_used_equally() -> None:
    selected = deal(all_kinds(1), mix_from_text(""), 24, 1)
    assert set(Counter(chosen.id for chosen in selected).values()) == {2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("long=1", "The mix contains length long, but no utterance has it; use any of short."),
        ("domain.bank=1 domain.home=1", "The mix contains domain bank, but no utterance has it; use any of home."),
        ("speaker.eve=2", "The mix contains speaker eve"),
    ],
)
def test_a_value_without_an_utterance_is_an_error(text: str, expected: str) -> None:
    with pytest.raises(CorpusError) as caught:
        deal([utterance("one", "short")], mix_from_text(text), 10, 1)
    assert expected in str(caught.value)


def test_all_faults_of_a_mix_are_reported_at_once() -> None:
    with pytest.raises(CorpusError) as caught:
        mix_from_text("shrt=1 medium=some long=-1 short=1 short=2 wealth.rich=1 alone domain.a=0")
    assert str(caught.value).splitlines() == [
        "The length 'shrt' is unknown; did you mean short?",
        "medium: 'some' is not a weight; give a number, 0 or more.",
        "long: '-1' is not a weight; give a number, 0 or more.",
        "short: has two weights; give one.",
        "'wealth.rich=1' is not part of a mix; write short=WEIGHT, medium=WEIGHT, long=WEIGHT, domain.NAME=WEIGHT or "
        "speaker.NAME=WEIGHT.",
        "'alone' is not part of a mix; write short=WEIGHT, medium=WEIGHT, long=WEIGHT, domain.NAME=WEIGHT or "
        "speaker.NAME=WEIGHT.",
        "All weights of domain are 0; give one above 0.",
    ]


def band_levels_db(samples: NDArray[np.float64], rate_hz: int, lowest_hz: float) -> tuple[list[float], list[float]]:
    """Power density in third-octave bands up to 0.4 of the rate."""
    frequencies, density = welch(samples, rate_hz, nperseg=16_384)
    centers = lowest_hz * 2.0 ** (np.arange(60) / 3)
    centers = centers[centers < 0.4 * rate_hz]
    levels = [
        10 * np.log10(density[(frequencies > center * 0.89) & (frequencies < center * 1.12)].mean())
        for center in centers
    ]
    return centers.tolist(), levels


def test_white_noise_has_unit_power_flat_spectrum_and_is_normal() -> None:
    noise = white(480_000, 1)
    assert np.mean(noise) == pytest.approx(0.0, abs=0.01)
    assert np.mean(noise**2) == pytest.approx(1.0, rel=0.01)
    assert np.mean(np.abs(noise) < 1.0) == pytest.approx(0.683, abs=0.005)
    _, levels = band_levels_db(noise, 24_000, 100.0)
    assert max(levels) - min(levels) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
def test_pink_noise_falls_by_three_decibels_per_octave(rate_hz: int) -> None:
    noise = pink(rate_hz * 60, rate_hz, 1)
    centers, levels = band_levels_db(noise, rate_hz, 60.0)
    expected = -10 * np.log10(np.array(centers))
    off = np.array(levels) - expected
    assert np.abs(off - np.median(off)).max() < 1.5
    assert np.mean(noise**2) == pytest.approx(1.0, rel=0.05)


def test_pink_noise_is_stationary() -> None:
    starts = [pink(4_800, 24_000, seed) for seed in range(60)]
    power = np.mean(np.square(starts), axis=0)
    assert power[:480].mean() == pytest.approx(power[-480:].mean(), rel=0.3)


def test_white_noise_depends_on_the_seed_only() -> None:
    assert np.array_equal(white(1_000, 7), white(1_000, 7))
    assert not np.array_equal(white(1_000, 7), white(1_000, 8))
    assert np.array_equal(white(2_000, 7)[:1_000], white(1_000, 7))


def test_white_noise_is_bit_exact() -> None:
    digest = hashlib.sha256(white(10_000, 2026).astype("<f8").tobytes()).hexdigest()
    assert digest == "e16ae8ec94b09ca8686fe19cf97da6bbe0e742efe3071add4e9f5c7a58ae7eaa"


def test_seeds_are_pinned() -> None:
    assert derive_seed("voiceprobe", 1) == 16218505153656428591
    assert derive_seed("a", "b") != derive_seed("ab")


def test_babble_has_any_length_and_uses_every_talker() -> None:
    talkers = [np.full(700, 1.0), np.full(300, 10.0)]
    assert np.array_equal(babble(talkers, 5_000, 1), np.full(5_000, 11.0))
    ramp = [np.arange(1_000.0)]
    assert babble(ramp, 10, 1)[0] != babble(ramp, 10, 2)[0]


def test_babble_without_talkers_is_an_error() -> None:
    with pytest.raises(CorpusError, match="other utterances"):
        babble([], 100, 1)
