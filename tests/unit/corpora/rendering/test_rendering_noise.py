"""Tests of noise: its spectrum, its power, and the same samples on every machine."""

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import welch

from corpora.manifest.errors import CorpusError
from corpora.rendering.noise import babble, derive_seed, pink, white


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


def test_white_noise_has_unit_power_a_flat_spectrum_and_a_normal_distribution() -> None:
    noise = white(480_000, 1)
    assert np.mean(noise) == pytest.approx(0.0, abs=0.01)
    assert np.mean(noise**2) == pytest.approx(1.0, rel=0.01)
    assert np.mean(np.abs(noise) < 1.0) == pytest.approx(0.683, abs=0.005)
    _, levels = band_levels_db(noise, 24_000, 100.0)
    assert max(levels) - min(levels) < 1.5


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
