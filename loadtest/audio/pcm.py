"""PCM16 mono: between int16 arrays, bytes on a wire (little-endian) and float32 in [-1, 1); cutting into frames."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Pcm16 = NDArray[np.int16]
Float32 = NDArray[np.float32]

FULL_SCALE: Final = 32768


def to_float(pcm: Pcm16) -> Float32:
    """int16 → float32, -32768 becoming exactly -1.0."""
    return pcm.astype(np.float32) / np.float32(FULL_SCALE)


def from_float(samples: NDArray[np.floating]) -> Pcm16:
    """float → int16, rounded to the nearest step; beyond full scale it is clipped, not wrapped. NaN is silence."""
    finite = np.nan_to_num(samples.astype(np.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    scaled = np.rint(finite * FULL_SCALE)
    return np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def to_bytes(pcm: Pcm16) -> bytes:
    """int16 array → s16le bytes."""
    return pcm.astype("<i2", copy=False).tobytes()


def from_bytes(data: bytes) -> Pcm16:
    """s16le bytes → read-only int16 array. ValueError for an odd number of bytes."""
    if len(data) % 2:
        raise ValueError(f"PCM16 has two bytes a sample; {len(data)} bytes end inside one")
    return np.frombuffer(data, "<i2")


def frames(pcm: Pcm16, samples: int) -> Iterator[Pcm16]:
    """Cut into frames of `samples`; the last one is filled up with silence, so that none is short."""
    if samples < 1:
        raise ValueError(f"a frame has at least one sample, not {samples}")
    for start in range(0, len(pcm), samples):
        piece = pcm[start : start + samples]
        yield piece if len(piece) == samples else np.pad(piece, (0, samples - len(piece)))
