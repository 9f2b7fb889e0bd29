"""Tests of speech bounds with synthetic sounds; test_annotation_labels compares them with hand labels."""

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from corpora.annotation.boundary_uncertainty import LARGE_MS, SURE_MS, stated_ms
from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.errors import CorpusError


def speech_over_floor(
    speech_over_floor_db: float, rate_hz: int, seed: int, start_s: float = 0.3137, end_s: float = 1.2411
) -> NDArray[np.float64]:
    """A harmonic sound with pauses and soft edges, over a noise floor."""
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
    ratio = np.sqrt(np.mean(samples[start:end] ** 2) / np.mean(floor**2))
    return samples + floor * ratio * 10 ** (-speech_over_floor_db / 20)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 44_100, 48_000])
@pytest.mark.parametrize(("speech_over_floor_db", "within_s"), [(60.0, 0.005), (40.0, 0.010)])
def test_bounds_are_within_the_stated_tolerance(rate_hz: int, speech_over_floor_db: float, within_s: float) -> None:
    for seed in range(5):
        bounds = find_speech_bounds(speech_over_floor(speech_over_floor_db, rate_hz, seed), rate_hz)
        assert bounds.start_sample / rate_hz == pytest.approx(0.3137, abs=within_s)
        assert bounds.end_sample / rate_hz == pytest.approx(1.2411, abs=within_s)


def test_the_confidence_is_the_level_of_speech_over_the_floor() -> None:
    sure = find_speech_bounds(speech_over_floor(60.0, 16_000, 1), 16_000)
    unsure = find_speech_bounds(speech_over_floor(35.0, 16_000, 1), 16_000)
    assert sure.confidence_db == pytest.approx(60.0, abs=2.0)
    assert unsure.confidence_db == pytest.approx(35.0, abs=2.0)


def test_bounds_next_to_digital_silence_are_exact() -> None:
    samples = np.zeros(16_000)
    samples[3_200:9_600] = 0.1 * np.random.default_rng(1).standard_normal(6_400)
    bounds = find_speech_bounds(samples, 16_000)
    assert (bounds.start_sample, bounds.end_sample) == (3_200, 9_599)


def test_a_click_is_not_speech() -> None:
    samples = np.zeros(16_000)
    samples[3_200:9_600] = 0.1 * np.random.default_rng(1).standard_normal(6_400)
    samples[1_000:1_064] = 0.5
    samples[14_000:14_032] = 0.5
    bounds = find_speech_bounds(samples, 16_000)
    # The speech is not the outermost sound of the file, so its edges are only as exact as the narrow window.
    assert bounds.start_sample == pytest.approx(3_200, abs=16)
    assert bounds.end_sample == pytest.approx(9_599, abs=16)


@pytest.mark.parametrize(("leftover_s", "pause_s", "counted"), [(0.1, 0.1, False), (0.1, 0.03, True), (0.3, 0.1, True)])
def test_a_leftover_of_a_neighboring_recording_does_not_count(leftover_s: float, pause_s: float, counted: bool) -> None:
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
def test_a_clip_without_speech_is_an_error(samples: NDArray[np.float64]) -> None:
    with pytest.raises(CorpusError, match="The clip"):
        find_speech_bounds(samples, 16_000)


RATE_HZ = 16_000


def noise(seconds: float, level_db: float, seed: int = 5) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(round(seconds * RATE_HZ)) * 10 ** (level_db / 20)


def tone(seconds: float, level_db: float, hertz: float = 140.0) -> NDArray[np.float64]:
    """A voice: the harmonics of a pitch up to 3 kHz, which rise and fall within 10 ms, as fast as a throat can."""
    time_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    voice = sum(np.sin(2 * np.pi * hertz * k * time_s) / k for k in range(1, round(3_000 / hertz)))
    ramp = np.minimum(1.0, np.minimum(time_s, time_s[::-1]) / 0.010)
    voice = voice * np.square(np.sin(ramp * np.pi / 2))
    return np.asarray(voice / np.sqrt(np.mean(np.square(voice))) * 10 ** (level_db / 20))


def murmur(seconds: float, level_db: float, hertz: float = 140.0) -> NDArray[np.float64]:
    time_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return np.sin(2 * np.pi * hertz * time_s) * 10 ** (level_db / 20)


