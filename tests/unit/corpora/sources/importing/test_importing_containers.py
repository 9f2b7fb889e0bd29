"""Files whose header does not state their length, several recordings in one file, and clipping: nothing is lost unsaid.

The files are built from whole ones by hand, or by PyAV; what they must hold is the recordings that they were made of.
"""

import io
import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from corpora.annotation.lint import diagnostics
from corpora.sources.importing.pipeline import Outcome
from tests.unit.corpora.sources.importing.sources import RATE_HZ, Samples, faults_of, import_source, put, speech

FIRST, SECOND = 0, 1


def encoded(folder: Path, suffix: str, number: int) -> bytes:
    file = put(folder.parent / f"made-{number}.{suffix}", lossless(number))
    return file.read_bytes()


def imported(source: Path, name: str, content: bytes) -> tuple[Outcome, Samples]:
    """The import of one file, and its samples."""
    (source / name).write_bytes(content)
    outcome = import_source(source, source.parent / "out", loudness="none")
    samples, _ = soundfile.read(source.parent / "out" / outcome.imported[0].path)
    return outcome, samples


def refused(source: Path, name: str, content: bytes) -> str:
    (source / name).write_bytes(content)
    return faults_of(source)[0]


def lossless(number: int) -> Samples:
    return np.rint(speech(number) * 32_767) / 32_768


def wav(
    pcm: bytes, data: int | None = None, riff: int | None = None, head: bytes = b"RIFF", more: bytes = b""
) -> bytes:
    """A WAV file whose header states these sizes, with chunks before its samples."""
    form = more + b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE_HZ, 2 * RATE_HZ, 2, 16)
    stated = len(pcm) if data is None else data
    whole = 4 + len(form) + 8 + len(pcm) if riff is None else riff
    return head + struct.pack("<I", whole) + b"WAVE" + form + b"data" + struct.pack("<I", stated) + pcm


PCM = np.rint(speech(FIRST) * 32_767).astype("<i2").tobytes()
OPEN_DS64 = b"ds64" + struct.pack("<IQQQI", 28, 0, 0, 0, 0)
DS64 = b"ds64" + struct.pack("<IQQQI", 28, len(PCM) + 72, len(PCM), len(PCM) // 2, 0)


@pytest.mark.parametrize(
    "content",
    [
        wav(PCM, 0, 0),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF),
        wav(PCM, 2_000_000_000, 2_000_000_036),
        wav(PCM, 0x7FFFFFFF, 0x80000023),
        wav(PCM, 0x7FFFF000, 0x7FFFF024),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF, b"RF64", OPEN_DS64),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF, b"RF64", DS64),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF, b"BW64", DS64),
        wav(PCM[:16_000]) + PCM[16_000:],  # the header was written for the first piece
        wav(PCM, 16_000),
        wav(PCM) + b"C2PA" + struct.pack("<I", 60_000) + bytes(range(250)) * 240,
        b"ID3\4\0\0\0\0\0\x0a" + bytes(10) + wav(PCM),
        wav(PCM) + b"<?xpacket begin='' id='W5M0MpCehiHzreSzNTczkc9d'?>" * 200,
        wav(PCM) + bytes(range(128, 256)) * 8,  # less than 100 ms
        wav(PCM, more=b"bext" + struct.pack("<I", 5) + b"abcde\0"),
    ],
)
def test_all_samples_of_a_wav_file_are_read_whatever_length_its_header_states(source: Path, content: bytes) -> None:
    outcome, samples = imported(source, "a.wav", content)
    assert outcome.faults == ()
    np.testing.assert_array_equal(samples, lossless(FIRST))


@pytest.mark.parametrize("stated", [len(PCM) + 20_000, 1_800_000_000])
def test_a_wav_file_that_promises_more_than_it_holds_is_truncated(source: Path, stated: int) -> None:
    assert f"it promises {stated} bytes of sound and holds {len(PCM)}" in refused(source, "a.wav", wav(PCM, stated))


