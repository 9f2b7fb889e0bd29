"""PCM16 as int16 arrays, bytes and floats, and its frames."""

import numpy as np
import pytest

from loadtest.audio import pcm

EVERY_SAMPLE = np.arange(65_536, dtype=np.uint16).view(np.int16)


def test_float_round_trip_keeps_every_sample() -> None:
    assert np.array_equal(pcm.from_float(pcm.to_float(EVERY_SAMPLE)), EVERY_SAMPLE)


def test_full_scale_is_minus_one() -> None:
    assert pcm.to_float(np.array([-32768, 16384], np.int16)).tolist() == [-1.0, 0.5]


def test_values_beyond_full_scale_are_clipped_and_nan_is_silence() -> None:
    assert pcm.from_float(np.array([1.5, -1.5, np.nan, np.inf])).tolist() == [32767, -32768, 0, 32767]


def test_bytes_are_little_endian() -> None:
    assert pcm.to_bytes(np.array([1, -2], np.int16)) == b"\x01\x00\xfe\xff"
    assert pcm.to_bytes(np.array([1], ">i2")) == b"\x01\x00"
    assert pcm.from_bytes(b"\x01\x00\xfe\xff").tolist() == [1, -2]


def test_half_a_sample_is_rejected() -> None:
    with pytest.raises(ValueError, match="3 bytes end inside one"):
        pcm.from_bytes(b"abc")


def test_the_last_frame_is_padded_with_silence() -> None:
    cut = list(pcm.frames(np.arange(1, 8, dtype=np.int16), 3))
    assert [frame.tolist() for frame in cut] == [[1, 2, 3], [4, 5, 6], [7, 0, 0]]
    assert list(pcm.frames(np.zeros(0, np.int16), 3)) == []
    with pytest.raises(ValueError, match="at least one sample"):
        next(pcm.frames(np.zeros(2, np.int16), 0))