def voice_then(*after: NDArray[np.float64], floor_db: float = -85.0) -> NDArray[np.float64]:
    """A voice at -20 dBFS from 300 to 800 ms, and the sounds after it, on a soft noise floor of 2 s."""
    line = noise(2.0, floor_db, seed=11)
    at = round(0.3 * RATE_HZ)
    for sound in (tone(0.5, -20.0), *after):
        line[at : at + len(sound)] += sound
        at += len(sound)
    return line


def silence(seconds: float) -> NDArray[np.float64]:
    return np.zeros(round(seconds * RATE_HZ))


def falling(sound: NDArray[np.float64], by_db: float) -> NDArray[np.float64]:
    return sound * np.logspace(0, -by_db / 20, len(sound))


@pytest.mark.parametrize(
    ("after", "end_s"),
    [
        ((), 0.8),
        ((murmur(0.12, -40.0),), 0.92),
        ((silence(0.09), falling(noise(0.05, -38.0), 20.0)), 0.94),
        ((silence(0.006), noise(0.10, -60.0)), 0.906),
        ((silence(0.09), noise(0.15, -55.0)), 0.8),
        ((silence(0.04), noise(0.15, -55.0)), 0.8),
        ((silence(0.05), noise(0.0002, -36.0)), 0.8),
        ((murmur(0.3, -35.0, hertz=30.0),), 0.8),
        ((silence(0.4), noise(0.05, -47.0)), 0.8),
        ((murmur(0.3, -75.0),), 0.8),
    ],
    ids=[
        "vowel", "final nasal", "stop released after a closure", "weak final fricative", "breath after a pause",
        "breath after a dip", "click", "thump below 70 Hz", "too late for a release", "too weak to hear",
    ],
)  # fmt: skip
def test_the_end_depends_on_the_last_sound(after: tuple[NDArray[np.float64], ...], end_s: float) -> None:
    bounds = find_speech_bounds(voice_then(*after), RATE_HZ)
    assert (bounds.end_sample + 1) / RATE_HZ == pytest.approx(end_s, abs=0.006)
    assert bounds.start_sample / RATE_HZ == pytest.approx(0.3, abs=0.003)


@pytest.mark.parametrize(
    "before",
    [noise(0.1, -60.0), noise(0.0002, -20.0), murmur(0.1, -35.0, hertz=30.0)],
    ids=["breath in", "click", "thump"],
)
def test_a_sound_before_the_speech_does_not_start_it(before: NDArray[np.float64]) -> None:
    line = voice_then()
    at = round(0.2 * RATE_HZ) - len(before)
    line[at : at + len(before)] += before
    assert find_speech_bounds(line, RATE_HZ).start_sample / RATE_HZ == pytest.approx(0.3, abs=0.005)


@pytest.mark.parametrize(
    "after",
    [
        (silence(0.08), noise(0.08, -50.0)),
        (falling(noise(0.3, -40.0), 50.0),),
        (silence(0.09), noise(0.0002, -20.0)),
        (silence(0.05), noise(0.03, -58.0)),
        (falling(noise(0.15, -22.0), 60.0),),
    ],
    ids=[
        "strong breath or weak release", "a long fade", "strong click or unaspirated release", "soft release or breath",
        "a shallow fade",
    ],
)  # fmt: skip
def test_an_ambiguous_end_is_not_sure(after: tuple[NDArray[np.float64], ...]) -> None:
    bounds = find_speech_bounds(voice_then(*after), RATE_HZ)
    assert stated_ms(bounds.end_uncertainty_s) > LARGE_MS
    assert stated_ms(bounds.start_uncertainty_s) <= SURE_MS


def pulses(seconds: float, level_db: float, hertz: float = 110.0) -> NDArray[np.float64]:
    """A vowel: glottal pulses that ring at 700, 1,200 and 2,500 Hz for some milliseconds each."""
    time_s = np.arange(round(0.012 * RATE_HZ)) / RATE_HZ
    ring = sum(np.exp(-time_s * 350) * np.sin(2 * np.pi * formant * time_s) for formant in (700, 1_200, 2_500))
    impulses = np.zeros(round(seconds * RATE_HZ))
    impulses[: len(impulses) - len(time_s) : round(RATE_HZ / hertz)] = 1.0
    voice = np.convolve(impulses, ring)[: len(impulses)]
    return np.asarray(voice / np.sqrt(np.mean(np.square(voice))) * 10 ** (level_db / 20))


