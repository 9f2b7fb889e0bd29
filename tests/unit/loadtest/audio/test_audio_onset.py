"""Audio: onset and end, PCM16, G.711, resampling, idle lines, and containers cut short at every byte."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from loadtest.audio import g711, pcm
from loadtest.audio.containers import container_of, may_become_container
from loadtest.audio.idle_line import is_audible
from loadtest.audio.onset import DEFAULT_PRESET, PRESETS, AudibleSpan
from loadtest.audio.pcm import Pcm16
from loadtest.audio.resample import StreamResampler, resample
from tests import g711_reference


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


def test_click_before_speech_is_not_sustained_and_speech_counts() -> None:
    stream = placed(1000, np.full(48, 20_000, np.int16)) + placed(12_000, tone(4800))
    assert span_of(stream, "rms-10ms")[0] == 1000
    assert span_of(stream, "sustained-50ms")[0] == 12_000


def test_the_last_sample_belongs_to_the_last_segment() -> None:
    square = np.full(2400, 5000, np.int16)
    stream = placed(2000, square) + placed(10_000, square)
    for preset in PRESETS:
        assert span_of(stream, preset) == (2000, 12_399)


def test_last_sample_before_position_is_that_of_preceding_sound() -> None:
    span = AudibleSpan(DEFAULT_PRESET, 24_000)
    span.feed(placed(2_400, tone(4_800)) + placed(16_800, tone(4_800)))
    for moment, last in ((2_000, None), (4_000, 3_999), (7_200, 7_199), (12_000, 7_199), (20_000, 19_999)):
        position = span.last_before(moment)
        assert (position is None) == (last is None), moment
        assert position is None or last is None or abs(position - last) <= 240, moment
    assert span.last_before(24_000) == pytest.approx(21_599, abs=240)


def test_a_short_sound_after_a_sustained_one_does_not_extend_it() -> None:
    stream = placed(2000, np.full(2400, 5000, np.int16)) + placed(10_000, np.full(240, 5000, np.int16))
    assert span_of(stream, "sustained-50ms") == (2000, 4399)
    assert span_of(stream, "rms-10ms") == (2000, 10_239)


def test_stream_that_ends_inside_hop_is_read_to_its_last_sample() -> None:
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


@pytest.mark.parametrize(
    ("samples", "audible"),
    [
        ((), False),
        ((0, 0, 0), False),
        ((32, -32, 1), False),  # 60 dB below full scale
        ((0, 0, 33), True),
        ((-33, 0, 0), True),
        ((-32768,), True),
    ],
)
def test_a_line_is_audible_beyond_what_decoders_make_of_silence(samples: tuple[int, ...], audible: bool) -> None:
    assert is_audible(struct.pack(f"<{len(samples)}h", *samples)) == audible


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


RATES = [(16_000, 24_000), (22_050, 24_000), (24_000, 8_000), (48_000, 16_000)]


def sine(rate_hz: int, hz: float = 1000.0) -> np.ndarray:
    return (10_000 * np.sin(2 * np.pi * hz * np.arange(rate_hz) / rate_hz)).astype(np.int16)


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_a_second_stays_a_second_of_the_same_tone(from_hz: int, to_hz: int) -> None:
    out = resample(sine(from_hz), from_hz, to_hz)
    assert len(out) == to_hz
    middle = slice(to_hz // 10, -to_hz // 10)
    assert np.abs(out[middle].astype(int) - sine(to_hz)[middle]).max() <= 30


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_a_stream_gives_the_same_as_the_clip(from_hz: int, to_hz: int) -> None:
    clip = np.random.default_rng(1).normal(0, 3000, from_hz).astype(np.int16)
    stream = StreamResampler(from_hz, to_hz)
    pieces = [stream.feed(piece) for piece in np.array_split(clip, 37)]
    out = np.concatenate([*pieces, stream.flush()])
    assert np.array_equal(out, resample(clip, from_hz, to_hz))


def test_the_same_rate_changes_nothing() -> None:
    clip = sine(8000)
    stream = StreamResampler(8000, 8000)
    assert resample(clip, 8000, 8000) is clip
    assert stream.feed(clip) is clip
    assert len(stream.flush()) == 0


def test_a_rate_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot resample from 0 Hz"):
        resample(sine(8000), 0, 8000)
    with pytest.raises(ValueError, match="to -1 Hz"):
        StreamResampler(8000, -1)


MP3_FRAME = (b"\xff\xfb\x90\x64" + bytes(range(200)) * 3)[:417]  # 128 kbit/s at 44.1 kHz: 144 · 128000 / 44100
MP3_LOW_RATE = (b"\xff\xf3\x44\xc4" + bytes(range(200)))[:96]  # MPEG-2, 32 kbit/s at 24 kHz: 72 · 32000 / 24000
AAC_FRAME = (b"\xff\xf1\x60\x40\x19\x1f\xfc" + bytes(range(200)))[:200]  # its length, 200, is in its header
FILES = {
    b"RIFF\x24\0\0\0WAVEfmt ": "WAV",
    b"RF64\xff\xff\xff\xffWAVEds64": "WAV",
    b"BW64\xff\xff\xff\xffWAVEds64": "WAV",
    b"RIFF\x24\0\0\0AVI LIST": "RIFF",
    b"OggS\0\2": "Ogg",
    b"ID3\4\0\0": "MP3",
    b"fLaC\0\0\0\x22": "FLAC",
    b"FORM\0\0\1\0AIFFCOMM": "AIFF",
    b".snd\0\0\0\x18": "AU",
    b"caff\0\1\0\0": "CAF",
    b"#!AMR\n": "AMR",
    b"\0\0\0\x1cftypM4A ": "MP4",
    b"\x1aE\xdf\xa3\x9f\x42": "WebM",
    MP3_FRAME * 2: "MP3",
    MP3_LOW_RATE * 2: "MP3",
    AAC_FRAME * 2: "AAC",
}


@pytest.mark.parametrize(("content", "name"), FILES.items(), ids=list(FILES.values()))
def test_a_file_is_known_by_its_beginning_and_awaited_until_then(content: bytes, name: str) -> None:
    known = next(size for size in range(1, len(content) + 1) if container_of(content[:size]) == name)
    assert all(container_of(content[:size]) is None for size in range(known))
    assert all(may_become_container(content[:size]) for size in range(1, known))


@pytest.mark.parametrize(
    "pcm",
    [
        bytes(12),
        struct.pack("<8h", *range(-4, 4)),
        MP3_FRAME + bytes(417),  # the header of a frame, and none where the next one would begin
        AAC_FRAME + bytes(200),
        b"\xff\xff\xff\xff" * 3,  # the sample −1
        b"RIFX",
    ],
)
def test_samples_are_no_file(pcm: bytes) -> None:
    assert container_of(pcm) is None
    assert not may_become_container(pcm) or pcm == b"RIFX"


def test_frames_count_only_where_they_are_asked_for() -> None:
    assert container_of(MP3_FRAME * 2, by_frames=False) is None
    assert not may_become_container(MP3_FRAME, by_frames=False)


LAWS = [
    pytest.param(g711_reference.ULAW, g711.ulaw_encode, g711.ulaw_decode, id="mu-law"),
    pytest.param(g711_reference.ALAW, g711.alaw_encode, g711.alaw_decode, id="a-law"),
]


@pytest.mark.parametrize(("law", "encode", "decode"), LAWS)
def test_encode_agrees_on_every_sample(
    law: g711_reference.Law, encode: Callable[[Pcm16], bytes], decode: Callable[[bytes], Pcm16]
) -> None:
    assert encode(EVERY_SAMPLE) == bytes(law.encode(sample) for sample in EVERY_SAMPLE.tolist())


@pytest.mark.parametrize(("law", "encode", "decode"), LAWS)
def test_decode_agrees_on_every_octet(
    law: g711_reference.Law, encode: Callable[[Pcm16], bytes], decode: Callable[[bytes], Pcm16]
) -> None:
    assert decode(bytes(range(256))).tolist() == [law.decode(octet) for octet in range(256)]


@pytest.mark.parametrize(("law", "encode", "decode"), LAWS)
def test_decoded_samples_encode_back(
    law: g711_reference.Law, encode: Callable[[Pcm16], bytes], decode: Callable[[bytes], Pcm16]
) -> None:
    again = decode(encode(decode(bytes(range(256)))))
    assert again.tolist() == decode(bytes(range(256))).tolist()


def test_values_of_the_recommendation() -> None:
    """Extremes and zero as G.711's tables 1 and 2 give them (on the 14- and 13-bit scales, times 4 and 8)."""
    assert g711.ulaw_decode(b"\x80\x00\xff\x7f").tolist() == [8031 * 4, -8031 * 4, 0, 0]
    assert g711.alaw_decode(b"\xaa\x2a\xd5\x55").tolist() == [4032 * 8, -4032 * 8, 8, -8]


def test_silence_octets() -> None:
    silence = np.zeros(3, np.int16)
    assert g711.ulaw_encode(silence) == b"\xff" * 3
    assert g711.alaw_encode(silence) == b"\xd5" * 3


def test_a_slice_with_a_stride_is_encoded_as_it_reads() -> None:
    assert g711.ulaw_encode(EVERY_SAMPLE[::7]) == g711.ulaw_encode(EVERY_SAMPLE[::7].copy())
