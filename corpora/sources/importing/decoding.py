"""Decoding of audio in common formats, block by block, so that no file can exhaust the memory.

libsndfile reads the formats it supports, FFmpeg's decoders (through PyAV) the others. Decoders do not report data that
is missing at the end of a file, so truncation is checked first. The format is determined from the first bytes of a
file, not from its name. FFmpeg gets the format and the open file, so its formats that refer to other files or to the
network cannot be used.
"""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import av
import av.error
import numpy as np
import soundfile
from av.audio.resampler import AudioResampler
from av.container import InputContainer
from numpy.typing import NDArray

from corpora.manifest.errors import CorpusError
from corpora.manifest.wholeness import HEAD_BYTES, find_truncation, nist_fields
from corpora.sources.importing.items import RawFormat

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 384_000
MAX_CHANNELS = 32
RAW_SUFFIXES = frozenset({".raw", ".pcm", ".sw", ".ulaw", ".alaw"})

_BLOCK_FRAMES = 65_536
_GSM = RawFormat("GSM610", "FILE", 8_000, 1)
_GSM_FRAME_BYTES, _GSM_MAGIC = 33, 0xD
_SNDFILE_HEADS = (b"RIFF", b"RIFX", b"RF64", b"FORM", b"fLaC", b".snd", b"OggS", b"caff", b"riff", b"ID3", b"NIST_1A")
_AV_HEADS = {b"OggS": "ogg", b"\x1aE\xdf\xa3": "matroska", b"0&\xb2u": "asf", b"#!AM": "amr", b"ID3": "mp3"}
_LOSSLESS = frozenset({"WAV", "WAVEX", "FLAC", "AIFF", "RF64", "W64", "CAF", "AU", "RAW", "NIST"})
_PCM_BITS = (16, 24, 32)
_RAW_SUBTYPES = (
    {"s8": ("PCM_S8", "FILE"), "u8": ("PCM_U8", "FILE"), "ulaw": ("ULAW", "FILE"), "alaw": ("ALAW", "FILE")}
    | {f"s{bits}le": (f"PCM_{bits}", "LITTLE") for bits in _PCM_BITS}
    | {f"s{bits}be": (f"PCM_{bits}", "BIG") for bits in _PCM_BITS}
    | {"f32le": ("FLOAT", "LITTLE"), "f32be": ("FLOAT", "BIG")}
)

Block = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Stream:
    """An open recording.

    `frames` is the length that the file states, if it does; `blocks` have the shape (frames, channels), full scale
    ±1.0, and can be read once.
    """

    rate_hz: int
    channels: int
    frames: int | None
    blocks: Iterator[Block]


def parse_raw_format(text: str) -> RawFormat:
    """Parse `ENCODING:RATE:CHANNELS`, as in s16le:16000:1. Raises CorpusError."""
    encoding, _, rest = text.strip().lower().partition(":")
    rate, _, channels = rest.partition(":")
    if encoding not in _RAW_SUBTYPES or not rate.isdecimal() or not (channels or "1").isdecimal():
        raise CorpusError(
            f"--raw-format {text!r} is not ENCODING:RATE:CHANNELS, as in s16le:16000:1; "
            f"the encoding is one of {', '.join(_RAW_SUBTYPES)}."
        )
    return RawFormat(*_RAW_SUBTYPES[encoding], int(rate), int(channels or "1"))


@contextmanager
def open_stream(file: Path, label: str, raw: RawFormat | None = None, start_s: float = 0.0) -> Generator[Stream]:
    """Open a recording at a start time.

    Raises CorpusError, also while blocks are read, in a sentence that begins with `label`.
    """
    with ExitStack() as stack:
        with _as_corpus_errors(label):
            content = stack.enter_context(file.open("rb"))
            head = content.read(HEAD_BYTES)
            content.seek(0)
            if not head:
                raise CorpusError(f"{label}: is empty; restore it.")
            if missing := find_truncation(content, head):
                raise CorpusError(
                    f"{label}: is truncated or damaged: {missing}; restore it, or save the rest as a new file."
                )
            stream = _opened(stack, content, _Source(label, head, file.suffix.lower(), raw, start_s))
        _check_limits(stream, label)
        yield stream


@dataclass(frozen=True, slots=True)
class _Source:
    label: str
    head: bytes
    suffix: str
    raw: RawFormat | None
    start_s: float


def _opened(stack: ExitStack, content: BinaryIO, source: _Source) -> Stream:
    label, head, suffix = source.label, source.head, source.suffix
    av_format = _av_format(head)
    if head.startswith(b"NIST_1A"):
        _check_nist(head, label)
    if suffix == ".gsm" and head[0] >> 4 == _GSM_MAGIC:
        return _gsm(stack, content, source)
    if suffix == ".g722" or suffix in RAW_SUFFIXES:
        if head.startswith(_SNDFILE_HEADS) or av_format not in (None, "aac"):
            raise CorpusError(f"{label}: is named {suffix} but has the header of another format; rename it.")
        if suffix == ".g722":
            return _through_av(stack, content, source, "g722")
        if source.raw is None:
            raise CorpusError(f"{label}: has no header; give its format with --raw-format, as in s16le:16000:1.")
        return _through_sndfile(stack, content, source, source.raw)
    if head.startswith(_SNDFILE_HEADS) or _is_mpeg(head):
        try:
            return _through_sndfile(stack, content, source, None)
        except soundfile.LibsndfileError:
            content.seek(0)
            if av_format is None:
                raise
    if av_format is None:
        raise CorpusError(f"{label}: is not audio in a supported format; convert it to WAV or FLAC.")
    return _through_av(stack, content, source, av_format)


