"""The recordings that follow each other in one file, and lengths in headers that were never filled in.

`cat a.mp3 b.mp3`, a chained Ogg stream and a WAV header that covers its first piece are valid, or usual, and decoders
read the first part of them only. A file is divided here into its recordings, each of which a decoder reads to its end;
the sizes in a header that a streaming program left open are those of the file.
"""

import io
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import BinaryIO, Final

from corpora.manifest.mpeg import mp3_parts, skip_tags
from corpora.manifest.wholeness import HEAD_BYTES, UNKNOWN_32, UNKNOWN_64, nist_fields

_BLOCK: Final = 1 << 20
_MOST_PARTS: Final = 256
# What begins like this behind the samples is no sound: a packet of XMP, a signature.
_TEXT, _TEXT_BYTES = frozenset((9, 10, 13, *range(32, 127))), 32
_FLAC_START: Final = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")
_MARK_BYTES: Final = 9  # of the longest
_AMR_START: Final = re.compile(rb"#!AMR(?:-WB)?\n")
_OGG_BEGINNING: Final = 2
_OGG_SOUND: Final = (b"\x01vorbis", b"OpusHead", b"\x7fFLAC", b"Speex")
_RIFF_NAMES: Final = (b"RIFF", b"RF64", b"BW64", b"RIFX")
_GUID_ASF: Final = b"0&\xb2u\x8ef\xcf\x11\xa6\xd9\x00\xaa\x00b\xcel"
_GUID_DATA: Final = b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0O\x8e\xdb\x8a"
# Chunks that come after the samples, also outside of the size that the header states.
_CHUNKS: Final = frozenset(
    (*(b"LIST", b"C2PA", b"fact", b"bext", b"iXML", b"id3 ", b"ID3 ", b"JUNK", b"junk", b"FLLR", b"PAD ", b"cue "),
     *(b"smpl", b"inst", b"acid", b"PEAK", b"afsp", b"_PMX", b"cart", b"axml", b"chna", b"umid", b"DISP"))
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileSegment:
    """One recording in a file: its bytes, and what is written over them, by position in the file."""

    begin: int
    end: int
    patches: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    loss: str | None = None  # what of it a decoder would leave out, as the end of a sentence


def find_segments(content: BinaryIO) -> list[FileSegment]:
    """The recordings in a file, at least one. Its position is then its beginning."""
    size = content.seek(0, 2)
    try:
        begin = skip_tags(content, 0)
        begin = begin if begin < size else 0  # a damaged tag
        content.seek(begin)
        head = content.read(12)
        parts = list(_parts(content, begin, size, head))
    except (struct.error, IndexError):
        parts = []  # it ends inside a header: its decoder reports that
    finally:
        content.seek(0)
    return parts or [FileSegment(0, size)]


def _parts(content: BinaryIO, begin: int, size: int, head: bytes) -> Iterator[FileSegment]:
    if head[:4] in _RIFF_NAMES and head[8:12] == b"WAVE":
        yield from _waves(content, begin, size)
    elif head[:1] == b"\xff" and head[1] & 0xF6 != 0xF0:
        yield from _between(mp3_parts(content, size), size)
    elif head[4:8] == b"ftyp":
        yield from _between(_movies(content, begin, size), size)
    elif (starts := next((starts for magic, starts in _STARTS if head.startswith(magic)), None)) is not None:
        finish = _FINISH.get(head[:4], lambda content, segment: segment)
        yield from (finish(content, segment) for segment in _between(starts(content, begin, size), size))
    else:
        yield FileSegment(begin, size)


def _between(starts: Iterator[int], size: int) -> list[FileSegment]:
    """The segments that begin at these places, each up to the next."""
    found = list(islice(starts, _MOST_PARTS + 1)) or [0]
    if len(found) > _MOST_PARTS:
        return [FileSegment(found[0], size, loss=f"contains more than {_MOST_PARTS} recordings")]
    return [FileSegment(begin, end) for begin, end in zip(found, [*found[1:], size], strict=True)]


def _waves(content: BinaryIO, begin: int, size: int) -> Iterator[FileSegment]:
    """WAV files one after the other."""
    for _ in range(_MOST_PARTS):
        segment = _wave(content, begin, size)
        yield segment
        if segment.end >= size:
            return
        begin = segment.end
    yield FileSegment(begin, size, loss=f"contains more than {_MOST_PARTS} recordings")


def _wave(content: BinaryIO, begin: int, size: int) -> FileSegment:
    """The WAV file that begins at a place; where its sizes do not hold, they are written over."""
    content.seek(begin)
    name, riff_size = struct.unpack("<4sI4x", content.read(12))
    order, at, whole, bytes_a_second = (">" if name == b"RIFX" else "<"), begin + 12, None, 0
    while at + 8 <= size:
        content.seek(at)
        chunk, length = struct.unpack(f"{order}4sI", content.read(8))
        if chunk == b"ds64":
            (whole,) = struct.unpack("<8xQ", content.read(16))
        if chunk == b"fmt ":
            (bytes_a_second,) = struct.unpack(f"{order}8xI", content.read(12))
        if chunk == b"data":
            break
        at += 8 + length + length % 2
    else:
        return FileSegment(begin, size)
    data, promised = at + 8, length if whole is None or name not in (b"RF64", b"BW64") else whole
    limit = UNKNOWN_32 if whole is None else UNKNOWN_64
    is_stated = promised > 0 and (promised <= size - data or promised < limit)
    file_end = begin + 8 + riff_size if 0 < riff_size < UNKNOWN_32 else size
    if is_stated and data + promised > size:
        return FileSegment(begin, size)  # truncated
    least = bytes_a_second // 10
    end = _next_file(content, data + promised, size, file_end, order, least=least) if is_stated else None
    if end is not None:
        found = FileSegment(begin, abs(end), {begin: b"RF64"} if name == b"BW64" else {})
        return found if end > 0 else replace(found, loss="contains more than one chunk of samples")
    if not is_stated or data + promised < size:
        held = size - data
        if held >= UNKNOWN_32:
            return FileSegment(begin, size)
        patches = {begin + 4: struct.pack(f"{order}I", size - begin - 8), at + 4: struct.pack(f"{order}I", held)}
        return FileSegment(begin, size, patches | ({} if name == b"RIFX" else {begin: b"RIFF"}))
    return FileSegment(begin, size)


def _next_file(content: BinaryIO, at: int, size: int, file_end: int, order: str, *, least: int) -> int | None:
    """Return where the file ends whose samples end at a place: with its last chunk. None if samples follow them
    instead, at least so many bytes, and negative if another chunk of samples does."""
    content.seek(at)
    padded = content.read(1) == b"\0" and at % 2 == 1
    at += padded
    while at + 8 <= size:
        content.seek(at)
        head = content.read(12)
        name, length = struct.unpack(f"{order}4sI", head[:8])
        if name in _RIFF_NAMES and head[8:] == b"WAVE":
            return at
        if name == b"data":
            return -size
        is_chunk = name in _CHUNKS or (at + 8 <= file_end and name.strip().isalnum())
        if not is_chunk and name[:3] != b"TAG":
            content.seek(at)
            rest = content.read(_BLOCK)
            is_text = all(byte in _TEXT for byte in rest[:_TEXT_BYTES])
            return size if len(rest) < least or is_text or not rest.strip(b"\0") else None
        at += size if name[:3] == b"TAG" else 8 + length + length % 2
    return size


def _wave64_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where Wave64 files begin: behind the chunks of the one before, unless its size was left open."""
    yield begin
    at = begin + 40
    while at + 24 <= size:
        content.seek(at)
        name, length = struct.unpack("<16sQ", content.read(24))
        if name.startswith(b"riff"):
            yield at
            length = 40
        if length < 24:
            return
        at += length + -length % 8


def _closed_wave64(content: BinaryIO, segment: FileSegment) -> FileSegment:
    """A Wave64 file with the sizes of its bytes in the place of those that were left open."""
    at, begin, end = segment.begin + 40, segment.begin, segment.end
    while at + 24 <= end:
        content.seek(at)
        name, length = struct.unpack("<16sQ", content.read(24))
        if name == _GUID_DATA and (length <= 24 or length >= UNKNOWN_64):
            return FileSegment(
                begin, end, {begin + 16: struct.pack("<Q", end - begin), at + 16: struct.pack("<Q", end - at)}
            )
        if name == _GUID_DATA or length < 24:
            break
        at += length + -length % 8
    return segment


def _au_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where AU files begin, each behind the samples that the one before promises."""
    yield from _repeated(content, begin, size, b".snd", lambda head: sum(struct.unpack(">II", head[4:12])))


def _nist_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where NIST SPHERE files begin, each behind the samples that the one before promises."""

    def whole(head: bytes) -> int:
        fields = nist_fields(head)
        try:
            samples = int(fields["sample_count"]) * int(fields.get("channel_count", "1"))
            return int(fields["header"]) + samples * int(fields["sample_n_bytes"])
        except (KeyError, ValueError):
            return size

    yield from _repeated(content, begin, size, b"NIST_1A", whole)


def _repeated(content: BinaryIO, begin: int, size: int, magic: bytes, length: Callable[[bytes], int]) -> Iterator[int]:
    """Yield where files begin whose headers state the length of the whole."""
    at = begin
    while at < size:
        content.seek(at)
        head = content.read(HEAD_BYTES)
        if not head.startswith(magic):
            return
        yield at
        at += max(1, length(head))


def _caf_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where CAF files begin: in the place of a chunk of the one before."""
    yield begin
    at = begin + 8
    while at + 12 <= size:
        content.seek(at)
        name, length = struct.unpack(">4sq", content.read(12))
        if name == b"caff":
            yield at
            at += 8
        elif length < 0:
            return
        else:
            at += 12 + length


def _asf_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where ASF files begin: with a header among the objects at the top."""
    at = begin
    while at + 24 <= size:
        content.seek(at)
        name, length = struct.unpack("<16sQ", content.read(24))
        if name == _GUID_ASF:
            yield at
        if length < 24:
            return
        at += length


def _forms(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where AIFF files begin."""
    at = begin
    while at + 12 <= size:
        content.seek(at)
        name, length, kind = struct.unpack(">4sI4s", content.read(12))
        if name != b"FORM" or kind not in (b"AIFF", b"AIFC"):
            return
        yield at
        at += 8 + length + length % 2


def _ogg_links(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where the links of an Ogg stream begin: with the first pages of new streams after others."""
    at, in_link = begin, False
    while at + 27 <= size:
        content.seek(at)
        magic, flags, segments = struct.unpack("<4sxB20xB", content.read(27))
        if magic != b"OggS":
            return
        begins = bool(flags & _OGG_BEGINNING)
        if begins and (in_link or at == begin):
            yield at
        in_link = not begins
        at += 27 + segments + sum(content.read(segments))


def _flac_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where FLAC files begin."""
    return _marked(content, begin, size, _FLAC_START)


def _amr_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where AMR files begin."""
    return _marked(content, begin, size, _AMR_START)


def _marked(content: BinaryIO, begin: int, size: int, mark: re.Pattern[bytes]) -> Iterator[int]:
    """Yield where a mark is that is too long to occur by chance, in files that do not state their length."""
    at, kept = begin, b""
    while at < size:
        content.seek(at)
        block = content.read(_BLOCK)
        data = kept + block
        yield from (at - len(kept) + each.start() for each in mark.finditer(data) if each.end() > len(kept))
        kept, at = data[-(_MARK_BYTES - 1) :], at + len(block)


def _movies(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where MP4 files begin: each with a box `ftyp`, also with boxes of fragments between them."""
    at = begin
    while at + 8 <= size:
        content.seek(at)
        length, name = struct.unpack(">I4s", content.read(8))
        if length == 1:
            (length,) = struct.unpack(">Q", content.read(8))
        if name == b"ftyp":
            yield at
        if length < 8:
            return
        at += length


def _with_one_track(content: BinaryIO, segment: FileSegment) -> FileSegment:
    """A link of an Ogg stream; several parallel tracks are a loss, since one would be decoded."""
    at, tracks = segment.begin, 0
    while at + 27 <= segment.end:
        content.seek(at)
        flags, segments = struct.unpack("<5xB20xB", content.read(27))
        body = sum(content.read(segments))
        if not flags & _OGG_BEGINNING:
            break
        tracks += content.read(8).startswith(_OGG_SOUND)
        at += 27 + segments + body
    return segment if tracks < 2 else replace(segment, loss=f"contains {tracks} audio tracks")


def has_fragments(content: BinaryIO) -> bool:
    """Return whether an MP4 file has fragments: its list of edits is then that of the first one. Its position is
    kept."""
    place, size, at = content.tell(), content.seek(0, 2), 0
    try:
        while at + 8 <= size:
            content.seek(at)
            length, name = struct.unpack(">I4s", content.read(8))
            if name == b"moof":
                return True
            if length == 1:
                (length,) = struct.unpack(">Q", content.read(8))
            if length < 8:
                return False
            at += length
        return False
    finally:
        content.seek(place)


_STARTS: Final[tuple[tuple[bytes, Callable[[BinaryIO, int, int], Iterator[int]]], ...]] = (
    (b"riff", _wave64_starts),
    (b"FORM", _forms),
    (b"OggS", _ogg_links),
    (b"fLaC", _flac_starts),
    (b".snd", _au_starts),
    (b"NIST_1A", _nist_starts),
    (b"caff", _caf_starts),
    (_GUID_ASF[:12], _asf_starts),
    (b"#!AMR", _amr_starts),
)
_FINISH: Final[Mapping[bytes, Callable[[BinaryIO, FileSegment], FileSegment]]] = {
    b"riff": _closed_wave64,
    b"OggS": _with_one_track,
}


class SegmentFile(io.RawIOBase):
    """A segment as a file of its own."""

    def __init__(self, content: BinaryIO, segment: FileSegment) -> None:
        super().__init__()
        self._content = content
        self._segment = segment
        self._at = segment.begin

    def readable(self) -> bool:
        """Return whether it can be read: yes."""
        return True

    def seekable(self) -> bool:
        """Return whether its position can be set: yes."""
        return True

    def tell(self) -> int:
        """Return the position in the segment."""
        return self._at - self._segment.begin

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position in the segment, and return it."""
        begin, end = self._segment.begin, self._segment.end
        self._at = max(begin, (begin, self._at, end)[whence] + offset)
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes; all that is left for a negative number."""
        left = self._segment.end - self._at
        if left <= 0:  # a damaged header may lead anywhere
            return b""
        self._content.seek(self._at)
        data = self._content.read(left if size < 0 else min(size, left))
        for place, patch in self._segment.patches.items():
            first, last = max(place, self._at), min(place + len(patch), self._at + len(data))
            if first < last:
                written = patch[first - place : last - place]
                data = data[: first - self._at] + written + data[last - self._at :]
        self._at += len(data)
        return data

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read into a buffer, and return how many bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
