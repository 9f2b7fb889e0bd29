"""Resampling keeps pitch, level and length; a stream gives the same result as the whole clip."""

import numpy as np
import pytest

from loadtest.audio.resample import StreamResampler, resample

RATES = [(16_000, 24_000), (22_050, 24_000), (24_000, 8_000), (48_000, 16_000)]


def tone(rate_hz: int, hz: float = 1000.0) -> np.ndarray:
    return (10_000 * np.sin(2 * np.pi * hz * np.arange(rate_hz) / rate_hz)).astype(np.int16)


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_a_second_stays_a_second_of_the_same_tone(from_hz: int, to_hz: int) -> None:
    out = resample(tone(from_hz), from_hz, to_hz)
    assert len(out) == to_hz
    middle = slice(to_hz // 10, -to_hz // 10)
    assert np.abs(out[middle].astype(int) - tone(to_hz)[middle]).max() <= 30


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_a_stream_gives_the_same_as_the_clip(from_hz: int, to_hz: int) -> None:
    clip = np.random.default_rng(1).normal(0, 3000, from_hz).astype(np.int16)
    stream = StreamResampler(from_hz, to_hz)
    pieces = [stream.feed(piece) for piece in np.array_split(clip, 37)]
    out = np.concatenate([*pieces, stream.flush()])
    assert np.array_equal(out, resample(clip, from_hz, to_hz))


def test_the_same_rate_changes_nothing() -> None:
    clip = tone(8000)
    stream = StreamResampler(8000, 8000)
    assert resample(clip, 8000, 8000) is clip
    assert stream.feed(clip) is clip
    assert len(stream.flush()) == 0


def test_a_rate_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot resample from 0 Hz"):
        resample(tone(8000), 0, 8000)
    with pytest.raises(ValueError, match="to -1 Hz"):
        StreamResampler(8000, -1)
