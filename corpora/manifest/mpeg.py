"""Counts the frames of MPEG audio and of AAC without a container, to find missing or incomplete ones.

The header of a frame gives its length (ISO/IEC 11172-3, 13818-3; ADTS: 13818-7). MP3 encoders put a first frame
before the others that contains their number and their size in bytes (Xing, Info, VBRI).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

_RATES_HZ: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_KBIT: Final = {
    (True, 3): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 3): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 1): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_BLOCK: Final = 1 << 20
_HEADER_BYTES: Final = 4
_WINDOW: Final = 2048  # more than a frame
_FEWEST_FRAMES: Final = 4  # that are more than a miscount of the header before
_ID3V1_BYTES, _APE_BYTES, _APE_IS_HEADER = 128, 32, 1 << 29


@dataclass(slots=True)
class _Window:
    """A buffered window of a file, so that not every access is a read."""

    content: BinaryIO
    begin: int = 0
    data: bytes = b""

    def at(self, place: int, length: int) -> bytes:
        """Return `length` bytes from a byte position on; fewer at the end of the file."""
        if not self.begin <= place <= place + length <= self.begin + len(self.data):
            self.content.seek(place)
            self.begin, self.data = place, self.content.read(_BLOCK)
        return self.data[place - self.begin : place - self.begin + length]


def mp3_truncation(content: BinaryIO, size: int) -> str | None:
    """Return what is missing from MPEG audio of any layer, as the end of a sentence; None if nothing is known to be."""
    window = _Window(content)
    at = _after_tags(window, 0)
    length = _mpeg_length(window.at(at, _HEADER_BYTES))
    if length is None:
        return None  # no frame, or one of free format: the decoder reports it
    stated = _stated_length(window.at(at, _WINDOW))
    first, frames = at, 0
    while at < size:
        header = window.at(at, _HEADER_BYTES)
        length = _mpeg_length(header)
        if length is None:
            if header.startswith(b"\xff") and len(header) < _HEADER_BYTES:
                return "it ends inside a frame"
            after = _after_tags(window, at)
            if after == at:
                break
            at = after
            continue
        if at + length > size:
            return "it ends inside a frame"
        frames, at = frames + 1, at + length
    if stated is None:
        return None
    wanted, bytes_wanted = stated
    held = frames - 1  # the first one contains no sound
    if held < wanted and (at < size or bytes_wanted is None or size - first < bytes_wanted):
        broken = f", and is no MPEG audio from byte {at} on" if at < size else ""
        return f"it promises {wanted} frames and holds {held}{broken}"
    return None


def mp3_parts(content: BinaryIO, size: int) -> Iterator[int]:
    """Yield the offsets of MP3 files that follow each other in one file.

    An MP3 file begins with its tag, with a first frame that states its length, or after the frames that the previous
    file states.
    """
    window, at, after_tag = _Window(content), 0, None
    left: int | None = None
    is_first = True
    while at < size:
        length = _mpeg_length(window.at(at, _HEADER_BYTES))
        if length is None:
            after = _after_end_tags(window, at)
            if after == at:
                return
            after_tag = at if after_tag is None else after_tag
            at = after
            continue
        stated = _stated_length(window.at(at, _WINDOW))
        is_over = left == 0 and size - at > _FEWEST_FRAMES * length
        if is_first or stated is not None or is_over:
            yield 0 if is_first else at if after_tag is None else after_tag
            left = None if stated is None else stated[0] + 1
            is_first = False
        left = None if left is None else left - 1
        at, after_tag = at + length, None


def skip_tags(content: BinaryIO) -> int:
    """Return where the ID3v2 tags at the beginning end; 0 where there are none."""
    return _after_tags(_Window(content), 0)


def _after_end_tags(window: _Window, at: int) -> int:
    """Like `_after_tags`, but also skips the tags at the end of a file: of ID3v1 and of APE."""
    if window.at(at, 3) == b"TAG":
        at += _ID3V1_BYTES
    elif window.at(at, 8) == b"APETAGEX":
        head = window.at(at, _APE_BYTES)
        has_header = bool(int.from_bytes(head[20:24], "little") & _APE_IS_HEADER)
        at += _APE_BYTES + (int.from_bytes(head[12:16], "little") if has_header else 0)
    return _after_tags(window, at)


def adts_truncation(content: BinaryIO, size: int) -> str | None:
    """Return what is missing from AAC without a container, as the end of a sentence; None if nothing is known to be."""
    window, at = _Window(content), 0
    while at < size:
        header = window.at(at, 7)
        if header[:1] != b"\xff" or (len(header) > 1 and header[1] & 0xF6 != 0xF0):
            return None
        length = 0 if len(header) < 7 else (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
        if len(header) < 7 or at + length > size:
            return "it ends inside a frame"
        if length < 7:
            return None
        at += length
    return None


def _after_tags(window: _Window, at: int) -> int:
    """Return where a tag that begins at a place ends: the same place where none does, and the end of the file for those
    that are at the end only."""
    while window.at(at, 3) == b"ID3":
        head = window.at(at, 10)
        if len(head) < 10:
            break
        length = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
        at += 10 + length + (10 if head[5] & 0x10 else 0)
    return at


def _mpeg_length(header: bytes) -> int | None:
    """Return the length of a frame in bytes, from its header; None if it is not a header or has no length."""
    if len(header) < _HEADER_BYTES or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return None
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    kbit, rate, padding = header[2] >> 4, header[2] >> 2 & 3, header[2] >> 1 & 1
    if version == 1 or layer == 0 or kbit in (0, 15) or rate == 3:
        return None
    bits, rate_hz = 1000 * _KBIT[version == 3, layer][kbit - 1], _RATES_HZ[version][rate]
    if layer == 3:
        return (12 * bits // rate_hz + padding) * 4
    samples = 576 if layer == 1 and version != 3 else 1152
    return samples // 8 * bits // rate_hz + padding


def _stated_length(frame: bytes) -> tuple[int, int | None] | None:
    """Return how many frames follow the first one, and their bytes including it; None if the first does not say."""
    mono = frame[3] >> 6 == 3
    side = (17 if mono else 32) if frame[1] >> 3 & 3 == 3 else (9 if mono else 17)
    tag = frame[4 + side :]
    if tag[:4] in (b"Xing", b"Info") and len(tag) >= 16:
        flags = tag[7]
        if not flags & 1:
            return None
        size = int.from_bytes(tag[12:16], "big") if flags & 2 else None
        return int.from_bytes(tag[8:12], "big"), size
    if frame[36:40] == b"VBRI" and len(frame) >= 54:
        # Some count the first frame too.
        return int.from_bytes(frame[50:54], "big") - 1, int.from_bytes(frame[46:50], "big")
    return None
