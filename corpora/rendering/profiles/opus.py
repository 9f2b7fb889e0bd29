"""Opus, packet by packet, with the decoder's own loss concealment, through the C API of the libopus that PyAV bundles.

PyAV decodes streams, in which a lost packet cannot be expressed; libopus itself can conceal one. The same version of
libopus gives the same bytes, so the version is part of the digest of a profile.
"""

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles.grid import Pcm16

PACKETS_PER_SECOND: Final = 50
_VOIP: Final = 2048
_SET_BITRATE, _SET_COMPLEXITY, _SET_SIGNAL, _GET_LOOKAHEAD = 4002, 4010, 4024, 4027
_SIGNAL_VOICE: Final = 3001
_COMPLEXITY: Final = 5
_MAX_PACKET_BYTES: Final = 1500


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("av")
    home = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    places = [] if home is None else [home.parent / "av.libs", home / ".dylibs"]
    bundled = [str(file) for place in places for file in sorted(place.glob("*opus*"))]
    system = ctypes.util.find_library("opus") if not bundled else None
    for name in [*bundled, *([system] if system else [])]:
        try:
            library = ctypes.CDLL(name)
            _declare(library)
        except (OSError, AttributeError):
            continue
        return library
    return None


def _declare(library: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for name, result, arguments in (
        ("opus_get_version_string", ctypes.c_char_p, []),
        ("opus_encoder_create", pointer, [number, number, number, pointer]),
        # A variadic function: only its fixed arguments are declared, because some ABIs pass the others differently.
        ("opus_encoder_ctl", number, [pointer, number]),
        ("opus_encode", number, [pointer, pointer, number, pointer, number]),
        ("opus_encoder_destroy", None, [pointer]),
        ("opus_decoder_create", pointer, [number, number, pointer]),
        ("opus_decode", number, [pointer, ctypes.c_char_p, number, pointer, number, number]),
        ("opus_decoder_destroy", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


def missing() -> str | None:
    """Return a sentence saying that libopus was not found, or None if it was."""
    return None if _library() is not None else "Opus needs libopus, which was not found; install PyAV or libopus."


def library_version() -> str:
    """The library's own name and version; `none` without a library."""
    library = _library()
    return "none" if library is None else library.opus_get_version_string().decode()


def through_opus(pcm: Pcm16, rate_hz: int, kbit: float, lost: Sequence[bool]) -> Pcm16:
    """Encode and decode PCM; returns the same number of samples with the codec's delay removed, shape (samples,).

    `rate_hz` is a rate that Opus supports. `lost` marks the packets of 20 ms that never arrive; the decoder conceals
    them. Raises CorpusError if there is no libopus or it returns an error.
    """
    library = _library()
    if library is None:
        raise CorpusError(str(missing()))
    size = rate_hz // PACKETS_PER_SECOND
    packets, lookahead = _encode(library, pcm, rate_hz, round(kbit * 1000), size)
    decoder = _create(library.opus_decoder_create, rate_hz, 1)
    decoded = np.zeros(len(packets) * size, dtype=np.int16)
    try:
        for number, packet in enumerate(packets):
            arrived = number >= len(lost) or not lost[number]
            place = decoded[number * size :].ctypes.data
            count = library.opus_decode(decoder, packet if arrived else None, len(packet) * arrived, place, size, 0)
            if count != size:
                raise CorpusError(f"libopus could not decode its own packet (code {count}); use another channel.")
    finally:
        library.opus_decoder_destroy(decoder)
    return decoded[lookahead : lookahead + len(pcm)]


def _encode(library: ctypes.CDLL, pcm: Pcm16, rate_hz: int, bitrate: int, size: int) -> tuple[list[bytes], int]:
    encoder = _create(library.opus_encoder_create, rate_hz, 1, _VOIP)
    try:
        for request, value in (
            (_SET_BITRATE, bitrate),
            (_SET_COMPLEXITY, _COMPLEXITY),
            (_SET_SIGNAL, _SIGNAL_VOICE),
        ):
            if library.opus_encoder_ctl(encoder, request, ctypes.c_int(value)) != 0:
                raise CorpusError(f"libopus rejected a bitrate of {bitrate} bit/s; use another bitrate.")
        delay = ctypes.c_int()
        library.opus_encoder_ctl(encoder, _GET_LOOKAHEAD, ctypes.byref(delay))
        count = -(-(len(pcm) + delay.value) // size)
        padded = np.zeros(count * size, dtype=np.int16)
        padded[: len(pcm)] = pcm
        buffer = ctypes.create_string_buffer(_MAX_PACKET_BYTES)
        packets: list[bytes] = []
        for number in range(count):
            written = library.opus_encode(encoder, padded[number * size :].ctypes.data, size, buffer, _MAX_PACKET_BYTES)
            if written < 0:
                raise CorpusError(f"libopus could not encode (code {written}); use another channel.")
            packets.append(buffer.raw[:written])
        return packets, delay.value
    finally:
        library.opus_encoder_destroy(encoder)


def _create(create: Any, *arguments: int) -> ctypes.c_void_p:
    error = ctypes.c_int()
    created = create(*arguments, ctypes.byref(error))
    if not created or error.value:
        raise CorpusError(f"libopus could not be initialized (code {error.value}); use another channel.")
    return ctypes.c_void_p(created)
