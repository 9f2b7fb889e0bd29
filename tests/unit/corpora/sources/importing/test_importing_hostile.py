"""Tests of malicious files: each is one sentence, and nothing is written outside the corpus."""

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from corpora.manifest.errors import CorpusError, SourceError
from corpora.sources.importing.decoding import parse_raw_format
from tests.nightly import examples
from tests.unit.corpora.sources.importing.sources import RATE_HZ, import_source, put, speech, texts


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "work" / "in").mkdir(parents=True)
    return tmp_path / "work" / "in"


@pytest.fixture(autouse=True)
def nothing_outside(tmp_path: Path, source: Path) -> Iterator[None]:
    """Check after each test that only `in` and `out` exist and that the guarded file is unchanged."""
    guarded = tmp_path / "guarded.txt"
    guarded.write_text("mine")
    yield
    assert {path.name for path in tmp_path.iterdir()} == {"work", "guarded.txt"}
    assert {path.name for path in source.parent.iterdir()} <= {"in", "out"}
    assert guarded.read_text() == "mine"


def fault(source: Path, **changes: object) -> str:
    with pytest.raises(SourceError) as caught:
        import_source(source, source.parent / "out", **changes)  # pyright: ignore[reportArgumentType]
    assert not (source.parent / "out").exists()
    (sentence,) = caught.value.faults
    assert "\n" not in sentence
    return sentence


def archive_error(archive: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        import_source(archive, archive.parent.parent / "out")
    assert not (archive.parent.parent / "out").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def ten_hours(file: Path) -> Path:
    """A sparse WAV of ten hours, which takes no space on the disk."""
    samples = 10 * 3600 * RATE_HZ
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + 2 * samples, b"WAVE", b"fmt ", 16, 1, 1, RATE_HZ,
                         2 * RATE_HZ, 2, 16, b"data", 2 * samples)  # fmt: skip
    with file.open("wb") as out:
        out.write(header)
        out.truncate(len(header) + 2 * samples)
    return file


def with_value(value: float) -> NDArray[np.float64]:
    return np.concatenate((speech(), [value], speech()))


PROGRAM = b"\x7fELF" + bytes(4_000)
NO_AUDIO = "is not audio in a supported format"


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [
        ("long.wav", ten_hours, "lasts 36000.0 s and exceeds the maximum of 120 s"),
        ("one.wav", lambda file: put(file, np.array([0.5])), "The clip is shorter than 10 ms"),
        ("none.wav", lambda file: put(file, np.zeros(0)), "contains no samples"),
        ("empty.mp3", Path.touch, "is empty; restore it."),
        ("still.wav", lambda file: put(file, np.zeros(RATE_HZ)), "The recording is digital silence"),
        ("slow.wav", lambda file: put(file, speech(), 4_000), "has a rate of 4000 Hz"),
        ("fast.wav", lambda file: put(file, speech(), 400_000), "has a rate of 400000 Hz"),
        ("many.wav", lambda file: put(file, np.zeros((100, 64))), "has 64 channels; convert it to at most 32"),
        *((f"{value}.wav", lambda file, value=value: soundfile.write(file, with_value(value), RATE_HZ, "FLOAT"),
           "contains samples that are not numbers") for value in (np.nan, np.inf, -np.inf)),
        *((f"program{end}", lambda file: file.write_bytes(PROGRAM), NO_AUDIO) for end in (".wav", ".mp3", ".m4a")),
        ("list.m4a", lambda file: file.write_text("#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n"), NO_AUDIO),
        ("list.mp4", lambda file: file.write_text("ffconcat version 1.0\nfile '/etc/hostname'\n"), NO_AUDIO),
        ("link.wav", lambda file: file.symlink_to("/etc/hostname"), "leads out of"),
        ("pipe.wav", os.mkfifo, "is not a regular file"),
        *((f"a{suffix}", lambda file: put(file.with_name("a.wav"), speech()).rename(file),
           f"is named {suffix} but has the header of another format") for suffix in (".g722", ".raw")),
    ],
)  # fmt: skip
def test_an_unusable_file_is_one_sentence_with_its_name(
    source: Path, name: str, write: Callable[[Path], object], says: str
) -> None:
    write(source / name)
    assert fault(source, raw=parse_raw_format("s16le:16000:1")).startswith(f"{name}: {says}")


def test_192_khz_come_in_at_48(source: Path) -> None:
    wide = np.repeat(speech(), 12)
    put(source / "wide.wav", wide, 192_000)
    (utterance,) = import_source(source, source.parent / "out").imported
    assert utterance.sample_rate_hz == 48_000
    assert "resampled from 192000 Hz" in (utterance.processing or "")


def test_eight_channels_require_a_choice(source: Path) -> None:
    eight = np.zeros((len(speech()), 8))
    eight[:, 5] = speech()
    put(source / "eight.wav", eight)
    assert fault(source).startswith("eight.wav: has 8 channels that differ; choose one with --channel")
    assert fault(source, channel=8).startswith("eight.wav: has 8 channels, so there is no channel 8")
    (utterance,) = import_source(source, source.parent / "out", channel=5).imported
    assert (utterance.processing or "").startswith("channel 5 of 8")


def test_audio_with_a_wrong_suffix_is_detected_by_its_contents(source: Path) -> None:
    put(source / "a.flac", speech(), text="still speech")
    (source / "a.flac").rename(source / "a.mp3")
    assert texts(import_source(source, source.parent / "out")) == {"a": "still speech"}


