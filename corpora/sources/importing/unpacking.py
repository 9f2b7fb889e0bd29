"""Unpacking an archive into a scratch folder without trusting it.

Only regular files under plain relative names are written; an archive that holds anything else is refused whole. How
much may come out of it is bounded while it comes out, whatever the archive says of itself.
"""

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from corpora.manifest.errors import CorpusError
from corpora.sources.archives import MeteredStream
from corpora.sources.importing.tree import MAX_FILES

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")

_RATIO = 60  # speech does not shrink further than this; what does is made to fill a disk
_FREE_BYTES = 64 * 1024 * 1024
_MAX_BYTES = 256 * 1024**3
_HEADER_BYTES = 4 * 1024 * 1024
_XZ_MEMORY_BYTES = 256 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_LONGEST_NAME = 1_000


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    is_plain: bool
    stream: IO[bytes] | None


def is_archive(source: Path) -> bool:
    """Whether a file's name says that it is an archive that can be unpacked here."""
    return source.name.lower().endswith(SUFFIXES)


def unpack(archive: Path, into: Path) -> None:
    """Write an archive's files below `into`.

    Raises CorpusError when it is damaged, holds names that lead elsewhere, links or devices, or more than is plausible.
    """
    called = archive.name
    try:
        limit = min(archive.stat().st_size * _RATIO + _FREE_BYTES, _MAX_BYTES)
        with ExitStack() as stack:
            members = _zip_members if called.lower().endswith(".zip") else _tar_members
            for count, member in enumerate(members(stack, archive, limit)):
                if count >= MAX_FILES:
                    raise CorpusError(f"{called}: holds more than {MAX_FILES} files; it was not used.")
                limit -= _write(member, into, called, limit)
    except (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, ValueError) as error:
        raise CorpusError(f"{called}: is not a sound archive ({error}); fetch it again.") from error
    except (NotImplementedError, RuntimeError) as error:
        raise CorpusError(f"{called}: cannot be unpacked here ({error}); unpack it and import the folder.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorpusError(f"{called}: cannot be unpacked ({reason}); check the file and the space left.") from error


def _write(member: _Member, into: Path, called: str, limit: int) -> int:
    parts = _parts(member.name, called)
    if member.stream is None and member.is_plain:
        return 0  # a folder: it is made when something is put into it
    if member.stream is None:
        raise CorpusError(f"{called}: holds {member.name[:200]!r}, which is no regular file; it was not used.")
    file = into.joinpath(*parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    # Exclusively: a name that comes twice could otherwise be written through what came first.
    with file.open("xb") as out:
        while piece := member.stream.read(_PIECE_BYTES):
            written += len(piece)
            if written > limit:
                raise CorpusError(f"{called}: unpacks to far more than audio would; it was not used.")
            out.write(piece)
    return written


def _parts(name: str, called: str) -> tuple[str, ...]:
    path = PurePosixPath(name.replace("\\", "/"))
    plain = name.isprintable() and len(name) <= _LONGEST_NAME and ":" not in name.split("/", maxsplit=1)[0]
    if path.is_absolute() or ".." in path.parts or not plain:
        raise CorpusError(f"{called}: holds {name[:200]!r}, a name that leads out of it; it was not used.")
    return path.parts


def _zip_members(stack: ExitStack, archive: Path, limit: int) -> Iterator[_Member]:
    packed = stack.enter_context(zipfile.ZipFile(archive))
    if sum(info.file_size for info in packed.infolist()) > limit:
        raise CorpusError(f"{archive.name}: unpacks to far more than audio would; it was not used.")
    for info in packed.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)
        if info.is_dir() or mode not in (0, stat.S_IFREG):
            yield _Member(info.filename, info.is_dir(), None)
            continue
        with packed.open(info) as stream:
            yield _Member(info.filename, True, stream)


def _tar_members(stack: ExitStack, archive: Path, limit: int) -> Iterator[_Member]:
    metered = MeteredStream(_unpacked(stack, archive), archive.name, limit + _FREE_BYTES)
    # tarfile asks a stream for nothing but read().
    with metered, tarfile.open(fileobj=cast("IO[bytes]", metered), mode="r|") as opened:
        while True:
            # Members are read to their end, so all that is left before the next one is padding and its header.
            with metered.at_most(_HEADER_BYTES):
                info = opened.next()
            if info is None:
                return
            if info.isreg() and not info.issparse():
                yield _Member(info.name, True, opened.extractfile(info))
            else:
                yield _Member(info.name, info.isdir(), None)
            cast("Any", opened).members.clear()  # tarfile would keep every header


def _unpacked(stack: ExitStack, archive: Path) -> IO[bytes]:
    raw = stack.enter_context(archive.open("rb"))
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
    """Reads xz with a bound on memory, which the library's own file object does not have."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._decoder = raw, lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)

    def read(self, size: int) -> bytes:
        while not self._decoder.eof:
            fed = self._raw.read(65_536) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not fed:
                raise EOFError("it ends too early")
            piece = self._decoder.decompress(fed, size)
            if piece:
                return piece
        return b""
