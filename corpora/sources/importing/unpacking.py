"""Unpacking of an untrusted archive into a scratch folder.

Only regular files with plain relative names are written; an archive with anything else is rejected as a whole. The
unpacked size is limited while unpacking, whatever sizes the archive states.
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

_RATIO = 60  # speech does not compress better than this; an archive that does is a decompression bomb
_FREE_BYTES = 64 * 1024 * 1024
_MAX_BYTES = 256 * 1024**3
_HEADER_BYTES = 4 * 1024 * 1024
_XZ_MEMORY_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_LONGEST_NAME = 1_000


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    is_plain: bool
    stream: IO[bytes] | None


def is_archive(source: Path) -> bool:
    """Return whether a file has the suffix of a supported archive."""
    return source.name.lower().endswith(SUFFIXES)


def unpack(archive: Path, into: Path) -> None:
    """Write an archive's files below `into`.

    Raises CorpusError if it is damaged, contains names outside of it, links or devices, or exceeds the limits.
    """
    label = archive.name
    try:
        limit = min(archive.stat().st_size * _RATIO + _FREE_BYTES, _MAX_BYTES)
        with ExitStack() as stack:
            members = _zip_members if label.lower().endswith(".zip") else _tar_members
            for count, member in enumerate(members(stack, archive, limit)):
                if count >= MAX_FILES:
                    raise CorpusError(f"{label}: contains more than {MAX_FILES} files and was not used.")
                limit -= _write(member, into, label, limit)
    except (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, ValueError) as error:
        raise CorpusError(f"{label}: is not a valid archive ({error}); download it again.") from error
    except (NotImplementedError, RuntimeError) as error:
        raise CorpusError(
            f"{label}: cannot be unpacked ({error}); unpack it yourself and import the folder."
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorpusError(f"{label}: cannot be unpacked ({reason}); check the file and the free space.") from error


def _write(member: _Member, into: Path, label: str, limit: int) -> int:
    parts = _parts(member.name, label)
    if member.stream is None and member.is_plain:
        return 0  # a folder is created with the first file in it
    if member.stream is None:
        raise CorpusError(
            f"{label}: contains {member.name[:200]!r}, which is not a regular file; the archive was not used."
        )
    file = into.joinpath(*parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    # Exclusive creation rejects a name that occurs twice, which could otherwise overwrite the first file.
    with file.open("xb") as out:
        while chunk := member.stream.read(_CHUNK_BYTES):
            written += len(chunk)
            if written > limit:
                raise CorpusError(f"{label}: unpacks to far more than audio would and was not used.")
            out.write(chunk)
    return written


def _parts(name: str, label: str) -> tuple[str, ...]:
    path = PurePosixPath(name.replace("\\", "/"))
    plain = name.isprintable() and len(name) <= _LONGEST_NAME and ":" not in name.split("/", maxsplit=1)[0]
    if path.is_absolute() or ".." in path.parts or not plain:
        raise CorpusError(f"{label}: contains {name[:200]!r}, a name that leads out of it; the archive was not used.")
    return path.parts


def _zip_members(stack: ExitStack, archive: Path, limit: int) -> Iterator[_Member]:
    packed = stack.enter_context(zipfile.ZipFile(archive))
    if sum(info.file_size for info in packed.infolist()) > limit:
        raise CorpusError(f"{archive.name}: unpacks to far more than audio would and was not used.")
    for info in packed.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)
        if info.is_dir() or mode not in (0, stat.S_IFREG):
            yield _Member(info.filename, info.is_dir(), None)
            continue
        with packed.open(info) as stream:
            yield _Member(info.filename, True, stream)


def _tar_members(stack: ExitStack, archive: Path, limit: int) -> Iterator[_Member]:
    metered = MeteredStream(_unpacked(stack, archive), archive.name, limit + _FREE_BYTES)
    # tarfile only calls read() on a stream.
    with metered, tarfile.open(fileobj=cast("IO[bytes]", metered), mode="r|") as opened:
        while True:
            # Members are read to their end, so only padding and a header precede the next one.
            with metered.at_most(_HEADER_BYTES):
                info = opened.next()
            if info is None:
                return
            if info.isreg() and not info.issparse():
                yield _Member(info.name, True, opened.extractfile(info))
            else:
                yield _Member(info.name, info.isdir(), None)
            cast("Any", opened).members.clear()  # tarfile would otherwise keep every header


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
