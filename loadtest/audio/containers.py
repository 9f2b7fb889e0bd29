"""Audio files by their first bytes, for audio that should have none: raw PCM and G.711. Pure."""

from typing import Final

# The longest beginning that is looked at, except of MPEG audio.
HEADER_BYTES: Final = 12
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


def container_of(start: bytes) -> str | None:
    """The name of the audio file that begins with these bytes; None if they begin none, or may be too few to tell."""
    for magic, name in _STARTS:
        if start.startswith(magic):
            return name
    for inner, name in _NAMED.get(start[:4], ()):
        if len(start) >= HEADER_BYTES and start[8:HEADER_BYTES].startswith(inner):
            return name
    if start[:3] == b"\0\0\0" and start[4:8] == b"ftyp":
        return "MP4"
    return "MP3" if _is_mpeg(start) else None


def may_become_container(start: bytes) -> bool:
    """Whether more bytes could make `container_of` find one where it does not find any yet."""
    if any(len(start) < len(magic) and magic.startswith(start) for magic, _ in _STARTS):
        return True
    if len(start) < HEADER_BYTES and any(start[:4] == magic[: len(start)] for magic in _NAMED):
        return True
    if len(start) < 8 and b"\0\0\0".startswith(start[:3]) and b"ftyp".startswith(start[4:]):
        return True
    if start[:1] == b"\xff" and len(start) < 4:
        return len(start) == 1 or start[1] & 0xE6 == 0xE2
    size = _frame_bytes(start)
    return size is not None and len(start) < size + 4


def _is_mpeg(start: bytes) -> bool:
    """Whether two frames of MP3 follow each other: one sync word may be a sample."""
    size = _frame_bytes(start)
    return size is not None and len(start) >= size + 4 and _frame_bytes(start[size:]) is not None


def _frame_bytes(start: bytes) -> int | None:
    """The length of the frame of MPEG audio, layer III, that begins here; None if none does."""
    if len(start) < 4 or start[0] != 0xFF or start[1] & 0xE6 != 0xE2:
        return None
    rates = _MPEG_RATES_HZ.get(start[1] >> 3 & 3)
    kbps, rate, padding = start[2] >> 4, start[2] >> 2 & 3, start[2] >> 1 & 1
    if rates is None or not 0 < kbps < 15 or rate == 3:
        return None
    is_first = rates is _MPEG_RATES_HZ[3]
    return (144 if is_first else 72) * _MPEG_KBPS[1 if is_first else 2][kbps - 1] * 1000 // rates[rate] + padding