def _check_nist(head: bytes, label: str) -> None:
    coding = nist_fields(head).get("sample_coding", "pcm")
    if "," in coding:  # as in pcm,embedded-shorten-v2.00
        raise CorpusError(
            f"{label}: is NIST SPHERE compressed as {coding!r}, which is not supported; convert it with "
            "sph2pipe -f wav."
        )


def _gsm(stack: ExitStack, content: BinaryIO, source: _Source) -> Stream:
    """Open GSM 06.10 without a header: frames of 33 bytes, 20 ms each."""
    extra = content.seek(0, 2) % _GSM_FRAME_BYTES
    content.seek(0)
    if extra:
        raise CorpusError(
            f"{source.label}: is truncated or damaged: {extra} bytes follow its last whole frame; restore it."
        )
    return _through_sndfile(stack, content, source, _GSM)


def _is_mpeg(head: bytes) -> bool:
    """Whether a file begins with a frame of MPEG audio, or of AAC without a container."""
    return len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0


def _av_format(head: bytes) -> str | None:
    """FFmpeg's name of the container with this header; None if it is unknown."""
    if head[4:8] == b"ftyp":
        return "mov"
    if _is_mpeg(head):
        return "aac" if head[1] & 0xF6 == 0xF0 else "mp3"
    return next((av_format for magic, av_format in _AV_HEADS.items() if head.startswith(magic)), None)


def _through_sndfile(stack: ExitStack, content: BinaryIO, source: _Source, raw: RawFormat | None) -> Stream:
    if raw is None:
        sound = stack.enter_context(soundfile.SoundFile(content))
    else:
        sound = stack.enter_context(
            soundfile.SoundFile(
                content,
                samplerate=raw.rate_hz,
                channels=raw.channels,
                format="RAW",
                subtype=raw.subtype,
                endian=raw.endian,
            )
        )
    first = min(round(source.start_s * sound.samplerate), sound.frames)
    blocks = _checked_blocks(_sndfile_blocks(sound, first, source.label), source.label)
    return Stream(sound.samplerate, sound.channels, sound.frames, blocks)


def _sndfile_blocks(sound: soundfile.SoundFile, first: int, label: str) -> Iterator[Block]:
    if first:
        sound.seek(first)
    left = sound.frames - first
    while left > 0:
        block = np.asarray(sound.read(min(_BLOCK_FRAMES, left), dtype="float32", always_2d=True), dtype=np.float32)
        if not len(block):
            if sound.format in _LOSSLESS:
                raise CorpusError(
                    f"{label}: is truncated: {left} of its {sound.frames} samples are missing; restore it."
                )
            return
        left -= len(block)
        yield block


def _through_av(stack: ExitStack, content: BinaryIO, source: _Source, av_format: str) -> Stream:
    container = stack.enter_context(av.open(content, "r", format=av_format))
    if not container.streams.audio:
        raise CorpusError(f"{source.label}: contains no audio; give a recording.")
    audio = container.streams.audio[0]
    if cast("object", audio.codec_context) is None:
        raise CorpusError(f"{source.label}: has an unsupported codec; convert it to WAV or FLAC.")
    frames = None
    if audio.duration is not None and audio.time_base is not None:
        frames = round(float(audio.duration * audio.time_base) * audio.rate)
    blocks = _checked_blocks(_av_blocks(container, round(source.start_s * audio.rate)), source.label)
    return Stream(audio.rate, audio.channels, frames, blocks)


def _av_blocks(container: InputContainer, skip: int) -> Iterator[Block]:
    resampler = AudioResampler(format="fltp")
    for frame in container.decode(audio=0):
        for planar in resampler.resample(frame):
            block = planar.to_ndarray().T
            kept = block[skip:] if skip else block
            skip = max(0, skip - len(block))
            if len(kept):
                yield np.ascontiguousarray(kept, dtype=np.float32)


def _check_limits(stream: Stream, label: str) -> None:
    if not MIN_RATE_HZ <= stream.rate_hz <= MAX_RATE_HZ:
        raise CorpusError(
            f"{label}: has a rate of {stream.rate_hz} Hz; convert it to {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz."
        )
    if not 1 <= stream.channels <= MAX_CHANNELS:
        raise CorpusError(f"{label}: has {stream.channels} channels; convert it to at most {MAX_CHANNELS}.")


def _checked_blocks(blocks: Iterator[Block], label: str) -> Iterator[Block]:
    with _as_corpus_errors(label):
        for block in blocks:
            if not np.all(np.isfinite(block)):
                raise CorpusError(
                    f"{label}: contains samples that are not numbers (NaN or infinite); convert it again."
                )
            yield block


@contextmanager
def _as_corpus_errors(label: str) -> Generator[None]:
    try:
        yield
    except soundfile.LibsndfileError as error:
        reason = error.error_string.rstrip(". ")
        raise CorpusError(f"{label}: cannot be decoded ({reason}); convert it to WAV or FLAC.") from error
    except (av.error.FFmpegError, OSError, EOFError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CorpusError(f"{label}: cannot be decoded ({reason}); convert it to WAV or FLAC.") from error
