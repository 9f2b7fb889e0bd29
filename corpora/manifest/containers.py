"""The recordings in a file: where each begins and ends, what is missing from it, and sizes that were never filled in.

`cat a.mp3 b.mp3`, a chained Ogg stream and a WAV header that covers its first piece are valid, or usual, and decoders
read the first part of them only. Nor do they report what is missing: a WAV, MP3 or Opus file whose second half is cut
off decodes without an error, though its container states the size. So a file is divided here into its recordings, each
of which a decoder reads to its end; each is checked against the size that it states, by its headers alone; and sizes
that a streaming program left open are those of the file. A container that states no size is taken to be complete.
"""

import io
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import BinaryIO, Final, cast

from corpora.manifest.mpeg import adts_truncation, mp3_parts, mp3_truncation, skip_tags

HEAD_BYTES: Final = 1_024  # the longest header that is looked at: that of NIST SPHERE
_BLOCK: Final = 1 << 20
_MOST_PARTS: Final = 256
_MOST_HEADERS: Final = 4_000_000
# Programs that do not know the size yet write this or more: two thousand million, 2^31 or 2^32, 2^63 or 2^64.
_UNKNOWN_32: Final = 1_900_000_000
_UNKNOWN_64: Final = 1 << 60
# What begins like this behind the samples is no sound: a packet of XMP, a signature.
_TEXT, _TEXT_BYTES = frozenset((9, 10, 13, *range(32, 127))), 32
_FLAC_START: Final = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")
_AMR_START: Final = re.compile(rb"#!AMR(?:-WB)?\n")
_MARK_BYTES: Final = 9  # of the longest
_AMR_BYTES: Final = (13, 14, 16, 18, 20, 21, 27, 32, 6, 1, 1, 1, 1, 1, 1, 1)
_AMR_WB_BYTES: Final = (18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 1, 1, 1, 1, 1, 1)
_OGG_BEGINNING, _OGG_EOS = 2, 4
_OGG_SOUND: Final = (b"\x01vorbis", b"OpusHead", b"\x7fFLAC", b"Speex")
_RIFF_NAMES: Final = (b"RIFF", b"RF64", b"BW64", b"RIFX")
_GUID_ASF: Final = b"0&\xb2u\x8ef\xcf\x11\xa6\xd9\x00\xaa\x00b\xcel"
_GUID_DATA: Final = b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0O\x8e\xdb\x8a"
_MATROSKA: Final = b"\x1aE\xdf\xa3"
_MATROSKA_SEGMENT: Final = 0x18538067
# Chunks that come after the samples, also outside of the size that the header states.
_CHUNKS: Final = frozenset(
    (*(b"LIST", b"C2PA", b"fact", b"bext", b"iXML", b"id3 ", b"ID3 ", b"JUNK", b"junk", b"FLLR", b"PAD ", b"cue "),
     *(b"smpl", b"inst", b"acid", b"PEAK", b"afsp", b"_PMX", b"cart", b"axml", b"chna", b"umid", b"DISP"))
)  # fmt: skip


_Starts = Callable[[BinaryIO, int, int], Iterator[int]]
_Check = Callable[[BinaryIO, int], str | None]


@dataclass(frozen=True, slots=True)
class FileSegment:
    """One recording in a file: its bytes, and what is written over them, by position in the file.

    `loss` is what of it a decoder would leave out, `missing` what is missing from it, each as the end of a sentence.
    """

    begin: int
    end: int
    patches: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    loss: str | None = None
    missing: str | None = None


def find_segments(content: BinaryIO) -> list[FileSegment]:
    """The recordings in a file, at least one. Its position is then its beginning."""
    size = content.seek(0, 2)
    try:
        begin = skip_tags(content)
        segments = _segments(content, begin if begin < size else 0, size)  # a tag beyond the file is damaged
    except (struct.error, IndexError):
        segments = []  # it ends inside a header: its decoder reports that
    checked = [_checked(content, segment) for segment in segments or [FileSegment(0, size)]]
    content.seek(0)
    return checked


