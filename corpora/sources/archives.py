"""Reading of untrusted archives and packages.

`read_members` keeps some files of a package in memory; `unpack` writes those of an archive below a folder, and rejects
an archive with anything but regular files with plain relative names. Sizes are limited while reading, whatever sizes an
archive states.
"""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from corpora.manifest.errors import CorpusError

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
MAX_FILES = 500_000

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60
_MAX_PACKAGE_BYTES = 128 * 1024 * 1024
_MAX_UNPACKED_BYTES = 256 * 1024 * 1024
_MAX_MEMBER_BYTES = 32 * 1024 * 1024
_MAX_MEMBERS = 50_000
_CHUNK_BYTES = 1024 * 1024
_RATIO = 60  # speech does not compress better than this; an archive that does is a decompression bomb
_FREE_BYTES = 64 * 1024 * 1024
_MAX_BYTES = 256 * 1024**3
_HEADER_BYTES = 4 * 1024 * 1024
_XZ_MEMORY_BYTES = 256 * 1024 * 1024
_LONGEST_NAME = 1_000
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, ValueError)

Member = tuple[str, bool, IO[bytes] | None]  # its name, whether it is a file or a folder, and the contents of a file


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
    contents: dict[str, bytes] = {}
    try:
        packed = _data_tar(package, content) if content.startswith(_AR_MAGIC) else content
        with ExitStack() as stack:
            members = _tar_members(stack, io.BytesIO(packed), str(package), _MAX_UNPACKED_BYTES)
            for count, (stored_name, _, stream) in enumerate(members):
                if count >= _MAX_MEMBERS:
                    raise CorpusError(f"{package}: contains more than {_MAX_MEMBERS} files and was not used.")
                name = stored_name.removeprefix("./")
                if stream is not None and wanted(name):
                    contents[name] = stream.read(_MAX_MEMBER_BYTES + 1)
                    if len(contents[name]) > _MAX_MEMBER_BYTES:
                        raise CorpusError(
                            f"{package}: {name} is larger than {_MAX_MEMBER_BYTES >> 20} MB; the package was not used."
                        )
    except (*_DAMAGE, OSError) as error:
        raise CorpusError(f"{package}: is not a valid .deb or .tar.gz ({error}); download it again.") from error
    return contents


def unpack(archive: Path, into: Path) -> None:
    """Write an archive's files below `into`.

    Raises CorpusError if it is damaged, contains names outside of it, links or devices, or exceeds the limits.
    """
    label = archive.name
    try:
        limit = min(archive.stat().st_size * _RATIO + _FREE_BYTES, _MAX_BYTES)
        with ExitStack() as stack:
            if label.lower().endswith(".zip"):
                members = _zip_members(stack, archive, limit)
            else:
                members = _tar_members(stack, stack.enter_context(archive.open("rb")), label, limit + _FREE_BYTES)
            for count, member in enumerate(members):
                if count >= MAX_FILES:
                    raise CorpusError(f"{label}: contains more than {MAX_FILES} files and was not used.")
                limit -= _write(member, into, label, limit)
    except _DAMAGE as error:
        raise CorpusError(f"{label}: is not a valid archive ({error}); download it again.") from error
    except (NotImplementedError, RuntimeError) as error:
        raise CorpusError(
            f"{label}: cannot be unpacked ({error}); unpack it yourself and import the folder."
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorpusError(f"{label}: cannot be unpacked ({reason}); check the file and the free space.") from error


def _write(member: Member, into: Path, label: str, limit: int) -> int:
    """Write a member below a folder; returns its size."""
    name, is_plain, stream = member
    path = PurePosixPath(name.replace("\\", "/"))
    is_inside = name.isprintable() and len(name) <= _LONGEST_NAME and ":" not in name.split("/", maxsplit=1)[0]
    if path.is_absolute() or ".." in path.parts or not is_inside:
        raise CorpusError(f"{label}: contains {name[:200]!r}, a name that leads out of it; the archive was not used.")
    if stream is None and is_plain:
        return 0  # a folder is created with the first file in it
    if stream is None:
        raise CorpusError(f"{label}: contains {name[:200]!r}, which is not a regular file; the archive was not used.")
    file = into.joinpath(*path.parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    # Exclusive creation rejects a name that occurs twice, which could otherwise overwrite the first file.
    with file.open("xb") as out:
        while chunk := stream.read(_CHUNK_BYTES):
            written += len(chunk)
            if written > limit:
                raise CorpusError(f"{label}: unpacks to far more than audio would and was not used.")
            out.write(chunk)
    return written


def _zip_members(stack: ExitStack, archive: Path, limit: int) -> Iterator[Member]:
    packed = stack.enter_context(zipfile.ZipFile(archive))
    if sum(info.file_size for info in packed.infolist()) > limit:
        raise CorpusError(f"{archive.name}: unpacks to far more than audio would and was not used.")
    for info in packed.infolist():
        if info.is_dir() or stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            yield info.filename, info.is_dir(), None
            continue
        with packed.open(info) as stream:
            yield info.filename, True, stream


def _tar_members(stack: ExitStack, raw: IO[bytes], label: str, limit: int) -> Iterator[Member]:
    metered = MeteredStream(_unpacked(stack, raw), label, limit)
    # tarfile only calls read() on a stream.
    with metered, tarfile.open(fileobj=cast("IO[bytes]", metered), mode="r|") as opened:
        while True:
            # tarfile skips what is left of a member before it reads the next header, so it is skipped here first.
            with metered.at_most(_HEADER_BYTES):
                info = opened.next()
            if info is None:
                return
            # A sparse file can claim any size with a few bytes; recordings are never stored like that.
            stream = opened.extractfile(info) if info.isreg() and not info.issparse() else None
            yield info.name, stream is not None or info.isdir(), stream
            while stream is not None and stream.read(_CHUNK_BYTES):
                pass
            cast("Any", opened).members.clear()  # tarfile would otherwise keep every header


def _unpacked(stack: ExitStack, raw: IO[bytes]) -> IO[bytes]:
    head = raw.read(6)
    raw.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=raw)))
    if head.startswith(b"BZh"):
        return cast("IO[bytes]", stack.enter_context(bz2.BZ2File(raw)))
    if head == b"\xfd7zXZ\x00":
        return cast("IO[bytes]", _XzStream(raw))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa

        stream: Any = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
        return cast("IO[bytes]", stream)
    return raw


class _XzStream:
    """A reader of xz with a memory limit, which the standard library's file object does not have."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._decoder = raw, lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)

    def read(self, size: int) -> bytes:
        while not self._decoder.eof:
            compressed = self._raw.read(65_536) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not compressed:
                raise EOFError("it is truncated")
            chunk = self._decoder.decompress(compressed, size)
            if chunk:
                return chunk
        return b""


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
            return content[begin:end]
        position = end + end % 2
    raise CorpusError(f"{package}: is not a valid .deb (it has no data archive); download it again.")
