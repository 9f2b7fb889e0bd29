"""Extraction of some files from an untrusted package.

Nothing is written to disk: members are streamed through memory, and only regular files with wanted names are kept, so
paths, links and devices in an archive have no effect. Sizes are limited while reading.
"""

import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from corpora.manifest.errors import CorpusError

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60
_MAX_PACKAGE_BYTES = 128 * 1024 * 1024
_MAX_UNPACKED_BYTES = 256 * 1024 * 1024
_MAX_MEMBER_BYTES = 32 * 1024 * 1024
_MAX_MEMBERS = 50_000
_CHUNK_BYTES = 1024 * 1024
_DPKG_TIMEOUT_S = 120


class MeteredStream(io.RawIOBase):
    """A stream that raises CorpusError when more bytes are read from it than its limit."""

    def __init__(self, inner: IO[bytes], label: str, limit_bytes: int) -> None:
        super().__init__()
        self._inner, self._label, self._limit, self._left = inner, label, limit_bytes, limit_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        chunk = self._inner.read(_CHUNK_BYTES if size < 0 else min(size, _CHUNK_BYTES))
        self._left -= len(chunk)
        if self._left < 0:
            raise CorpusError(f"{self._label}: unpacks to more than {self._limit >> 20} MB and was not used.")
        return chunk

    @contextmanager
    def at_most(self, size: int) -> Generator[None]:
        """A context in which at most `size` more bytes may be read."""
        reserved = self._left - min(self._left, size)
        outer_limit, self._limit = self._limit, min(self._limit, size)
        self._left -= reserved
        yield
        self._left += reserved
        self._limit = outer_limit


def read_members(package: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Read the wanted regular files of a .deb or a (compressed) tar; the keys are their names without a leading `./`.

    Raises CorpusError if the package is missing, damaged, of another type, or larger than the limits.
    """
    try:
        if package.stat().st_size > _MAX_PACKAGE_BYTES:
            raise CorpusError(f"{package}: is larger than {_MAX_PACKAGE_BYTES >> 20} MB and was not used.")
        content = package.read_bytes()
    except OSError as error:
        raise CorpusError(f"{package}: the package cannot be read ({error.strerror}); check its path.") from error
    try:
        packed = _data_tar(package, content) if content.startswith(_AR_MAGIC) else content
        return _read_wanted(MeteredStream(_unpacked(packed), str(package), _MAX_UNPACKED_BYTES), wanted, str(package))
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError) as error:
        raise CorpusError(f"{package}: is not a valid .deb or .tar.gz ({error}); download it again.") from error


def _read_wanted(stream: MeteredStream, wanted: Callable[[str], bool], label: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    # tarfile only calls read() on a stream.
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
        for count, member in enumerate(archive):
            if count >= _MAX_MEMBERS:
                raise CorpusError(f"{label}: contains more than {_MAX_MEMBERS} files and was not used.")
            name = member.name.removeprefix("./")
            # A sparse file can claim any size with a few bytes; clips are never stored like that.
            if not member.isreg() or member.issparse() or not wanted(name):
                continue
            if member.size > _MAX_MEMBER_BYTES:
                raise CorpusError(
                    f"{label}: {name} is larger than {_MAX_MEMBER_BYTES >> 20} MB; the package was not used."
                )
            opened = archive.extractfile(member)
            if opened is not None:
                found[name] = opened.read()
    return found


def _unpacked(packed: bytes) -> IO[bytes]:
    source = io.BytesIO(packed)
    if packed.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=source))
    if packed.startswith(b"\xfd7zXZ\x00"):
        return cast("IO[bytes]", lzma.LZMAFile(source))
    return source


def _data_tar(package: Path, content: bytes) -> bytes:
    """The data archive of a .deb, which is an ar archive with fixed-size headers and even-sized members."""
    position = len(_AR_MAGIC)
    while position + _AR_HEADER_BYTES <= len(content):
        header = content[position : position + _AR_HEADER_BYTES]
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        digits = header[48:58].strip()
        if not digits.isdigit():
            break
        begin = position + _AR_HEADER_BYTES
        end = begin + int(digits)
        if name.startswith("data.tar"):
            if end > len(content):
                raise CorpusError(f"{package}: is truncated; download it again.")
            return _through_dpkg(package) if name.endswith(".zst") else content[begin:end]
        position = end + end % 2
    raise CorpusError(f"{package}: is not a valid .deb (it has no data archive); download it again.")


def _through_dpkg(package: Path) -> bytes:
    """Decompress with dpkg-deb, because this Python has no zstd."""
    if shutil.which("dpkg-deb") is None:
        raise CorpusError(
            f"{package}: is compressed with zstd, which requires dpkg-deb; install dpkg-deb and try again."
        )
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        pipe = cast("IO[bytes]", process.stdout)
        content = pipe.read(_MAX_UNPACKED_BYTES + 1)
        if len(content) > _MAX_UNPACKED_BYTES:
            process.kill()
            raise CorpusError(f"{package}: unpacks to more than {_MAX_UNPACKED_BYTES >> 20} MB and was not used.")
        if process.wait(_DPKG_TIMEOUT_S):
            raise CorpusError(f"{package}: dpkg-deb cannot read it; download it again.")
    return content