def _segments(content: BinaryIO, begin: int, size: int) -> list[FileSegment]:
    head = _read(content, begin, 12)
    if head[:4] in _RIFF_NAMES and head[8:12] == b"WAVE":
        return list(_waves(content, begin, size))
    if head[:1] == b"\xff" and head[1] & 0xF6 != 0xF0:
        starts = mp3_parts(content, size)
    elif head[4:8] == b"ftyp":
        starts = _movies(content, begin, size)
    else:
        find = next((find for magic, find, _ in _CONTAINERS if head.startswith(magic)), None)
        starts = iter((begin,)) if find is None else find(content, begin, size)
    begins = list(islice(starts, _MOST_PARTS + 1)) or [0]
    if len(begins) > _MOST_PARTS:
        return [FileSegment(begins[0], size, loss=f"contains more than {_MOST_PARTS} recordings")]
    return [FileSegment(first, last) for first, last in zip(begins, [*begins[1:], size], strict=True)]


def _checked(content: BinaryIO, segment: FileSegment) -> FileSegment:
    """A segment with what is missing from it, if it states more than it holds."""
    head = _read(content, segment.begin, 12)
    check = next((check for magic, _, check in _CONTAINERS if head.startswith(magic)), None)
    if head[4:8] == b"ftyp":
        check = _mp4
    elif head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xE0 == 0xE0:
        check = adts_truncation if head[1] & 0xF6 == 0xF0 else mp3_truncation
    try:
        if head.startswith(b"riff"):
            segment = _closed_wave64(content, segment)
        elif head.startswith(b"OggS"):
            segment = _with_one_track(content, segment)
        view = SegmentFile(content, segment)
        missing = None if check is None else check(cast("BinaryIO", view), segment.end - segment.begin)
    except (struct.error, IndexError):
        return segment  # it ends inside a header: its decoder reports that
    return replace(segment, missing=missing) if missing else segment


def _read(content: BinaryIO, at: int, length: int) -> bytes:
    content.seek(at)
    return content.read(length)


def _promised(promised: int, held: int) -> str | None:
    return f"it promises {promised} bytes of sound and holds {held}" if held < promised else None


def _chunks(content: BinaryIO, at: int, size: int, layout: str, align: int = 2) -> Iterator[tuple[bytes, int, int]]:
    """The chunks of a RIFF-like file from a position on: name, where its content begins, and how long that is."""
    header = struct.Struct(layout)
    for _ in range(_MOST_HEADERS):
        if at + header.size > size:
            return
        name, length = header.unpack(_read(content, at, header.size))
        yield name, at + header.size, length
        at += header.size + length + (-length % align)


def _objects(content: BinaryIO, at: int, size: int, align: int = 1) -> Iterator[tuple[bytes, int, int]]:
    """The objects of ASF, or the chunks of Wave64, from a position on: GUID, where it begins, its whole length."""
    while at + 24 <= size:
        name, length = struct.unpack("<16sQ", _read(content, at, 24))
        yield name, at, length
        if align == 8 and name.startswith(b"riff"):
            length = 40  # another file begins here, with its chunks inside
        if length < 24:
            return
        at += length + -length % align


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
    name, riff_size = struct.unpack("<4sI", _read(content, begin, 8))
    order, whole, bytes_a_second, data, length = (">" if name == b"RIFX" else "<"), None, 0, 0, 0
    for chunk, at, chunk_bytes in _chunks(content, begin + 12, size, f"{order}4sI"):
        if chunk == b"ds64":
            (whole,) = struct.unpack("<Q", _read(content, at + 8, 8))
        if chunk == b"fmt ":
            (bytes_a_second,) = struct.unpack(f"{order}I", _read(content, at + 8, 4))
        if chunk == b"data":
            data, length = at, chunk_bytes
            break
    if not data:
        return FileSegment(begin, size)
    promised = length if whole is None or name not in (b"RF64", b"BW64") else whole
    limit = _UNKNOWN_32 if whole is None else _UNKNOWN_64
    is_stated = promised > 0 and (promised <= size - data or promised < limit)
    if is_stated and data + promised > size:
        return FileSegment(begin, size, missing=_promised(promised, size - data))
    file_end = begin + 8 + riff_size if 0 < riff_size < _UNKNOWN_32 else size
    least = bytes_a_second // 10
    end = _next_file(content, data + promised, size, file_end, order, least=least) if is_stated else None
    if end is not None:
        segment = FileSegment(begin, abs(end), {begin: b"RF64"} if name == b"BW64" else {})
        return segment if end > 0 else replace(segment, loss="contains more than one chunk of samples")
    held = size - data
    if held >= _UNKNOWN_32 or (is_stated and data + promised >= size):
        return FileSegment(begin, size)
    patches = {begin + 4: struct.pack(f"{order}I", size - begin - 8), data - 4: struct.pack(f"{order}I", held)}
    return FileSegment(begin, size, patches | ({} if name == b"RIFX" else {begin: b"RIFF"}))


