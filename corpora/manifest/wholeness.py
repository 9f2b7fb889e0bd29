"""Finds truncated recordings: compares the size that a container declares with the bytes of the file.

Decoders read what there is and do not report the rest: a WAV, MP3 or Opus file whose second half is missing decodes
without an error. The container declares its size. Each check reads headers only; a container that does not declare
its size (because it was streamed) is taken to be complete.
"""

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from corpora.manifest.mpeg import adts_truncation, mp3_truncation

HEAD_BYTES: Final = 1_024  # the longest header that is looked at: that of NIST SPHERE
# Programs that do not know the size yet write this or more: two thousand million, 2^31 or 2^32, 2^63 or 2^64.
UNKNOWN_32: Final = 1_900_000_000
UNKNOWN_64: Final = 1 << 60
_OGG_EOS: Final = 4
_AMR_BYTES: Final = (13, 14, 16, 18, 20, 21, 27, 32, 6, 1, 1, 1, 1, 1, 1, 1)
_AMR_WB_BYTES: Final = (18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 1, 1, 1, 1, 1, 1)
_SEGMENT: Final = 0x18538067
_MOST_HEADERS: Final = 4_000_000


def find_truncation(content: BinaryIO, head: bytes) -> str | None:
    """Return what is missing from a recording, as the end of a sentence; None if nothing is known to be.

    `head` are its first bytes. The position of the file is then its beginning.
    """
    check = next((check for magic, check in _CHECKS if head.startswith(magic)), None)
    if check is None and head[4:8] == b"ftyp":
        check = _mp4
    if check is None and len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        check = adts_truncation if head[1] & 0xF6 == 0xF0 else mp3_truncation
    size = content.seek(0, 2)
    content.seek(0)
    try:
        return None if check is None else check(content, size)
    except (struct.error, IndexError):
        return None  # it ends inside a header: its decoder reports that
    finally:
        content.seek(0)


def _promised(promised: int, held: int) -> str | None:
    return f"it promises {promised} bytes of sound and holds {held}" if held < promised else None


def _chunks(content: BinaryIO, size: int, layout: str, align: int = 2) -> Iterator[tuple[bytes, int, int]]:
    """The chunks of a RIFF-like file from its position: name, where its content begins, and how long that is."""
    header = struct.Struct(layout)
    at = content.tell()
    for _ in range(_MOST_HEADERS):
        if at + header.size > size:
            return
        content.seek(at)
        name, length = header.unpack(content.read(header.size))
        yield name, at + header.size, length
        at += header.size + length + (-length % align)


def _wave(content: BinaryIO, size: int) -> str | None:
    head = content.read(12)
    whole: int | None = None  # of the data, where RF64 keeps it
    for name, begin, length in _chunks(content, size, ">4sI" if head.startswith(b"RIFX") else "<4sI"):
        if name == b"ds64":
            content.seek(begin + 8)
            (whole,) = struct.unpack("<Q", content.read(8))
        if name == b"data":
            promised = whole if head.startswith(b"RF64") and whole is not None else length
            unknown = promised == 0 or (whole is None and promised >= UNKNOWN_32)
            return None if unknown else _promised(promised, size - begin)
    return None


def _wave64(content: BinaryIO, size: int) -> str | None:
    at = 40
    while at + 24 <= size:
        content.seek(at)
        name, length = struct.unpack("<4s12xQ", content.read(24))
        if length < 24:
            return None
        if name == b"data":
            return None if length >= UNKNOWN_64 else _promised(length - 24, size - at - 24)
        at += length + -length % 8
    return None


def _aiff(content: BinaryIO, size: int) -> str | None:
    content.seek(12)
    for name, begin, length in _chunks(content, size, ">4sI"):
        if name == b"SSND":
            return _promised(length, size - begin)
    return None


def _au(content: BinaryIO, size: int) -> str | None:
    begin, length = struct.unpack(">4xII", content.read(12))
    return None if length >= UNKNOWN_32 else _promised(length, size - begin)


def _caf(content: BinaryIO, size: int) -> str | None:
    content.seek(8)
    for name, begin, length in _chunks(content, size, ">4sq", 1):
        if length < 0:
            return None
        if name == b"data":
            return _promised(length, size - begin)
    return None