def test_a_flac_file_without_a_length_is_read(source: Path) -> None:
    content = bytearray(encoded(source, "flac", FIRST))
    content[21] &= 0xF0  # the number of samples, in 36 bits, and then the hash of the samples
    content[22:42] = bytes(20)
    _, samples = imported(source, "a.flac", bytes(content))
    np.testing.assert_array_equal(samples, lossless(FIRST))
    (source.parent / "out").rename(source.parent / "kept")
    assert "cannot be decoded" in refused(source, "a.flac", bytes(content[: len(content) * 2 // 3]))


def test_a_wave64_file_that_was_piped_is_read(source: Path) -> None:
    file = io.BytesIO()
    soundfile.write(file, lossless(FIRST), RATE_HZ, format="W64", subtype="PCM_16")
    content = bytearray(file.getvalue())
    data = content.index(b"data\xf3\xac")
    content[16:24], content[data + 16 : data + 24] = b"\xff" * 8, b"\xff" * 7 + b"\x7f"
    _, samples = imported(source, "a.w64", bytes(content))
    np.testing.assert_array_equal(samples[: len(lossless(FIRST))], lossless(FIRST))


def test_mp3_in_wav_is_read(source: Path) -> None:
    frames = encoded(source, "mp3", FIRST)
    form = struct.pack("<HHIIHHHHIHHH", 0x55, 1, RATE_HZ, 4_000, 1, 0, 12, 1, 2, 144, 1, 1_393)
    fact = b"fact" + struct.pack("<II", 4, len(speech(FIRST)) + 5_000)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + fact + b"data" + struct.pack("<I", len(frames)) + frames
    content = b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks + b"\0" * (len(frames) % 2)
    _, samples = imported(source, "a.wav", content)
    assert len(samples) == pytest.approx(len(speech(FIRST)), abs=0.15 * RATE_HZ)


@pytest.mark.parametrize("suffix", ["wav", "aiff", "flac"])
def test_lossless_files_after_one_another_are_one_recording(source: Path, suffix: str) -> None:
    content = encoded(source, suffix, FIRST) + encoded(source, suffix, SECOND)
    _, samples = imported(source, f"a.{suffix}", content)
    np.testing.assert_array_equal(samples, np.concatenate((lossless(FIRST), lossless(SECOND))))


@pytest.mark.parametrize("suffix", ["mp3", "opus", "ogg", "m4a"])
def test_coded_files_after_one_another_are_one_recording(source: Path, suffix: str) -> None:
    parts = [encoded(source, suffix, number) for number in (FIRST, SECOND, FIRST)]
    _, samples = imported(source, f"a.{suffix}", b"".join(parts))
    whole = np.concatenate([speech(number) for number in (FIRST, SECOND, FIRST)])
    assert len(samples) == pytest.approx(len(whole), abs=0.3 * RATE_HZ)
    third = len(speech(FIRST)) // 2
    assert np.corrcoef(envelope(samples[:third]), envelope(whole[:third]))[0, 1] > 0.8
    assert np.corrcoef(envelope(samples[-third:]), envelope(whole[-third:]))[0, 1] > 0.4, "the third is heard, too"


def envelope(samples: Samples) -> Samples:
    """The level of each 100 ms, so that a coder's delay does not matter."""
    hop = RATE_HZ // 10
    return np.sqrt(np.mean(np.square(samples[: len(samples) // hop * hop]).reshape(-1, hop), axis=1))


def test_a_cut_of_a_later_recording_of_a_file_is_that_part(source: Path) -> None:
    (source / "a.flac").write_bytes(encoded(source, "flac", FIRST) + encoded(source, "flac", SECOND))
    start = len(speech(FIRST)) / RATE_HZ
    end = start + len(speech(SECOND)) / RATE_HZ
    (source / "list.csv").write_text(f"path,text,start_s,end_s\na.flac,second,{start},{end}\n")
    outcome = import_source(source, source.parent / "out", loudness="none")
    samples, _ = soundfile.read(source.parent / "out" / outcome.imported[0].path)
    np.testing.assert_array_equal(samples, lossless(SECOND))


def muxed(tracks: int, form: str, codec: str, **options: str) -> bytes:
    """The first clip twice, in each track of a file."""
    file = io.BytesIO()
    pcm = np.tile(np.rint(speech(FIRST) * 32_767).astype(np.int16), 2)
    with av.open(file, "w", format=form, options=options) as container:
        streams = [container.add_stream(codec, rate=RATE_HZ, layout="mono") for _ in range(tracks)]
        for at in range(0, len(pcm), 1_024):
            for stream in streams:
                frame = av.AudioFrame.from_ndarray(pcm[None, at : at + 1_024], format="s16", layout="mono")
                frame.rate, frame.pts = RATE_HZ, at
                container.mux(stream.encode(frame))
        for stream in streams:
            container.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("flags", ["frag_keyframe", "frag_keyframe+empty_moov", "frag_keyframe+empty_moov+delay_moov"])
def test_every_fragment_of_an_m4a_file_is_read(source: Path, flags: str) -> None:
    content = muxed(1, "mp4", "aac", movflags=flags, frag_duration="1200000", use_editlist="1")
    assert content.count(b"moof") > 1
    _, samples = imported(source, "a.m4a", content)
    assert len(samples) == pytest.approx(2 * len(speech(FIRST)), abs=0.2 * RATE_HZ)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.mka", lambda: muxed(2, "matroska", "libopus"), "a.mka: contains 2 audio tracks, of which only one"),
        ("a.ogg", lambda: muxed(2, "ogg", "libopus"), "a.ogg: contains 2 audio tracks, of which only one"),
        ("a.wav", lambda: wav(PCM, riff=2 * len(PCM) + 44) + b"data" + struct.pack("<I", len(PCM)) + PCM,
         "a.wav: contains more than one chunk of samples"),
        ("a.wav", lambda: wav(PCM) * 300, "contains more than 256 recordings"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_named(source: Path, name: str, content: Any, says: str) -> None:
    assert says in refused(source, name, content())


def test_a_tag_that_promises_more_than_the_file_is_passed_over(source: Path) -> None:
    content = b"ID3\4\0\0\x7f\x7f\x7f\x7f" + encoded(source, "mp3", FIRST)
    assert "a.mp3: cannot be decoded" in refused(source, "a.mp3", content)


def test_recordings_of_different_formats_in_one_file_are_named(source: Path) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.column_stack((speech(SECOND), speech(SECOND))), 48_000, format="FLAC")
    sentence = refused(source, "a.flac", encoded(source, "flac", FIRST) + file.getvalue())
    assert sentence == (
        "a.flac: contains 2 recordings, of which the first has 16000 Hz and 1 channel and number 2 has 48000 Hz and "
        "2 channels; save each as its own file."
    )


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_U8", "ULAW", "ALAW", "FLOAT"])
def test_clipping_is_judged_before_the_level_is_set(source: Path, subtype: str) -> None:
    loud = np.clip(speech(FIRST) / np.max(np.abs(speech(FIRST))) * 3, -1, 1)
    soundfile.write(source / "loud.wav", loud, RATE_HZ, subtype=subtype)
    soundfile.write(source / "fine.wav", speech(SECOND), RATE_HZ, subtype=subtype)
    outcome = import_source(source, source.parent / "out", loudness="asl", level_db=-36.0)
    fine, clipped = sorted(outcome.imported, key=lambda utterance: utterance.id)
    assert "clipped" not in (fine.processing or "")
    assert "came clipped in " in (clipped.processing or "")
    samples, _ = soundfile.read(source.parent / "out" / clipped.path)
    assert np.max(np.abs(samples)) < 0.5, "nothing of it is at full scale any more"
    found = [each for each in diagnostics(source.parent / "out") if "clipped" in each]
    assert len(found) == 1
    assert "loud: came clipped in " in found[0]


def test_clipping_outside_of_a_cut_or_in_another_channel_does_not_count(source: Path) -> None:
    loud = np.clip(speech(FIRST) / np.max(np.abs(speech(FIRST))) * 3, -1, 1)
    both = np.concatenate((speech(SECOND), loud))
    soundfile.write(source / "a.wav", both, RATE_HZ)
    soundfile.write(source / "b.wav", np.column_stack((both, 0.1 * both)), RATE_HZ)
    end = len(speech(SECOND)) / RATE_HZ
    rows = [f"a.wav,cut,0,{end},", f"b.wav,quiet,0,{len(both) / RATE_HZ},1", f"b.wav,loud,0,{len(both) / RATE_HZ},0"]
    (source / "list.csv").write_text("\n".join(["path,text,start_s,end_s,channel", *rows]) + "\n")
    outcome = import_source(source, source.parent / "out", max_s=60.0)
    assert {each.text: "came clipped" in (each.processing or "") for each in outcome.imported} == {
        "cut": False, "quiet": False, "loud": True,
    }  # fmt: skip