def _next_file(content: BinaryIO, at: int, size: int, file_end: int, order: str, *, least: int) -> int | None:
    """Return where the file ends whose samples end at a place: with its last chunk. None if samples follow them
    instead, at least so many bytes, and negative if another chunk of samples does."""
    padded = _read(content, at, 1) == b"\0" and at % 2 == 1
    at += padded
    while at + 8 <= size:
        head = _read(content, at, 12)
        name, length = struct.unpack(f"{order}4sI", head[:8])
        if name in _RIFF_NAMES and head[8:] == b"WAVE":
            return at
        if name == b"data":
            return -size
        is_chunk = name in _CHUNKS or (at + 8 <= file_end and name.strip().isalnum())
        if not is_chunk and name[:3] != b"TAG":
            rest = _read(content, at, _BLOCK)
            is_text = all(byte in _TEXT for byte in rest[:_TEXT_BYTES])
            return size if len(rest) < least or is_text or not rest.strip(b"\0") else None
        at += size if name[:3] == b"TAG" else 8 + length + length % 2
    return size


def _wave64_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where Wave64 files begin: behind the chunks of the one before, unless its size was left open."""
    yield begin
    yield from (at for name, at, _ in _objects(content, begin + 40, size, 8) if name.startswith(b"riff"))


def _closed_wave64(content: BinaryIO, segment: FileSegment) -> FileSegment:
    """A Wave64 file with the sizes of its bytes in the place of those that were left open."""
    begin, end = segment.begin, segment.end
    for name, at, length in _objects(content, begin + 40, end, 8):
        if name == _GUID_DATA:
            if 24 < length < _UNKNOWN_64:
                return segment
            sizes = {begin + 16: struct.pack("<Q", end - begin), at + 16: struct.pack("<Q", end - at)}
            return replace(segment, patches=sizes)
    return segment


def _wave64(content: BinaryIO, size: int) -> str | None:
    for name, at, length in _objects(content, 40, size, 8):
        if name.startswith(b"data"):
            return None if length >= _UNKNOWN_64 else _promised(length - 24, size - at - 24)
    return None


def _repeated(content: BinaryIO, at: int, size: int, length: Callable[[bytes], int | None]) -> Iterator[int]:
    """Yield where files begin whose headers state the length of the whole; None from `length` for another header."""
    while at < size:
        whole = length(_read(content, at, HEAD_BYTES))
        if whole is None:
            return
        yield at
        at += max(1, whole)


def _aiff_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where AIFF files begin, each behind the one before."""

    def whole(head: bytes) -> int | None:
        name, length, kind = struct.unpack(">4sI4s", head[:12].ljust(12))
        return 8 + length + length % 2 if name == b"FORM" and kind in (b"AIFF", b"AIFC") else None

    yield from _repeated(content, begin, size, whole)


def _aiff(content: BinaryIO, size: int) -> str | None:
    sound = (_promised(length, size - at) for name, at, length in _chunks(content, 12, size, ">4sI") if name == b"SSND")
    return next(sound, None)


