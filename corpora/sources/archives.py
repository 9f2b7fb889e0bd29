"""Taking a few files out of a package without trusting it.

Nothing is unpacked to disk: members are streamed through memory and only regular files that are asked for by name are
kept, so that no path, link or device in an archive can do anything. Sizes are bounded while they are being read.
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
_PIECE_BYTES = 1024 * 1024
_DPKG_TIMEOUT_S = 120


class MeteredStream(io.RawIOBase):
    """A stream that ends with a CorpusError when more comes out of it than is plausible."""

    def __init__(self, inner: IO[bytes], called: str, limit_bytes: int) -> None:
        super().__init__()
        self._inner, self._called, self._limit, self._left = inner, called, limit_bytes, limit_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        piece = self._inner.read(_PIECE_BYTES if size < 0 else min(size, _PIECE_BYTES))
        self._left -= len(piece)
        if self._left < 0:
            raise CorpusError(f"{self._called}: unpacks to more than {self._limit >> 20} MB; it was not used.")
        return piece

    @contextmanager
    def at_most(self, size: int) -> Generator[None]:
        """Within it, no more than so many bytes may be read."""
        apart = self._left - min(self._left, size)
        whole, self._limit = self._limit, min(self._limit, size)
        self._left -= apart
        yield
        self._left += apart
        self._limit = whole


def read_members(package: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Read the wanted regular files of a .deb or a (compressed) tar; the keys are their names without a leading `./`.

    Raises CorpusError when the package is missing, damaged, of another kind, or larger than is plausible.
    """
    try:
        if package.stat().st_size > _MAX_PACKAGE_BYTES:
            raise CorpusError(f"{package}: is larger than {_MAX_PACKAGE_BYTES >> 20} MB; it was not used.")
        content = package.read_bytes()
    except OSError as error:
        raise CorpusError(f"{package}: the package cannot be read ({error.strerror}); check its name.") from error
    try:
        packed = _data_tar(package, content) if content.startswith(_AR_MAGIC) else content
        return _walk(MeteredStream(_unpacked(packed), str(package), _MAX_UNPACKED_BYTES), wanted, str(package))
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError) as error:
        raise CorpusError(f"{package}: is not a sound .deb or .tar.gz ({error}); fetch it again.") from error


def _walk(stream: MeteredStream, wanted: Callable[[str], bool], called: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    # tarfile asks a stream for nothing but read().
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
        for count, member in enumerate(archive):
            if count >= _MAX_MEMBERS:
                raise CorpusError(f"{called}: holds more than {_MAX_MEMBERS} files; it was not used.")
            name = member.name.removeprefix("./")
            # A sparse file claims any size with a few bytes; nobody ships clips that way.
            if not member.isreg() or member.issparse() or not wanted(name):
                continue
            if member.size > _MAX_MEMBER_BYTES:
                raise CorpusError(f"{called}: {name} is larger than {_MAX_MEMBER_BYTES >> 20} MB; it was not used.")
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
    """The data archive inside a .deb, which is an ar archive of fixed-size headers and even-sized members."""
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
                raise CorpusError(f"{package}: is truncated; fetch it again.")
            return _through_dpkg(package) if name.endswith(".zst") else content[begin:end]
        position = end + end % 2
    raise CorpusError(f"{package}: is not a sound .deb (it holds no data archive); fetch it again.")


def _through_dpkg(package: Path) -> bytes:
    """Zstandard is not in this Python's library; where such packages are made, dpkg-deb reads them."""
    if shutil.which("dpkg-deb") is None:
        raise CorpusError(
            f"{package}: is packed with zstd, which needs dpkg-deb; run this where dpkg-deb is installed."
        )
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        pipe = cast("IO[bytes]", process.stdout)
        content = pipe.read(_MAX_UNPACKED_BYTES + 1)
        if len(content) > _MAX_UNPACKED_BYTES:
            process.kill()
            raise CorpusError(f"{package}: unpacks to more than {_MAX_UNPACKED_BYTES >> 20} MB; it was not used.")
        if process.wait(_DPKG_TIMEOUT_S):
            raise CorpusError(f"{package}: dpkg-deb could not read it; fetch it again.")
    return content
