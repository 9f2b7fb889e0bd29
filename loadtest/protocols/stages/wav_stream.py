"""The samples of a WAV file that arrives in pieces. Pure: no I/O.

Lengths in the header are not used, since a stream does not know its own.
"""

import struct
from typing import Final

_MAX_HEADER_BYTES: Final = 64 * 2**10
_PCM: Final = 1
_EXTENSIBLE: Final = 0xFFFE


class WavStream:
    """Decodes the header, then passes on the samples. `fault` says why the file cannot be used."""

    def __init__(self) -> None:
        self.rate_hz: int | None = None
        self.fault: str | None = None
        self._header = bytearray()
        self._in_data = False

    def feed(self, data: bytes) -> bytes:
        """Return the samples in these bytes; nothing while the header is not complete, or after a fault."""
        if self._in_data:
            return data
        self._header += data
        if self.fault is not None:
            return b""
        at = self._position_of_data()
        if at is None:
            if len(self._header) > _MAX_HEADER_BYTES:
                self.fault = "a WAV header without samples"
            return b""
        self._in_data = True
        samples = bytes(self._header[at:])
        self._header.clear()
        return samples

    def _position_of_data(self) -> int | None:
        header, at = self._header, 12
        if len(header) < at:
            return None
        if bytes(header[8:12]) != b"WAVE":
            self.fault = "a RIFF file that is not WAV"
            return None
        while len(header) >= at + 8:
            name, size = struct.unpack_from("<4sI", header, at)
            at += 8
            if name == b"data":
                if self.rate_hz is None:
                    self.fault = "a WAV file that does not say its format"
                    return None
                return at
            if len(header) < at + size:
                return None
            if name == b"fmt ":
                self._format(bytes(header[at : at + size]))
                if self.fault is not None:
                    return None
            at += size + size % 2
        return None

    def _format(self, fields: bytes) -> None:
        if len(fields) < 16:
            self.fault = "a WAV file with a damaged format"
            return
        kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", fields)
        if kind not in (_PCM, _EXTENSIBLE) or channels != 1 or bits != 16 or rate_hz == 0:
            self.fault = f"WAV of kind {kind} with {channels} channels of {bits} bits, not 16-bit mono PCM"
            return
        self.rate_hz = rate_hz
