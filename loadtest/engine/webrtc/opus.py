"""Opus as WebRTC carries it: 48 kHz, packets of 20 ms, one stream for each call and direction."""

from fractions import Fraction
from typing import Any, Final

import av
import numpy as np
from av.error import FFmpegError

RATE_HZ: Final = 48_000
BIT_RATE: Final = 64_000
TIME_BASE: Final = Fraction(1, RATE_HZ)


class OpusEncoder:
    """Encodes mono frames of 20 ms. The first sample comes out 312 samples (6.5 ms) later: libopus's look-ahead."""

    def __init__(self) -> None:
        codec = av.AudioCodecContext.create("libopus", "w")
        codec.bit_rate = BIT_RATE
        codec.format = av.AudioFormat("s16")
        codec.layout = "mono"
        codec.options = {"application": "voip"}
        codec.sample_rate = RATE_HZ
        codec.time_base = TIME_BASE
        self._codec = codec
        self._samples = 0

    def encode(self, pcm: bytes) -> "list[av.Packet[Any]]":
        """Encode 16-bit little-endian samples; each packet has its RTP time stamp as `pts`."""
        frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, np.int16)[None, :], format="s16", layout="mono")
        frame.sample_rate = RATE_HZ
        frame.pts = self._samples
        frame.time_base = TIME_BASE
        packets = self._codec.encode(frame)
        for packet in packets:
            packet.pts = self._samples
            packet.time_base = TIME_BASE
            self._samples += len(pcm) // 2
        return packets


class OpusDecoder:
    """Decodes packets to mono, as soon as they come."""

    def __init__(self) -> None:
        codec = av.AudioCodecContext.create("libopus", "r")
        codec.format = av.AudioFormat("s16")
        codec.layout = "mono"
        codec.sample_rate = RATE_HZ
        self._codec = codec

    def decode(self, payload: bytes) -> bytes:
        """Return 16-bit little-endian samples, none for a payload that is not Opus."""
        try:
            frames = self._codec.decode(av.Packet(payload))
        except FFmpegError:
            return b""
        return b"".join(frame.to_ndarray().astype("<i2", copy=False).tobytes() for frame in frames)
