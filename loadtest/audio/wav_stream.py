"""The samples of a WAV file that arrives in pieces. Pure: no I/O.

The header may promise a length, none (a stream does not know its own) or that of its first piece alone. Chunks after
the samples (LIST, C2PA) are no sound, and neither is the header of a further WAV file.
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

PCM: Final = 1
_EXTENSIBLE: Final = 0xFFFE
_MAX_HEADER_BYTES: Final = 64 * 2**10  # before the samples, except the chunks that are skipped by their length
# Programs that do not know the size yet write this or more; a reply of a gibibyte has no end that a header knew.
_UNKNOWN: Final = 2**30
_CHUNKS: Final = frozenset(
    (*(b"LIST", b"C2PA", b"fact", b"bext", b"iXML", b"id3 ", b"ID3 ", b"JUNK", b"junk", b"FLLR", b"PAD ", b"cue "),
     *(b"smpl", b"inst", b"acid", b"PEAK", b"afsp", b"_PMX", b"cart", b"axml", b"chna", b"umid", b"DISP", b"data"))
)  # fmt: skip
_FILE: Final = rb"(?:RIFF|RF64|BW64).{4}WAVE"
# What interrupts samples of unknown length: enough bytes that no speech has them by chance.
_INTERRUPTION: Final = re.compile(rb"LIST.{4}(?:INFO|adtl)|C2PA.{8}jumb|i[dD]3 .{4}ID3|" + _FILE, re.DOTALL)
_LONGEST_INTERRUPTION: Final = 16
_TAGS: Final = (b"LIST", b"C2PA", b"id3 ", b"RIFF", b"RF64", b"BW64")
_BEGUN: Final = re.compile(
    b"(?:" + b"|".join(re.escape(tag[:size]) for tag in _TAGS for size in range(1, 4)) + rb")\Z"
    + b"|(?:" + b"|".join(map(re.escape, _TAGS)) + rb").{0,11}\Z",
    re.DOTALL,
)  # fmt: skip
_IS_FILE: Final = re.compile(_FILE, re.DOTALL)


@dataclass(frozen=True, slots=True)
class WavFormat:
    """The format that a WAV header states; `kind` is that of its samples, also in the extensible form."""

    kind: int
    channels: int
    rate_hz: int
    bits: int

    def __str__(self) -> str:
        return f"WAV of kind {self.kind} with {self.channels} channels of {self.bits} bits"


# How many of the held bytes come next, and whether they are samples; None: more must come to tell.
_Run = tuple[bool, int] | None
_NO_BYTES: Final[_Run] = (False, 0)


class WavStream:
    """Separates samples from the rest. `fault` says why the file cannot be used; nothing is separated after it."""

    def __init__(self) -> None:
        self.format: WavFormat | None = None
        self.fault: str | None = None
        self._held = bytearray()  # not yet known to be samples or not
        self._step: Callable[[], _Run] = self._file_header
        self._skipped = 0  # bytes still to be skipped
        self._left: int | None = None  # bytes of samples still promised; None: no promise
        self._is_padded = False  # a byte follows samples whose number of bytes is odd
        self._file_left: int | None = None  # of the file, as its header promises
        self._data_size: int | None = None  # as RF64 states it apart
        self._has_samples = False
        self._header_bytes = 0

    def feed(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Yield these bytes in order, in runs with whether they are samples. Bytes that may be either are held back."""
        self._held += data
        while self._held and self.fault is None:
            run = self._step()
            if run is None:
                return
            is_samples, size = run
            if not size:
                continue
            taken = bytes(self._held[:size])
            del self._held[:size]
            if self._file_left is not None:
                self._file_left -= len(taken)
            yield is_samples, taken

    def rest(self) -> bytes:
        """The samples that are still held back when nothing more comes."""
        return bytes(self._held) if self._step == self._samples else b""

    def _file_header(self) -> _Run:
        if len(self._held) < 12:
            return None
        if bytes(self._held[8:12]) != b"WAVE":
            self.fault = "a RIFF file that is not WAV"
            return None
        (size,) = struct.unpack_from("<I", self._held, 4)
        self._file_left = size + 8 if 0 < size < _UNKNOWN else None
        self.format, self._data_size, self._has_samples, self._header_bytes = None, None, False, 0
        self._step = self._chunk
        return False, 12

    def _chunk(self) -> _Run:
        if len(self._held) < 8:
            return None
        name, size = struct.unpack_from("<4sI", self._held)
        if name == b"data":
            return self._data(size)
        self._header_bytes += 8
        if self._header_bytes > _MAX_HEADER_BYTES:
            self.fault = "a WAV header without samples"
            return None
        if name in (b"fmt ", b"ds64") and size <= _MAX_HEADER_BYTES:
            if len(self._held) < 8 + size:
                self._header_bytes -= 8
                return None
            self._state(name, bytes(self._held[8 : 8 + size]))
        self._skipped, self._step = 8 + size + size % 2, self._skip
        return _NO_BYTES if self.fault is None else None

    def _data(self, size: int) -> _Run:
        if self.format is None:
            self.fault = "a WAV file that does not say its format"
            return None
        promised = size if self._data_size is None else self._data_size
        self._left = promised if 0 < promised < _UNKNOWN else None
        self._is_padded = self._left is not None and self._left % 2 == 1
        self._has_samples, self._step = True, self._samples
        return False, 8

    def _state(self, name: bytes, fields: bytes) -> None:
        if name == b"ds64":
            self._data_size = struct.unpack_from("<Q", fields, 8)[0] if len(fields) >= 16 else None
            return
        if len(fields) < 16:
            self.fault = "a WAV file with a damaged format"
            return
        kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", fields)
        if kind == _EXTENSIBLE and len(fields) >= 26:
            (kind,) = struct.unpack_from("<H", fields, 24)
        self.format = WavFormat(kind, channels, rate_hz, bits)

    def _skip(self) -> _Run:
        size = min(self._skipped, len(self._held))
        self._skipped -= size
        if not self._skipped:
            self._step = self._after if self._has_samples else self._chunk
        return False, size

    def _samples(self) -> _Run:
        if self._left is not None:
            size = min(self._left, len(self._held))
            self._left -= size
            if not self._left:
                self._step = self._after
            return True, size
        interruption = _INTERRUPTION.search(self._held)
        if interruption is not None:
            self._step = self._after if not interruption.start() else self._step
            return True, interruption.start()
        begun = _BEGUN.search(self._held, max(0, len(self._held) - _LONGEST_INTERRUPTION))
        size = len(self._held) if begun is None else begun.start()
        return (True, size) if size else None

    def _after(self) -> _Run:
        """After samples or a chunk behind them: another chunk, another file, or more samples."""
        if len(self._held) < 12:
            return None
        if self._is_padded and not self._held[0]:
            self._is_padded = False
            return False, 1
        name = bytes(self._held[:4])
        is_in_file = self._file_left is not None and self._file_left >= 8 and name.strip().isalnum()
        if _IS_FILE.match(self._held):
            self._step = self._file_header
        elif name in _CHUNKS or is_in_file:
            self._step = self._chunk
        else:  # the header covers the first piece only
            self._left, self._step = None, self._samples
        return _NO_BYTES