def _mp4(content: BinaryIO, size: int) -> str | None:
    at = 0
    for _ in range(_MOST_HEADERS):
        content.seek(at)
        if at + 8 > size:
            return None if at == size else "it ends inside a box of its container"
        length, name = struct.unpack(">I4s", content.read(8))
        if length == 1:
            (length,) = struct.unpack(">Q", content.read(8))
        if length == 0:
            return None  # to the end of the file
        if length < 8:
            return None
        if at + length > size:
            box = name.decode("latin-1") if name.isalnum() else "last"
            return f"its {box} box promises {length} bytes and holds {size - at}"
        at += length
    return None


def _matroska(content: BinaryIO, size: int) -> str | None:
    at = 0
    while at < size:
        content.seek(at)
        head = content.read(12)
        width = 9 - head[0].bit_length()
        name = int.from_bytes(head[:width], "big")
        long = 9 - head[width].bit_length()
        length = int.from_bytes(head[width : width + long], "big") & ((1 << 7 * long) - 1)
        begin = at + width + long
        if length == (1 << 7 * long) - 1 or width > 4 or long > 8:
            return None  # unknown, as in a recording that was streamed
        if name == _SEGMENT:
            return _promised(length, size - begin)
        at = begin + length
    return None


def _asf(content: BinaryIO, size: int) -> str | None:
    at = 0
    while at + 24 <= size:
        content.seek(at + 16)
        (length,) = struct.unpack("<Q", content.read(8))
        if length < 24:
            return None
        if at + length > size:
            return _promised(length, size - at)
        at += length
    return None


def _ogg(content: BinaryIO, size: int) -> str | None:
    """Check that each stream has its last page and that no page before it is missing."""
    at, open_streams, numbers = 0, set[int](), dict[int, int]()
    for _ in range(_MOST_HEADERS):
        if at == size:
            break
        content.seek(at)
        head = content.read(27)
        if len(head) < 27:
            return "it ends inside a page"
        magic, flags, serial, number, segments = struct.unpack("<4sxB8xII4xB", head)
        if magic != b"OggS":
            return "between its pages is something else" if at else None
        body = sum(content.read(segments))
        at += 27 + segments + body
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


def _amr(content: BinaryIO, size: int) -> str | None:
    wide = content.read(9) == b"#!AMR-WB\n"
    at, lengths = (9, _AMR_WB_BYTES) if wide else (6, _AMR_BYTES)
    content.seek(at)
    data = content.read()
    frame = 0
    while frame < len(data):
        frame += lengths[data[frame] >> 3 & 15]
    return "it ends inside a frame" if at + frame > size else None


def _nist(content: BinaryIO, size: int) -> str | None:
    fields = nist_fields(content.read(HEAD_BYTES))
    if "," in fields.get("sample_coding", ""):
        return None  # compressed: it does not say into how many bytes
    try:
        begin = int(fields["header"])
        promised = int(fields["sample_count"]) * int(fields.get("channel_count", "1")) * int(fields["sample_n_bytes"])
    except (KeyError, ValueError):
        return None
    return _promised(promised, size - begin)


def nist_fields(head: bytes) -> dict[str, str]:
    """Return the fields of a NIST SPHERE header, and under `header` its length in bytes."""
    lines = head.decode("latin-1").split("\n")
    fields = {"header": lines[1].strip()} if len(lines) > 1 else {}
    for line in lines[2:]:
        words = line.split(None, 2)
        if len(words) == 3:
            fields[words[0]] = words[2].strip()
    return fields


_CHECKS: Final[tuple[tuple[bytes, Callable[[BinaryIO, int], str | None]], ...]] = (
    (b"RIFF", _wave),
    (b"RIFX", _wave),
    (b"RF64", _wave),
    (b"riff", _wave64),
    (b"FORM", _aiff),
    (b".snd", _au),
    (b"caff", _caf),
    (b"OggS", _ogg),
    (b"\x1aE\xdf\xa3", _matroska),
    (b"0&\xb2u", _asf),
    (b"#!AM", _amr),
    (b"NIST_1A", _nist),
    (b"ID3", mp3_truncation),
)
