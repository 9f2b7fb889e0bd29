"""Audible onset and end, tested with tones at known positions."""

import numpy as np
import pytest

from loadtest.audio.onset import DEFAULT_PRESET, PRESETS, AudibleSpan
from loadtest.audio.pcm import Pcm16


def tone(samples: int, amplitude: float = 8000.0, rate_hz: int = 24_000, hz: float = 440.0) -> Pcm16:
    return (amplitude * np.cos(2 * np.pi * hz * np.arange(samples) / rate_hz)).astype(np.int16)


def placed(start: int, sound: Pcm16, total: int = 24_000) -> Pcm16:
    stream = np.zeros(total, np.int16)
    stream[start : start + len(sound)] = sound
    return stream


def span_of(stream: Pcm16, preset: str = "rms-10ms", rate_hz: int = 24_000) -> tuple[int | None, int | None]:
    span = AudibleSpan(preset, rate_hz)
    span.feed(stream)
    return span.first_sample, span.last_sample


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("start", [0, 1, 777, 5003])
def test_a_tone_is_found_at_its_exact_samples(preset: str, rate_hz: int, start: int) -> None:
    length = rate_hz // 10 + 11
    stream = placed(start, tone(length, rate_hz=rate_hz), 2 * rate_hz)
    first, last = span_of(stream, preset, rate_hz)
    assert first is not None
    assert last is not None
    assert abs(first - start) <= 1
    assert abs(last - (start + length - 1)) <= 3  # a cosine may end in a zero crossing


def test_silence_and_quiet_noise_are_not_audible() -> None:
    noise = np.random.default_rng(1).normal(0, 150, 48_000).astype(np.int16)
    for stream in (np.zeros(48_000, np.int16), noise, np.zeros(0, np.int16)):
        for preset in PRESETS:
            assert span_of(stream, preset) == (None, None)


@pytest.mark.parametrize(("amplitude", "audible"), [(320, False), (335, True)])
def test_the_level_is_an_rms_of_one_hundredth_of_full_scale(amplitude: int, audible: bool) -> None:
    square = np.where(np.arange(24_000) % 20 < 10, amplitude, -amplitude).astype(np.int16)
    assert (span_of(square)[0] is not None) == audible


def test_the_most_negative_sample_is_loud() -> None:
    assert span_of(np.full(480, -32768, np.int16)) == (0, 479)


@pytest.mark.parametrize(("length_ms", "audible"), [(49, False), (50, True), (51, True)])
def test_sustained_requires_fifty_milliseconds(length_ms: int, audible: bool) -> None:
    square = np.where(np.arange(24 * length_ms) % 2, 4000, -4000).astype(np.int16)
    stream = placed(3000, square)
    expected = (3000, 3000 + len(square) - 1)
    assert span_of(stream, "sustained-50ms") == (expected if audible else (None, None))
    assert span_of(stream, "rms-10ms") == expected


def test_a_click_before_speech_is_not_sustained_and_the_later_segment_counts() -> None:
    stream = placed(1000, np.full(48, 20_000, np.int16)) + placed(12_000, tone(4800))
    assert span_of(stream, "rms-10ms")[0] == 1000
    assert span_of(stream, "sustained-50ms")[0] == 12_000


def test_the_last_sample_belongs_to_the_last_segment() -> None:
    square = np.full(2400, 5000, np.int16)
    stream = placed(2000, square) + placed(10_000, square)
    for preset in PRESETS:
        assert span_of(stream, preset) == (2000, 12_399)


def test_the_last_sample_before_a_position_is_that_of_the_preceding_sound() -> None:
    span = AudibleSpan(DEFAULT_PRESET, 24_000)
    span.feed(placed(2_400, tone(4_800)) + placed(16_800, tone(4_800)))
    for moment, last in ((2_000, None), (4_000, 3_999), (7_200, 7_199), (12_000, 7_199), (20_000, 19_999)):
        found = span.last_before(moment)
        assert (found is None) == (last is None), moment
        assert found is None or last is None or abs(found - last) <= 240, moment
    assert span.last_before(24_000) == pytest.approx(21_599, abs=240)


def test_a_short_sound_after_a_sustained_one_does_not_extend_it() -> None:
    stream = placed(2000, np.full(2400, 5000, np.int16)) + placed(10_000, np.full(240, 5000, np.int16))
    assert span_of(stream, "sustained-50ms") == (2000, 4399)
    assert span_of(stream, "rms-10ms") == (2000, 10_239)


def test_a_stream_that_ends_inside_a_hop_is_evaluated_to_its_last_sample() -> None:
    stream = np.full(24 * 60 + 13, 5000, np.int16)
    for preset in PRESETS:
        assert span_of(stream, preset) == (0, len(stream) - 1)
    assert span_of(np.full(7, 20_000, np.int16)) == (0, 6)


def test_one_very_long_feed_gives_the_same_result_as_many() -> None:
    long = np.full(2**21 + 5, 32767, np.int16)
    assert span_of(long) == (0, len(long) - 1)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown onset preset 'loud'; known: rms-10ms, sustained-50ms"):
        AudibleSpan("loud", 24_000)
    with pytest.raises(ValueError, match="not 800"):
        AudibleSpan(DEFAULT_PRESET, 800)