def _au_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where AU files begin, each behind the samples that the one before promises."""

    def whole(head: bytes) -> int | None:
        return sum(struct.unpack(">II", head[4:12])) if head.startswith(b".snd") else None

    yield from _repeated(content, begin, size, whole)


def _au(content: BinaryIO, size: int) -> str | None:
    begin, length = struct.unpack(">4xII", _read(content, 0, 12))
    return None if length >= _UNKNOWN_32 else _promised(length, size - begin)


def nist_fields(head: bytes) -> dict[str, str]:
    """Return the fields of a NIST SPHERE header, and under `header` its length in bytes."""
    lines = head.decode("latin-1").split("\n")
    fields = {"header": lines[1].strip()} if len(lines) > 1 else {}
    for line in lines[2:]:
        words = line.split(None, 2)
        if len(words) == 3:
            fields[words[0]] = words[2].strip()
    return fields


def _nist_sizes(head: bytes) -> tuple[int, int] | None:
    """Return offset and size in bytes of the samples of a NIST SPHERE file; None if its header does not state them."""
    fields = nist_fields(head)
    try:
        samples = int(fields["sample_count"]) * int(fields.get("channel_count", "1"))
        return int(fields["header"]), samples * int(fields["sample_n_bytes"])
    except (KeyError, ValueError):
        return None


def _nist_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where NIST SPHERE files begin, each behind the samples that the one before promises."""

    def whole(head: bytes) -> int | None:
        return sum(_nist_sizes(head) or (size,)) if head.startswith(b"NIST_1A") else None

    yield from _repeated(content, begin, size, whole)


def _nist(content: BinaryIO, size: int) -> str | None:
    head = _read(content, 0, HEAD_BYTES)
    sizes = _nist_sizes(head)
    # Compressed, it does not say into how many bytes.
    if sizes is None or "," in nist_fields(head).get("sample_coding", ""):
        return None
    return _promised(sizes[1], size - sizes[0])


def _caf_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where CAF files begin: in the place of a chunk of the one before."""
    yield begin
    at = begin + 8
    while at + 12 <= size:
        name, length = struct.unpack(">4sq", _read(content, at, 12))
        if name == b"caff":
            yield at
            at += 8
        elif length < 0:
            return
        else:
            at += 12 + length


def _caf(content: BinaryIO, size: int) -> str | None:
    for name, at, length in _chunks(content, 8, size, ">4sq", 1):
        if length < 0:
            return None
        if name == b"data":
            return _promised(length, size - at)
    return None


def _asf_starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where ASF files begin: with a header among the objects at the top."""
    yield from (at for name, at, _ in _objects(content, begin, size) if name == _GUID_ASF)


def _asf(content: BinaryIO, size: int) -> str | None:
    cut = (_promised(length, size - at) for _, at, length in _objects(content, 0, size) if at + length > size)
    return next(cut, None)


def _boxes(content: BinaryIO, at: int, size: int) -> Iterator[tuple[bytes, int, int]]:
    """The boxes of an MP4 file from a position on: name, where it begins, its whole length (0: to the end)."""
    while at + 8 <= size:
        length, name = struct.unpack(">I4s", _read(content, at, 8))
        if length == 1:
            (length,) = struct.unpack(">Q", content.read(8))
        yield name, at, length
        if length < 8:
            return
        at += length