def vowel_then(after: NDArray[np.float64]) -> NDArray[np.float64]:
    """A vowel at -20 dBFS that ends at 800 ms, and the sound after it, on a soft noise floor of 2 s."""
    line = noise(2.0, -85.0, seed=11)
    sound = np.concatenate((pulses(0.5, -20.0), after))
    line[round(0.3 * RATE_HZ) :][: len(sound)] += sound
    return line


def test_breath_directly_after_a_vowel_is_disputed() -> None:
    bounds = find_speech_bounds(vowel_then(noise(0.06, -55.0)), RATE_HZ)
    assert (bounds.end_sample + 1) / RATE_HZ - bounds.end_uncertainty_s < 0.8 < (bounds.end_sample + 1) / RATE_HZ
    assert stated_ms(bounds.end_uncertainty_s) > LARGE_MS


def test_the_end_of_a_vowel_before_silence_is_sure() -> None:
    bounds = find_speech_bounds(vowel_then(silence(0.1)), RATE_HZ)
    assert (bounds.end_sample + 1) / RATE_HZ == pytest.approx(0.8, abs=0.010)
    assert stated_ms(bounds.end_uncertainty_s) <= SURE_MS


@pytest.mark.parametrize(
    ("after", "counted_s"),
    [(murmur(0.06, -55.0), 0.0), (murmur(0.03, -45.0), 0.03), (murmur(0.08, -45.0), 0.08)],
    ids=["soft decay", "short murmur", "nasal"],
)
def test_sound_without_formants_counts_if_loud_and_sure_if_long(after: NDArray[np.float64], counted_s: float) -> None:
    bounds = find_speech_bounds(vowel_then(after), RATE_HZ)
    assert (bounds.end_sample + 1) / RATE_HZ == pytest.approx(0.8 + counted_s, abs=0.010)
    assert (stated_ms(bounds.end_uncertainty_s) <= SURE_MS) == (counted_s >= 0.04)


def test_an_end_that_decays_fast_is_sure() -> None:
    bounds = find_speech_bounds(voice_then(falling(noise(0.05, -22.0), 60.0)), RATE_HZ)
    assert stated_ms(bounds.end_uncertainty_s) <= SURE_MS


def test_hum_or_echo_from_first_sample_is_no_sure_start() -> None:
    line = voice_then()[round(0.1 * RATE_HZ) :]
    line[: round(0.2 * RATE_HZ)] += noise(0.2, -58.0)
    bounds = find_speech_bounds(line, RATE_HZ)
    assert bounds.start_sample < 0.01 * RATE_HZ
    assert bounds.start_uncertainty_s > 0.2


def test_the_uncertainty_covers_the_distance_to_a_disputed_sound() -> None:
    sure = find_speech_bounds(voice_then(silence(0.3), noise(0.0002, -20.0)), RATE_HZ)
    assert stated_ms(sure.end_uncertainty_s) <= SURE_MS
    disputed = find_speech_bounds(voice_then(silence(0.08), noise(0.08, -50.0)), RATE_HZ)
    assert disputed.end_uncertainty_s >= 0.15


@pytest.mark.parametrize("before_s", [0.0, 0.1, 1.7])
def test_digital_silence_around_a_clip_only_shifts_the_bounds(before_s: float) -> None:
    line = voice_then(murmur(0.12, -40.0))
    bounds = find_speech_bounds(line, RATE_HZ)
    padded = find_speech_bounds(np.concatenate((silence(before_s), line, silence(0.9))), RATE_HZ)
    shift = round(before_s * RATE_HZ)
    assert padded.start_sample - shift == pytest.approx(bounds.start_sample, abs=16)
    assert padded.end_sample - shift == pytest.approx(bounds.end_sample, abs=16)
    assert padded.end_uncertainty_s == pytest.approx(bounds.end_uncertainty_s, abs=0.003)


@pytest.mark.parametrize("hertz", [8_000, 22_050, 48_000])
def test_the_sample_rate_does_not_change_the_bounds(hertz: int) -> None:
    line = voice_then(silence(0.09), falling(noise(0.05, -32.0), 20.0))
    other = np.asarray(soxr.resample(line, RATE_HZ, hertz, quality="VHQ"), dtype=np.float64)
    bounds, again = find_speech_bounds(line, RATE_HZ), find_speech_bounds(other, hertz)
    assert again.start_sample / hertz == pytest.approx(bounds.start_sample / RATE_HZ, abs=0.002)
    assert again.end_sample / hertz == pytest.approx(bounds.end_sample / RATE_HZ, abs=0.004)
