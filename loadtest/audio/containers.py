"""Audio files by their first bytes, for audio that should have none: raw PCM and G.711. Pure."""

from collections.abc import Callable
from typing import Final

# The longest beginning that is looked at, except of MPEG audio.
HEADER_BYTES: Final = 12
_FRAME_HEADER_BYTES: Final = 7  # that of AAC; the one of MP3 has 4
_STARTS: Final = (
    *((b"OggS", "Ogg"), (b"ID3", "MP3"), (b"fLaC", "FLAC"), (b"\x1aE\xdf\xa3", "WebM"), (b"caff", "CAF")),
    *((b"#!AMR", "AMR"), (b".snd", "AU"), (b"0&\xb2u\x8ef\xcf\x11", "WMA")),
)
# A name in the first four bytes counts with the one that follows the length: of RIFF, AIFF and MP4.
_NAMED: Final = {
    b"RIFF": ((b"WAVE", "WAV"), (b"", "RIFF")),
    b"RIFX": ((b"", "RIFF"),),
    b"RF64": ((b"WAVE", "WAV"),),
    b"BW64": ((b"WAVE", "WAV"),),
    b"FORM": ((b"AIFF", "AIFF"), (b"AIFC", "AIFF")),
}
_MPEG_KBPS: Final = {
    1: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MPEG_RATES_HZ: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}


def container_of(start: bytes, *, by_frames: bool = True) -> str | None:
    """The name of the audio file that begins with these bytes; None if they begin none, or may be too few to tell.

    Without `by_frames`, only a file with a header counts: of G.711, quiet samples can look like a frame of MPEG.
    """
    for magic, name in _STARTS:
        if start.startswith(magic):
            return name
    for inner, name in _NAMED.get(start[:4], ()):
        if len(start) >= HEADER_BYTES and start[8:HEADER_BYTES].startswith(inner):
            return name
    if start[:3] == b"\0\0\0" and start[4:8] == b"ftyp":
        return "MP4"
    frames = _FRAMES if by_frames else ()
    return next((name for name, frame_bytes in frames if _is_two_frames(start, frame_bytes)), None)


def may_become_container(start: bytes, *, by_frames: bool = True) -> bool:
    """Return whether more bytes could make `container_of` find one where it does not find any yet."""
    if any(len(start) < len(magic) and magic.startswith(start) for magic, _ in _STARTS):
        return True
    if len(start) < HEADER_BYTES and any(start[:4] == magic[: len(start)] for magic in _NAMED):
        return True
    if len(start) < 8 and b"\0\0\0".startswith(start[:3]) and b"ftyp".startswith(start[4:]):
        return True
    if not by_frames:
        return False
    if start[:1] == b"\xff" and len(start) < _FRAME_HEADER_BYTES:
        return len(start) == 1 or start[1] & 0xE6 == 0xE2 or start[1] & 0xF6 == 0xF0
    sizes = [size for _, frame_bytes in _FRAMES if (size := frame_bytes(start)) is not None]
    return bool(sizes) and len(start) < sizes[0] + _FRAME_HEADER_BYTES


def _is_two_frames(start: bytes, frame_bytes: Callable[[bytes], int | None]) -> bool:
    """Return whether two frames follow each other: one sync word may be a sample."""
    size = frame_bytes(start)
    if size is None or len(start) < size + _FRAME_HEADER_BYTES:
        return False
    return frame_bytes(start[size:]) is not None


def _adts_bytes(start: bytes) -> int | None:
    """The length of the ADTS frame of AAC that begins here; None if none does."""
    if len(start) < _FRAME_HEADER_BYTES or start[0] != 0xFF or start[1] & 0xF6 != 0xF0 or start[2] >> 2 & 15 > 12:
        return None
    size = (start[3] & 3) << 11 | start[4] << 3 | start[5] >> 5
    return size if size > _FRAME_HEADER_BYTES else None


def _mp3_bytes(start: bytes) -> int | None:
    """The length of the frame of MPEG audio, layer III, that begins here; None if none does."""
    if len(start) < _FRAME_HEADER_BYTES or start[0] != 0xFF or start[1] & 0xE6 != 0xE2:
        return None
    rates = _MPEG_RATES_HZ.get(start[1] >> 3 & 3)
    kbps, rate, padding = start[2] >> 4, start[2] >> 2 & 3, start[2] >> 1 & 1
    if rates is None or not 0 < kbps < 15 or rate == 3:
        return None
    is_first = rates is _MPEG_RATES_HZ[3]
    return (144 if is_first else 72) * _MPEG_KBPS[1 if is_first else 2][kbps - 1] * 1000 // rates[rate] + padding


_FRAMES: Final = (("MP3", _mp3_bytes), ("AAC", _adts_bytes))