def _movies(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where MP4 files begin: each with a box `ftyp`, also with boxes of fragments between them."""
    yield from (at for name, at, _ in _boxes(content, begin, size) if name == b"ftyp")


def _mp4(content: BinaryIO, size: int) -> str | None:
    end = 0
    for name, at, length in _boxes(content, 0, size):
        if length < 8:
            return None  # to the end of the file
        if at + length > size:
            box = name.decode("latin-1") if name.isalnum() else "last"
            return f"its {box} box promises {length} bytes and holds {size - at}"
        end = at + length
    return None if end == size else "it ends inside a box of its container"


def has_fragments(content: BinaryIO) -> bool:
    """Return whether an MP4 file has fragments: its list of edits is then that of the first one. Its position is
    kept."""
    place, size = content.tell(), content.seek(0, 2)
    try:
        return any(name == b"moof" for name, _, _ in _boxes(content, 0, size))
    finally:
        content.seek(place)


def _matroska(content: BinaryIO, size: int) -> str | None:
    at = 0
    while at < size:
        head = _read(content, at, 12)
        width = 9 - head[0].bit_length()
        name = int.from_bytes(head[:width], "big")
        long = 9 - head[width].bit_length()
        length = int.from_bytes(head[width : width + long], "big") & ((1 << 7 * long) - 1)
        begin = at + width + long
        if length == (1 << 7 * long) - 1 or width > 4 or long > 8:
            return None  # unknown, as in a recording that was streamed
        if name == _MATROSKA_SEGMENT:
            return _promised(length, size - begin)
        at = begin + length
    return None


def _ogg_links(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
    """Yield where the links of an Ogg stream begin: with the first pages of new streams after others."""
    at, in_link = begin, False
    while at + 27 <= size:
        magic, flags, segments = struct.unpack("<4sxB20xB", _read(content, at, 27))
        if magic != b"OggS":
            return
        begins = bool(flags & _OGG_BEGINNING)
        if begins and (in_link or at == begin):
            yield at
        in_link = not begins
        at += 27 + segments + sum(content.read(segments))


def _with_one_track(content: BinaryIO, segment: FileSegment) -> FileSegment:
    """A link of an Ogg stream; several parallel tracks are a loss, since one would be decoded."""
    at, tracks = segment.begin, 0
    while at + 27 <= segment.end:
        flags, segments = struct.unpack("<5xB20xB", _read(content, at, 27))
        body = sum(content.read(segments))
        if not flags & _OGG_BEGINNING:
            break
        tracks += content.read(8).startswith(_OGG_SOUND)
        at += 27 + segments + body
    return segment if tracks < 2 else replace(segment, loss=f"contains {tracks} audio tracks")


def _ogg(content: BinaryIO, size: int) -> str | None:
    """Check that each stream has its last page and that no page before it is missing."""
    at, open_streams, numbers = 0, set[int](), dict[int, int]()
    for _ in range(_MOST_HEADERS):
        if at == size:
            break
        head = _read(content, at, 27)
        if len(head) < 27:
            return "it ends inside a page"
        magic, flags, serial, number, segments = struct.unpack("<4sxB8xII4xB", head)
        if magic != b"OggS":
            return "between its pages is something else" if at else None
        at += 27 + segments + sum(content.read(segments))
        if at > size:
            return "it ends inside a page"
        if numbers.get(serial, number - 1) != number - 1:
            return "pages in its middle are missing"
        numbers[serial] = number
        open_streams.add(serial)
        if flags & _OGG_EOS:
            open_streams.discard(serial)
            numbers.pop(serial)
    return "its last page is missing" if open_streams else None


def _marks(mark: re.Pattern[bytes]) -> _Starts:
    """Find a mark that is too long to occur by chance, in files that do not state their length."""

    def starts(content: BinaryIO, begin: int, size: int) -> Iterator[int]:
        at, kept = begin, b""
        while at < size:
            block = _read(content, at, _BLOCK)
            data = kept + block
            yield from (at - len(kept) + match.start() for match in mark.finditer(data) if match.end() > len(kept))
            kept, at = data[-(_MARK_BYTES - 1) :], at + len(block)

    return starts


def _amr(content: BinaryIO, size: int) -> str | None:
    wide = _read(content, 0, 9) == b"#!AMR-WB\n"
    at, lengths = (9, _AMR_WB_BYTES) if wide else (6, _AMR_BYTES)
    data = _read(content, at, size)
    frame = 0
    while frame < len(data):
        frame += lengths[data[frame] >> 3 & 15]
    return "it ends inside a frame" if at + frame > size else None


# By the first bytes of a file: where the recordings in it begin (None: there is one), and what is missing from one.
_CONTAINERS: Final[tuple[tuple[bytes, _Starts | None, _Check | None], ...]] = (
    (b"riff", _wave64_starts, _wave64),
    (b"FORM", _aiff_starts, _aiff),
    (b"OggS", _ogg_links, _ogg),
    (b"fLaC", _marks(_FLAC_START), None),
    (b".snd", _au_starts, _au),
    (b"NIST_1A", _nist_starts, _nist),
    (b"caff", _caf_starts, _caf),
    (_GUID_ASF[:12], _asf_starts, _asf),
    (b"#!AMR", _marks(_AMR_START), _amr),
    (_MATROSKA, None, _matroska),
    (b"ID3", None, mp3_truncation),
)


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
        data = _read(self._content, self._at, left if size < 0 else min(size, left))
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
