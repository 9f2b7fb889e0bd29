"""Tests of levels and SNR with signals of known levels."""

import numpy as np
import pytest

from corpora.annotation.levels import _held_envelope, active_mask, active_speech_level_dbov, level_dbov, snr_db
from corpora.manifest.errors import CorpusError

RATE_HZ = 16_000


def tone(seconds: float, amplitude: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return amplitude * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE_HZ)) / RATE_HZ)


def test_a_full_scale_sine_is_three_decibels_below_overload() -> None:
    assert level_dbov(tone(1.0, 1.0)) == pytest.approx(-3.01, abs=0.01)
    assert level_dbov(np.ones(10)) == 0.0


def test_silence_has_no_level() -> None:
    assert level_dbov(np.zeros(100)) is None
    assert level_dbov(np.zeros(0)) is None


def test_short_pauses_count_as_speech_but_long_ones_do_not() -> None:
    silence = np.zeros(RATE_HZ)
    with_long = np.concatenate((tone(1.0, 0.1), silence, tone(1.0, 0.1)))
    with_short = np.concatenate((tone(1.0, 0.1), silence[:1_600], tone(1.0, 0.1)))
    loud = level_dbov(tone(1.0, 0.1))
    assert loud is not None
    level = active_speech_level_dbov(with_long, RATE_HZ, 0, len(with_long) - 1)
    # The hangover keeps up to 0.3 s of each pause: 2 s of tone in at most 2.6 s are 1.1 dB less.
    assert loud - 1.2 < level < loud
    assert level > level_dbov(with_long)  # type: ignore[operator]  # known to be a number
    held = active_mask(with_short, RATE_HZ, 0, len(with_short) - 1)
    assert held[1_000:].all()


def test_sound_outside_the_bounds_is_not_speech() -> None:
    samples = np.concatenate((tone(0.5, 0.9), tone(1.0, 0.1), tone(0.5, 0.9)))
    mask = active_mask(samples, RATE_HZ, 8_000, 23_999)
    assert not mask[:8_000].any()
    assert not mask[24_000:].any()
    assert active_speech_level_dbov(samples, RATE_HZ, 8_000, 23_999) == pytest.approx(-23.0, abs=0.1)


def test_silence_between_the_bounds_is_an_error() -> None:
    with pytest.raises(CorpusError, match="silent between"):
        active_mask(np.zeros(1_000), RATE_HZ, 0, 999)


def test_snr_is_measured_over_the_active_part_only() -> None:
    speech = np.concatenate((tone(1.0, 0.1), np.zeros(RATE_HZ)))
    noise = np.concatenate((tone(1.0, 0.01)[::-1], tone(1.0, 0.5)))
    active = np.arange(len(speech)) < RATE_HZ
    assert snr_db(speech, speech + noise, active) == pytest.approx(20.0, abs=1e-6)
    assert snr_db(speech, speech, active) is None


def test_the_envelope_is_the_maximum_of_recent_means() -> None:
    speech = np.random.default_rng(3).standard_normal(1_000)
    rate_hz = 500  # windows of 30 samples, held for 100
    magnitude = np.concatenate((np.zeros(29), np.abs(speech)))
    means = np.array([magnitude[end - 29 : end + 1].mean() for end in range(29, 1_029)])
    held = np.array([means[max(0, end - 99) : end + 1].max() for end in range(1_000)])
    np.testing.assert_allclose(_held_envelope(speech, rate_hz), held, atol=1e-12)
    for count in (1, 29, 99, 100, 101):
        np.testing.assert_allclose(_held_envelope(speech[:count], rate_hz), held[:count], atol=1e-12)
