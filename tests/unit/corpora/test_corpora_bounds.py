"""Speech bounds by energy, against bursts whose bounds are known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from corpora.bounds import find_speech_bounds
from corpora.errors import CorpusError


def over_floor(
    speech_over_floor_db: float, rate_hz: int, seed: int, start_s: float = 0.3137, end_s: float = 1.2411
) -> NDArray[np.float64]:
    """A harmonic sound with pauses and soft edges, over a floor of noise."""
    rng = np.random.default_rng(seed)
    total = round(1.6 * rate_hz)
    start, end = round(start_s * rate_hz), round(end_s * rate_hz)
    time_s = np.arange(end - start) / rate_hz
    voice = sum(np.sin(2 * np.pi * 140 * k * time_s) / k for k in range(1, 20))
    envelope = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * time_s)
    edge = np.minimum(1.0, np.minimum(time_s, time_s[::-1]) / 0.004)
    samples = np.zeros(total)
    samples[start:end] = 0.1 * voice * envelope * edge
    floor = rng.standard_normal(total)
    # Compared after the same pre-emphasis, as the method hears it.
    emphasise = lambda x: np.append(x[:1], x[1:] - 0.97 * x[:-1])  # noqa: E731
    ratio = np.sqrt(np.mean(emphasise(samples[start:end]) ** 2) / np.mean(emphasise(floor) ** 2))
    return samples + floor * ratio * 10 ** (-speech_over_floor_db / 20)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 44_100, 48_000])
@pytest.mark.parametrize(("speech_over_floor_db", "within_s"), [(60.0, 0.005), (40.0, 0.010)])
def test_bounds_are_as_near_as_promised(rate_hz: int, speech_over_floor_db: float, within_s: float) -> None:
    for seed in range(5):
        found = find_speech_bounds(over_floor(speech_over_floor_db, rate_hz, seed), rate_hz)
        assert found.start_sample / rate_hz == pytest.approx(0.3137, abs=within_s)
        assert found.end_sample / rate_hz == pytest.approx(1.2411, abs=within_s)


def test_the_confidence_is_speech_over_floor() -> None:
    sure = find_speech_bounds(over_floor(60.0, 16_000, 1), 16_000)
    unsure = find_speech_bounds(over_floor(35.0, 16_000, 1), 16_000)
    assert sure.confidence_db == pytest.approx(60.0, abs=2.0)
    assert unsure.confidence_db == pytest.approx(35.0, abs=2.0)


def test_digital_silence_around_gives_exact_bounds() -> None:
    samples = np.zeros(16_000)
    samples[3_200:9_600] = 0.1 * np.random.default_rng(1).standard_normal(6_400)
    found = find_speech_bounds(samples, 16_000)
    assert (found.start_sample, found.end_sample) == (3_200, 9_599)


def test_a_click_is_not_speech() -> None:
    samples = np.zeros(16_000)
    samples[3_200:9_600] = 0.1 * np.random.default_rng(1).standard_normal(6_400)
    samples[1_000:1_064] = 0.5
    samples[14_000:14_032] = 0.5
    found = find_speech_bounds(samples, 16_000)
    assert (found.start_sample, found.end_sample) == (3_200, 9_599)


@pytest.mark.parametrize(("leftover_s", "pause_s", "counted"), [(0.1, 0.1, False), (0.1, 0.03, True), (0.3, 0.1, True)])
def test_the_cut_off_end_of_something_else_is_left_out(leftover_s: float, pause_s: float, counted: bool) -> None:
    rate_hz = 16_000
    sound = 0.1 * np.random.default_rng(1).standard_normal(2 * rate_hz)
    start = round((leftover_s + pause_s) * rate_hz)
    quiet = np.zeros(rate_hz // 2)
    samples = np.concatenate((sound[: start + rate_hz], quiet))
    samples[round(leftover_s * rate_hz) : start] = 0.0
    forward = find_speech_bounds(samples, rate_hz)
    backward = find_speech_bounds(samples[::-1].copy(), rate_hz)
    expected = 0 if counted else start
    assert forward.start_sample == pytest.approx(expected, abs=32)
    assert backward.end_sample == pytest.approx(len(samples) - 1 - expected, abs=32)


@pytest.mark.parametrize(
    "samples",
    [np.zeros(16_000), np.zeros(100), np.zeros(0), 1e-3 * np.random.default_rng(1).standard_normal(16_000)],
    ids=["silence", "too short", "nothing", "steady noise"],
)
def test_no_speech_is_said_in_one_sentence(samples: NDArray[np.float64]) -> None:
    with pytest.raises(CorpusError, match="The clip"):
        find_speech_bounds(samples, 16_000)
