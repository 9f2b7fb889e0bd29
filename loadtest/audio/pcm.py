"""PCM16 mono: conversion between int16 arrays, little-endian bytes and float32 in [-1, 1); splitting into frames."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Pcm16 = NDArray[np.int16]
Float32 = NDArray[np.float32]

FULL_SCALE: Final = 32768


def to_float(pcm: Pcm16) -> Float32:
    """Convert int16 to float32; -32768 becomes exactly -1.0."""
    return pcm.astype(np.float32) / np.float32(FULL_SCALE)


def from_float(samples: NDArray[np.floating]) -> Pcm16:
    """Convert float to int16, rounded to the nearest step; clipped at full scale, not wrapped. NaN becomes silence."""
    finite = np.nan_to_num(samples.astype(np.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    scaled = np.rint(finite * FULL_SCALE)
    return np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def to_bytes(pcm: Pcm16) -> bytes:
    """Convert an int16 array to s16le bytes."""
    return pcm.astype("<i2", copy=False).tobytes()


def from_bytes(data: bytes) -> Pcm16:
    """Convert s16le bytes to a read-only int16 array. Raises ValueError for an odd number of bytes."""
    whole_samples(data)
    return np.frombuffer(data, "<i2")


def whole_samples(data: bytes) -> int:
    """Return how many samples s16le bytes are. Raises ValueError for an odd number of bytes."""
    size = len(data)
    if size % 2:
        raise ValueError(f"PCM16 has two bytes per sample; {size} bytes end inside one")
    return size // 2


def frames(pcm: Pcm16, samples: int) -> Iterator[Pcm16]:
    """Split into frames of `samples`; the last one is padded with silence."""
    if samples < 1:
        raise ValueError(f"a frame must have at least one sample, got {samples}")
    for start in range(0, len(pcm), samples):
        piece = pcm[start : start + samples]
        yield piece if len(piece) == samples else np.pad(piece, (0, samples - len(piece)))