@pytest.mark.parametrize("kind", ["flac", "m4a", "ogg", "mp3", "wav"])
def test_truncated_and_corrupted_files_are_an_error_or_imported(source: Path, kind: str) -> None:
    whole = put(source / f"a.{kind}", speech()).read_bytes()
    rng = np.random.default_rng(7)
    for trial in range(examples(6, 12)):
        damaged = bytearray(whole if trial else whole[: len(whole) // 2])
        for place in rng.integers(0, len(damaged), 40 if trial else 0):
            damaged[place] = int(rng.integers(256))
        (source / f"a.{kind}").write_bytes(damaged)
        try:
            import_source(source, source.parent / "out", loudness="none")
            for path in sorted((source.parent / "out").rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            (source.parent / "out").rmdir()
        except CorpusError as error:
            assert f"a.{kind}" in str(error)  # noqa: PT017


def test_a_linked_folder_is_not_followed(source: Path, tmp_path: Path) -> None:
    put(source / "a.wav", speech(), text="inside")
    (source / "more").symlink_to(tmp_path, target_is_directory=True)
    assert texts(import_source(source, source.parent / "out")) == {"a": "inside"}


def test_a_text_that_is_a_link_out_of_the_folder_is_not_read(source: Path, tmp_path: Path) -> None:
    put(source / "a.wav", speech())
    (source / "a.txt").symlink_to(tmp_path / "guarded.txt")
    assert fault(source).startswith("a.txt: leads out of")


@pytest.mark.parametrize("name", ["../evil.wav", "/evil.wav", "a/../../evil.wav", "..\\evil.wav", "C:/evil.wav"])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_archives_with_names_outside_the_archive(source: Path, kind: str, name: str) -> None:
    archive = source / f"pack.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr(name, b"x")
    else:
        with tarfile.open(archive, "w:gz") as packed:
            packed.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert archive_error(archive).startswith(f"pack.{kind}: contains {name!r}, a name that leads out of it")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_archives_with_links_and_devices(source: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("thing.wav")
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(source / "pack.tar", "w") as packed:
        packed.addfile(info)
    assert "contains 'thing.wav', which is not a regular file" in archive_error(source / "pack.tar")


def test_a_link_in_a_zip(source: Path) -> None:
    info = zipfile.ZipInfo("thing.wav")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(source / "pack.zip", "w") as packed:
        packed.writestr(info, "/etc/passwd")
    assert "contains 'thing.wav', which is not a regular file" in archive_error(source / "pack.zip")


@pytest.mark.slow
def test_a_zip_bomb(source: Path) -> None:
    with zipfile.ZipFile(source / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed, packed.open("a.wav", "w") as member:
        for _ in range(200):
            member.write(bytes(1024 * 1024))
    assert "unpacks to far more than audio would" in archive_error(source / "bomb.zip")


def test_a_zip_with_a_false_size(source: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.wav", "w") as member:
        for _ in range(100):
            member.write(bytes(1024 * 1024))
    size = struct.pack("<I", 100 * 1024 * 1024)
    (source / "lie.zip").write_bytes(packed.getvalue().replace(size, struct.pack("<I", 1_000)))
    assert "lie.zip" in archive_error(source / "lie.zip")


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["file", "header"])
def test_a_tar_bomb(source: Path, inner: str) -> None:
    info = tarfile.TarInfo("a.wav")
    info.type = tarfile.REGTYPE if inner == "file" else tarfile.XHDTYPE
    info.size = 200 * 1024 * 1024
    with gzip.open(source / "bomb.tar.gz", "wb") as out:
        out.write(info.tobuf())
        for _ in range(200):
            out.write(bytes(1024 * 1024))
    assert "unpacks to" in archive_error(source / "bomb.tar.gz")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar.xz", "a.tar.zst", "a.tar"])
def test_files_that_are_not_archives(source: Path, name: str) -> None:
    magic = {"a.tar.gz": b"\x1f\x8b", "a.tar.xz": b"\xfd7zXZ\x00", "a.tar.zst": b"\x28\xb5\x2f\xfd"}.get(name, b"")
    (source / name).write_bytes(magic + b"rubbish" * 100)
    assert archive_error(source / name).startswith(f"{name}: ")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"])
def test_valid_archives_are_imported_and_leave_nothing_behind(source: Path, kind: str) -> None:
    import pyarrow as pa

    wav = put(source / "a.wav", speech(), text="packed").read_bytes()
    (source / "a.wav").unlink()
    (source / "a.txt").unlink()
    archive = source / f"pack.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("set/a.wav", wav)
            packed.writestr("set/a.txt", "packed")
    else:
        plain = io.BytesIO()
        mode = "w" if kind in ("tar", "tar.zst") else f"w:{kind.removeprefix('tar.')}"
        with tarfile.open(fileobj=plain, mode=mode) as packed:  # pyright: ignore[reportCallIssue, reportArgumentType]
            for name, content in (("set/a.wav", wav), ("set/a.txt", b"packed")):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
        content = plain.getvalue()
        archive.write_bytes(pa.compress(content, codec="zstd", asbytes=True) if kind == "tar.zst" else content)
    assert texts(import_source(archive, source.parent / "out")) == {"a": "packed"}


@pytest.mark.slow
def test_a_gzip_bomb(source: Path) -> None:
    put(source / "a.wav", speech())
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with (source / "cuts.jsonl.gz").open("wb") as out:
        for _ in range(300):
            out.write(packer.compress(bytes(1024 * 1024)))
        out.write(packer.flush())
    with pytest.raises(CorpusError, match=r"cuts\.jsonl\.gz: is larger than 256 MB"):
        import_source(source, source.parent / "out")
