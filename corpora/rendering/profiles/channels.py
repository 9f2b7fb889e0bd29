"""The codecs and band filters of a channel, with the delay of each removed.

G.711 is bit-exact (libsndfile has the tables of the recommendation). G.722 and GSM 06.10 are integer codecs with the
same result on every machine; Opus has the same result for the same libopus. The delay of a codec is determined by its
filters; the tests measure that none remains.
"""

import io
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import soundfile
import soxr
from av.audio.codeccontext import AudioCodecContext
from av.audio.format import AudioFormat
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout
from av.packet import Packet

from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles.grid import FULL_SCALE, Pcm16, Samples, convolve, pcm16, round_samples, round_taps
from corpora.rendering.profiles.opus import through_opus
from corpora.rendering.profiles.packets import PACKETS_PER_SECOND, Flags, conceal
from corpora.rendering.profiles.profile import opus_kbit

_TELEPHONE_HZ: Final = 8_000
_BAND_HZ: Final = (300.0, 3_400.0)
_BAND_TAPS: Final = 193
G722_HZ: Final = 16_000
_G722_DELAY: Final = 22  # in samples, of both quadrature mirror filters with 24 taps each
_G722_PACKET: Final = 320
_OPUS_HZ: Final = 16_000  # calls are wideband; at higher rates libopus reports a delay that is 50 µs too short


def carry(pcm: Pcm16, rate_hz: int, codecs: tuple[str, ...], missing: Flags | None) -> Pcm16:
    """Pass PCM through a channel without any delay; shape (samples,).

    Each codec works at its own rate. Missing packets are lost between the last encoder and its decoder. Opus conceals
    them itself; for the other codecs the receiver does, and their decoders are assumed to keep their state.
    """
    current_hz, signal = rate_hz, pcm
    concealed = missing is None
    for number, codec in enumerate(codecs):
        name = codec.partition(":")[0]
        to_hz = _rate_of(name, current_hz)
        signal, current_hz = _resampled(signal, current_hz, to_hz), to_hz
        last = number == len(codecs) - 1
        if name == "opus":
            lost = missing if last and missing is not None else np.zeros(0, dtype=np.bool_)
            signal = through_opus(signal, current_hz, opus_kbit(codec), list(map(bool, lost)))
            concealed = concealed or last
        else:
            signal = _CODECS[name](signal)
    if not concealed and missing is not None:
        signal = conceal(signal, current_hz, missing)
    signal = _resampled(signal, current_hz, rate_hz)[: len(pcm)]
    return np.concatenate((signal, np.zeros(len(pcm) - len(signal), dtype=np.int16)))


def packets_of(samples: int, rate_hz: int) -> int:
    """The number of packets of 20 ms that hold some samples; the last one may be partly filled."""
    return -(-samples * PACKETS_PER_SECOND // rate_hz)


def _rate_of(codec: str, current_hz: int) -> int:
    if codec == "g722":
        return G722_HZ
    if codec == "opus":
        return _OPUS_HZ if current_hz >= _OPUS_HZ else _TELEPHONE_HZ
    return _TELEPHONE_HZ


def _resampled(pcm: Pcm16, from_hz: int, to_hz: int) -> Pcm16:
    if from_hz == to_hz:
        return pcm
    samples = np.asarray(soxr.resample(pcm / FULL_SCALE, from_hz, to_hz, quality="VHQ"), dtype=np.float64)
    return pcm16(round_samples(samples))


@lru_cache(maxsize=1)
def _band_taps() -> Samples:
    """A windowed difference of two ideal low-pass filters, with gain 1 in the middle of the band."""
    position = np.arange(_BAND_TAPS) - _BAND_TAPS // 2
    low, high = (2.0 * edge_hz / _TELEPHONE_HZ for edge_hz in _BAND_HZ)
    taps = (high * np.sinc(high * position) - low * np.sinc(low * position)) * np.hamming(_BAND_TAPS)
    middle = np.cos(np.pi * (low + high) / 2.0 * position)
    return round_taps(taps / np.sum(taps * middle))


def _band(pcm: Pcm16) -> Pcm16:
    half = _BAND_TAPS // 2
    return pcm16(convolve(pcm / FULL_SCALE, _band_taps())[half : half + len(pcm)])


def _g711u(pcm: Pcm16) -> Pcm16:
    return _through_libsndfile(pcm, "ULAW")


def _g711a(pcm: Pcm16) -> Pcm16:
    return _through_libsndfile(pcm, "ALAW")


def _gsm(pcm: Pcm16) -> Pcm16:
    return _through_libsndfile(_band(pcm), "GSM610")


def _through_libsndfile(pcm: Pcm16, codec: str) -> Pcm16:
    encoded = io.BytesIO()
    with soundfile.SoundFile(encoded, "w", _TELEPHONE_HZ, 1, format="RAW", subtype=codec) as signal:
        signal.write(pcm)
    encoded.seek(0)
    with soundfile.SoundFile(encoded, samplerate=_TELEPHONE_HZ, channels=1, format="RAW", subtype=codec) as signal:
        return np.asarray(signal.read(len(pcm), dtype="int16", fill_value=0), dtype=np.int16)


def _g722(pcm: Pcm16) -> Pcm16:
    padded = np.zeros(-(-(len(pcm) + _G722_DELAY) // _G722_PACKET) * _G722_PACKET, dtype=np.int16)
    padded[: len(pcm)] = pcm
    encoder, encoded = _g722_context("w"), b""
    for start in range(0, len(padded), _G722_PACKET):
        frame = AudioFrame.from_ndarray(padded[None, start : start + _G722_PACKET], format="s16", layout="mono")
        frame.sample_rate, frame.pts = G722_HZ, start
        encoded += b"".join(bytes(packet) for packet in encoder.encode(frame))
    decoded = decode_g722(encoded)
    if len(decoded) != len(padded):
        raise CorpusError("G.722 decoded to another length; install another version of PyAV, or use another channel.")
    return decoded[_G722_DELAY : _G722_DELAY + len(pcm)]


def decode_g722(octets: bytes) -> Pcm16:
    """Decode ITU-T G.722 at 64 kbit/s to PCM at `G722_HZ`; shape (samples,)."""
    if not octets:
        return np.zeros(0, dtype=np.int16)
    frames = _g722_context("r").decode(Packet(octets))
    return np.concatenate([np.asarray(frame.to_ndarray()[0], dtype=np.int16) for frame in frames])


def _g722_context(mode: Literal["r", "w"]) -> AudioCodecContext:
    context = AudioCodecContext.create("g722", mode)
    context.sample_rate, context.layout = G722_HZ, AudioLayout("mono")
    if mode == "w":
        context.format = AudioFormat("s16")
    context.open()
    return context


_CODECS = {"band": _band, "g711u": _g711u, "g711a": _g711a, "gsm": _gsm, "g722": _g722}
