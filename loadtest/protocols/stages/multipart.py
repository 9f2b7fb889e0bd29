"""The body of a form with one file (multipart/form-data), and the WAV file that carries the caller's speech."""

import struct
from collections.abc import Sequence
from typing import Final

_BOUNDARY: Final = b"voiceprobe-form-data"
WAV_HEADER_BYTES: Final = 44


def wav(pcm: bytes, rate_hz: int) -> bytes:
    """Return a WAV file of 16-bit mono samples."""
    byte_rate = rate_hz * 2
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        len(pcm) + WAV_HEADER_BYTES - 8,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        rate_hz,
        byte_rate,
        2,
        16,
        b"data",
        len(pcm),
    )
    return header + pcm


def form(fields: Sequence[tuple[str, str]], file: bytes) -> tuple[bytes, str]:
    """Return the body of a form with these fields and a file `file`, and its Content-Type."""
    boundary = _BOUNDARY
    while boundary in file:
        boundary += b"-"
    parts = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, name.encode(), value.encode())
        for name, value in fields
    ]
    head = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="speech.wav"\r\n' % boundary
    parts.append(head + b"Content-Type: audio/wav\r\n\r\n" + file + b"\r\n--%b--\r\n" % boundary)
    return b"".join(parts), f"multipart/form-data; boundary={boundary.decode()}"
