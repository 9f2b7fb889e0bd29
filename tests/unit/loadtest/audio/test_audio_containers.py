"""Audio files by their first bytes, whole and cut short at every byte."""

import struct

import pytest

from loadtest.audio.containers import container_of, may_become_container

MP3_FRAME = (b"\xff\xfb\x90\x64" + bytes(range(200)) * 3)[:417]  # 128 kbit/s at 44.1 kHz: 144 · 128000 / 44100
MP3_LOW_RATE = (b"\xff\xf3\x44\xc4" + bytes(range(200)))[:96]  # MPEG-2, 32 kbit/s at 24 kHz: 72 · 32000 / 24000
AAC_FRAME = (b"\xff\xf1\x60\x40\x19\x1f\xfc" + bytes(range(200)))[:200]  # its length, 200, stands in its header
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
