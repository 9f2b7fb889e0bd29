"""Recordings that end too early: every container says so, and none that is whole is called truncated."""

import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from corpora.manifest.containers import find_segments
from tests.unit.corpora.sources.importing.sources import speech

BY_SNDFILE = [
    *(("WAV", subtype) for subtype in ("PCM_16", "PCM_24", "FLOAT", "ULAW", "GSM610")),
    *((form, "PCM_16") for form in ("WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "NIST")),
    *(("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("NIST", "ULAW")),
]
BY_FFMPEG = [
    ("webm", "libopus", 16_000, "s16"),
    ("matroska", "libopus", 16_000, "s16"),
    ("ogg", "libopus", 16_000, "s16"),
    ("adts", "aac", 16_000, "fltp"),
    ("ipod", "aac", 16_000, "fltp"),
    ("mp3", "libmp3lame", 16_000, "fltp"),
    ("mp3", "libmp3lame", 44_100, "fltp"),
    ("amr", "libopencore_amrnb", 8_000, "s16"),
    ("caf", "pcm_s16be", 16_000, "s16"),
    ("wav", "pcm_s16le", 16_000, "s16"),
]


def written(form: str, subtype: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, speech(), 16_000, format=form, subtype=subtype)
    return file.getvalue()


def encoded(form: str, codec: str, rate_hz: int, fmt: str, **options: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=form, options=options) as container:
        stream: Any = container.add_stream(codec, rate=rate_hz, layout="mono")
        data = speech().astype(np.float32) if fmt == "fltp" else np.rint(speech() * 32_767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(data[None], format=fmt, layout="mono")
        frame.sample_rate = rate_hz
        for part in (frame, None):
            for packet in stream.encode(part):
                container.mux(packet)
    return file.getvalue()


def missing_of(content: bytes) -> str | None:
    return find_segments(io.BytesIO(content))[0].missing


def assert_noticed(content: bytes) -> None:
    assert missing_of(content) is None
    for kept in (0.99, 0.9, 0.5, 0.25):
        assert missing_of(content[: round(len(content) * kept)]) is not None, kept


@pytest.mark.parametrize(("form", "subtype"), BY_SNDFILE)
def test_files_of_libsndfile_are_checked(form: str, subtype: str) -> None:
    assert_noticed(written(form, subtype))


@pytest.mark.parametrize(("form", "codec", "rate_hz", "fmt"), BY_FFMPEG)
def test_files_of_ffmpeg_are_checked(form: str, codec: str, rate_hz: int, fmt: str) -> None:
    assert_noticed(encoded(form, codec, rate_hz, fmt))


def test_mp3_cut_between_frames_is_recognized_by_first_frame() -> None:
    whole = encoded("mp3", "libmp3lame", 16_000, "fltp", id3v2_version="0")
    cuts = [cut for cut in range(len(whole) // 2, len(whole)) if whole[cut : cut + 2] == whole[:2]]
    assert len(cuts) > 5
    for cut in cuts:
        assert missing_of(whole[:cut]) is not None


def test_ogg_cut_between_pages_lacks_its_last_page() -> None:
    whole = encoded("ogg", "libopus", 16_000, "s16", page_duration="100000")
    cuts = [cut for cut in range(len(whole)) if whole[cut : cut + 4] == b"OggS"]
    assert len(cuts) > 4
    for cut in cuts[2:]:
        assert missing_of(whole[:cut]) == "its last page is missing"
    assert missing_of(whole[: cuts[3]] + whole[cuts[4] :]) == "pages in its middle are missing"


def test_an_mp3_with_rubbish_in_its_middle_says_where() -> None:
    whole = bytearray(encoded("mp3", "libmp3lame", 16_000, "fltp", id3v2_version="0"))
    whole[2_000:3_000] = bytes(1_000)
    reason = missing_of(bytes(whole))
    assert reason is not None
    assert "is no MPEG audio from byte" in reason


@pytest.mark.parametrize("tail", [b"TAG" + bytes(125), b"APETAGEX" + bytes(60), bytes(500)])
def test_tags_around_an_mp3_are_not_missed_sound(tail: bytes) -> None:
    whole = written("MP3", "MPEG_LAYER_III")
    tag = b"ID3\x04\x00\x00\x00\x00\x02\x00" + bytes(256)
    assert missing_of(whole + tail) is None
    assert missing_of(tag + whole + tail) is None
    assert missing_of(tag + whole[: len(whole) // 2]) is not None


@pytest.mark.parametrize("length", [0, 0xFFFF_FFFF, 0x7FFF_FFFF])
def test_wav_written_to_pipe_has_no_known_length(length: int) -> None:
    whole = bytearray(written("WAV", "PCM_16"))
    whole[40:44] = length.to_bytes(4, "little")
    assert missing_of(bytes(whole)) is None


def test_chunks_before_and_after_the_data_of_a_wav() -> None:
    whole = written("WAV", "PCM_16")
    note = b"LIST" + (5).to_bytes(4, "little") + b"note!\0"
    assert missing_of(whole[:36] + note + whole[36:] + note) is None
    assert missing_of((whole[:36] + note + whole[36:])[:-1]) is not None


def test_a_streamed_webm_does_not_know_its_length() -> None:
    whole = encoded("webm", "libopus", 16_000, "s16", live="1")
    assert missing_of(whole) is None
    assert missing_of(whole[: len(whole) // 2]) is None  # nothing in it says that there was more


@pytest.mark.parametrize(
    "magic", [b"RIFF", b"OggS", b"\xff\xfb", b"\x1aE\xdf\xa3", b"FORM", b"NIST_1A", b"caff", b"riff"]
)
def test_garbage_with_recording_magic_is_left_to_decoder(magic: bytes) -> None:
    random = np.random.default_rng(4)
    for length in (0, 3, 20, 200, 3_000):
        missing_of(magic + random.bytes(length))  # ends, whatever it says


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_a_file_on_disk_is_left_at_its_beginning(tmp_path: Path, form: str) -> None:
    (tmp_path / "a").write_bytes(written(form, "PCM_16"))
    with (tmp_path / "a").open("rb") as content:
        assert find_segments(content)[0].missing is None
        assert content.tell() == 0
