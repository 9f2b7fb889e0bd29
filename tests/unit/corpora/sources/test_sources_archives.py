"""Tests of reading members of untrusted packages."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from corpora.manifest.errors import CorpusError
from corpora.sources import archives
from corpora.sources.archives import read_members


def tar(entries: dict[str, bytes], mode: str = "w:xz", extra: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]  # the mode is a parameter
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return packed.getvalue()


def ar(members: dict[str, bytes]) -> bytes:
    packed = b"!<arch>\n"
    for name, content in members.items():
        packed += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        packed += content + b"\n" * (len(content) % 2)
    return packed


def deb(data: bytes, suffix: str = "xz") -> bytes:
    return ar({"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar.{suffix}": data})


@pytest.fixture
def package(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        file = tmp_path / "package"
        file.write_bytes(content)
        return file

    return write


def everything(_: str) -> bool:
    return True


def link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "content",
    [
        deb(tar({"./usr/a.wav": b"1", "./usr/b.txt": b"2"})),
        deb(tar({"./usr/a.wav": b"1"}, "w:gz"), "gz"),
        deb(tar({"./usr/a.wav": b"1"}, "w"), "x").replace(b"data.tar.x", b"data.tar  "),
        deb(pa.compress(tar({"./usr/a.wav": b"1"}, "w"), codec="zstd", asbytes=True), "zst"),
        tar({"usr/a.wav": b"1"}, "w:gz"),
        tar({"usr/a.wav": b"1"}, "w"),
    ],
    ids=["deb xz", "deb gz", "deb plain", "deb zst", "tar.gz", "tar"],
)
def test_only_wanted_members_are_read(package: Callable[[bytes], Path], content: bytes) -> None:
    assert read_members(package(content), lambda name: name.endswith(".wav")) == {"usr/a.wav": b"1"}


def test_links_and_devices_are_skipped_and_nothing_is_written(package: Callable[[bytes], Path], tmp_path: Path) -> None:
    extra = (
        link("evil-symlink", tarfile.SYMTYPE, "/etc/passwd"),
        link("evil-hardlink", tarfile.LNKTYPE, "../../etc/passwd"),
        link("evil-device", tarfile.CHRTYPE, ""),
        link("evil-pipe", tarfile.FIFOTYPE, ""),
    )
    file = package(deb(tar({"../../outside": b"x", "/absolute": b"y"}, extra=extra)))
    # Such names are only keys of the result; a recipe uses only names that it knows.
    assert read_members(file, everything) == {"../../outside": b"x", "/absolute": b"y"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["package"]


def error_text(file: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        read_members(file, everything)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"!<arch>\n",
        b"!<arch>\nrubbish that is longer than the sixty bytes of a proper header, yes",
        b"no archive at all" * 100,
        ar({"debian-binary": b"2.0\n"}),
        gzip.compress(b"not a tar" * 1_000),
        tar({"a": b"x" * 100_000}, "w:gz")[:80],
        tar({"a": b"x" * 100_000}, "w")[:50_000],
        deb(b"\xfd7zXZ\x00" + b"rubbish" * 50),
        deb(b"\x28\xb5\x2f\xfd" + b"rubbish" * 50, "zst"),
    ],
)
def test_a_damaged_package_is_one_sentence(package: Callable[[bytes], Path], content: bytes) -> None:
    assert "is not a valid" in error_text(package(content))


def test_a_truncated_deb(package: Callable[[bytes], Path]) -> None:
    content = deb(tar({"a": bytes(range(256)) * 100}))
    assert "is truncated" in error_text(package(content[:-200]))


def test_a_missing_package(tmp_path: Path) -> None:
    assert "cannot be read" in error_text(tmp_path / "nothing.deb")


def test_sizes_are_limited(package: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = deb(tar({"zeros": bytes(3_000_000)}))
    assert len(bomb) < 5_000
    with monkeypatch.context() as limits:
        limits.setattr(archives, "_MAX_MEMBER_BYTES", 1_000_000)
        assert "zeros is larger than" in error_text(package(bomb))
    with monkeypatch.context() as limits:
        limits.setattr(archives, "_MAX_UNPACKED_BYTES", 1_000_000)
        assert "unpacks to more than" in error_text(package(bomb))
        # The limit also applies to members that are not wanted.
        with pytest.raises(CorpusError, match="unpacks to more than"):
            read_members(package(bomb), lambda _: False)
    with monkeypatch.context() as limits:
        limits.setattr(archives, "_MAX_PACKAGE_BYTES", 100)
        assert "is larger than" in error_text(package(bomb))
    with monkeypatch.context() as limits:
        limits.setattr(archives, "_MAX_MEMBERS", 2)
        assert "contains more than 2 files" in error_text(package(tar({"a": b"", "b": b"", "c": b""}, "w")))
