"""Decoding of audio in common formats, block by block, so that no file can exhaust the memory.

libsndfile reads the formats it supports, FFmpeg's decoders (through PyAV) the others. Decoders do not report data that
is missing at the end of a file, so truncation is checked first. The format is determined from the first bytes of a
file, not from its name. FFmpeg gets the format and the open file, so its formats that refer to other files or to the
network cannot be used.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import av
import av.error
import numpy as np
import soundfile
from av.audio.resampler import AudioResampler
from av.container import InputContainer
from numpy.typing import NDArray

from corpora.manifest.containers import (
    HEAD_BYTES,
    FileSegment,
    SegmentFile,
    find_segments,
    has_fragments,
    nist_fields,
)
from corpora.manifest.errors import CorpusError
from corpora.manifest.validation import numbered
from corpora.sources.importing.items import RawFormat

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 384_000
MAX_CHANNELS = 32
_HEADERLESS_SUFFIXES = frozenset({".g722", ".gsm", ".raw", ".pcm", ".sw", ".ulaw", ".alaw"})

_BLOCK_FRAMES = 65_536
_GSM = RawFormat("GSM610", "FILE", 8_000, 1)
_GSM_FRAME_BYTES, _GSM_MAGIC = 33, 0xD
_SNDFILE_HEADS = (b"RIFF", b"RIFX", b"RF64", b"FORM", b"fLaC", b".snd", b"OggS", b"caff", b"riff", b"ID3", b"NIST_1A")
_AV_HEADS = {
    b"OggS": "ogg",
    b"\x1aE\xdf\xa3": "matroska",
    b"0&\xb2u": "asf",
    b"#!AM": "amr",
    b"ID3": "mp3",
    b"fLaC": "flac",
} | {b"RIFF": "wav", b"RF64": "wav", b"BW64": "wav", b"riff": "w64", b"caff": "caf", b"FORM": "aiff", b".snd": "au"}
_LOSSLESS = frozenset({"WAV", "WAVEX", "FLAC", "AIFF", "RF64", "W64", "CAF", "AU", "RAW", "NIST"})
_LOSSY_SUBTYPES = ("MPEG", "ADPCM", "GSM", "G72", "VOX", "NMS", "DWVW")
_FULL_SCALE = 32_767 / 32_768
_FULL_SCALES = {"PCM_U8": 127 / 128, "PCM_S8": 127 / 128, "ULAW": 32_124 / 32_768, "ALAW": 32_256 / 32_768}
_MOST_FRAMES = 1 << 40  # more is the length of a stream that did not know it
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
    full_scale: float = _FULL_SCALE  # the largest sample that it can hold


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


@dataclass(frozen=True, slots=True)
class _Source:
    label: str
    suffix: str
    raw: RawFormat | None
    start_s: float


@contextmanager
def open_stream(file: Path, label: str, raw: RawFormat | None = None, start_s: float = 0.0) -> Generator[Stream]:
    """Open a recording at a start time.

    Raises CorpusError, also while blocks are read, in a sentence that begins with `label`.
    """
    with ExitStack() as stack:
        with _as_corpus_errors(label):
            content = stack.enter_context(file.open("rb"))
            suffix = file.suffix.lower()
            if suffix == ".gsm" and (content.read(1) or b"\0")[0] >> 4 != _GSM_MAGIC:
                suffix = ""  # it has the header of another format
            is_headerless = suffix in _HEADERLESS_SUFFIXES
            segments = [FileSegment(0, content.seek(0, 2))] if is_headerless else find_segments(content)
            source = _Source(label, suffix, raw, start_s if len(segments) == 1 else 0.0)
            streams = [_open_segment(stack, content, segment, source) for segment in segments]
            stream = streams[0] if len(streams) == 1 else _concatenated(streams, label, start_s)
        if not MIN_RATE_HZ <= stream.rate_hz <= MAX_RATE_HZ:
            raise CorpusError(
                f"{label}: has a rate of {stream.rate_hz} Hz; convert it to {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz."
            )
        if not 1 <= stream.channels <= MAX_CHANNELS:
            raise CorpusError(f"{label}: has {stream.channels} channels; convert it to at most {MAX_CHANNELS}.")
        yield stream


def _concatenated(streams: Sequence[Stream], label: str, start_s: float) -> Stream:
    """The recordings that follow each other in a file, as one."""
    first = streams[0]
    for count, other in enumerate(streams[1:], start=2):
        if (other.rate_hz, other.channels) != (first.rate_hz, first.channels):
            first_format, other_format = (
                f"{stream.rate_hz} Hz and {numbered(stream.channels, 'channel')}" for stream in (first, other)
            )
            raise CorpusError(
                f"{label}: contains {len(streams)} recordings, of which the first has {first_format} and "
                f"number {count} has {other_format}; save each as its own file."
            )
    known = [stream.frames for stream in streams if stream.frames is not None]
    frames = sum(known) if len(known) == len(streams) else None
    blocks = _skipped(chain.from_iterable(stream.blocks for stream in streams), round(start_s * first.rate_hz))
    return Stream(first.rate_hz, first.channels, frames, blocks, min(stream.full_scale for stream in streams))


def _skipped(blocks: Iterator[Block], skip: int) -> Iterator[Block]:
    """The blocks without their first frames."""
    for block in blocks:
        kept = block[skip:] if skip else block
        skip = max(0, skip - len(block))
        if len(kept):
            yield kept


def _open_segment(stack: ExitStack, whole: BinaryIO, segment: FileSegment, source: _Source) -> Stream:
    """Open one of the recordings in a file."""
    label = source.label
    if segment.loss is not None:
        raise CorpusError(f"{label}: {segment.loss}, of which only one would be read; save each as its own file.")
    content = cast("BinaryIO", SegmentFile(whole, segment))
    head = content.read(HEAD_BYTES)
    content.seek(0)
    if not head:
        raise CorpusError(f"{label}: is empty; restore it.")
    if segment.missing is not None:
        raise CorpusError(
            f"{label}: is truncated or damaged: {segment.missing}; restore it, or save the rest as a new file."
        )
    if source.suffix in _HEADERLESS_SUFFIXES:
        return _headerless(stack, content, source, head)
    av_format = _av_format(head)
    if head.startswith(b"NIST_1A"):
        _check_nist(head, label)
    # libsndfile cannot seek in a FLAC file that does not state its length.
    is_open_flac = head.startswith(b"fLaC") and not (int.from_bytes(head[21:26], "big") & 0xF_FFFF_FFFF)
    if (head.startswith(_SNDFILE_HEADS) or _is_mpeg(head)) and not is_open_flac:
        try:
            return _through_sndfile(stack, content, source, None)
        except soundfile.LibsndfileError:
            content.seek(0)
            if av_format is None:
                raise
    if av_format is None:
        raise CorpusError(f"{label}: is not audio in a supported format; convert it to WAV or FLAC.")
    return _through_av(stack, content, source, av_format)


def _headerless(stack: ExitStack, content: BinaryIO, source: _Source, head: bytes) -> Stream:
    """Open a recording that has no header, by its suffix."""
    label, suffix = source.label, source.suffix
    if suffix == ".gsm":
        return _gsm(stack, content, source)
    if head.startswith(_SNDFILE_HEADS) or _av_format(head) not in (None, "aac"):
        raise CorpusError(f"{label}: is named {suffix} but has the header of another format; rename it.")
    if suffix == ".g722":
        return _through_av(stack, content, source, "g722")
    if source.raw is None:
        raise CorpusError(f"{label}: has no header; give its format with --raw-format, as in s16le:16000:1.")
    return _through_sndfile(stack, content, source, source.raw)


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
    """Return whether a file begins with a frame of MPEG audio, or of AAC without a container."""
    return len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0


def _av_format(head: bytes) -> str | None:
    """FFmpeg's name of the container with this header; None if it is unknown."""
    if head[4:8] == b"ftyp":
        return "mov"
    if _is_mpeg(head):
        return "aac" if head[1] & 0xF6 == 0xF0 else "mp3"
    return next((av_format for magic, av_format in _AV_HEADS.items() if head.startswith(magic)), None)


def _through_sndfile(stack: ExitStack, content: BinaryIO, source: _Source, raw: RawFormat | None) -> Stream:
    options: dict[str, Any] = {}
    if raw is not None:
        options = {"samplerate": raw.rate_hz, "channels": raw.channels, "format": "RAW"}
        options |= {"subtype": raw.subtype, "endian": raw.endian}
    sound = stack.enter_context(soundfile.SoundFile(content, **options))
    first = min(round(source.start_s * sound.samplerate), sound.frames)
    blocks = _checked_blocks(_sndfile_blocks(sound, first, source.label), source.label)
    frames = sound.frames if sound.frames < _MOST_FRAMES else None
    return Stream(sound.samplerate, sound.channels, frames, blocks, _FULL_SCALES.get(sound.subtype, _FULL_SCALE))


def _sndfile_blocks(sound: soundfile.SoundFile, first: int, label: str) -> Iterator[Block]:
    if first:
        sound.seek(first)
    left = sound.frames - first
    while left > 0:
        block = np.asarray(sound.read(min(_BLOCK_FRAMES, left), dtype="float32", always_2d=True), dtype=np.float32)
        if not len(block):
            if sound.format in _LOSSLESS and not sound.subtype.startswith(_LOSSY_SUBTYPES) and left < _MOST_FRAMES:
                raise CorpusError(
                    f"{label}: is truncated: {left} of its {sound.frames} samples are missing; restore it."
                )
            return
        left -= len(block)
        yield block


def _through_av(stack: ExitStack, content: BinaryIO, source: _Source, av_format: str) -> Stream:
    options = {"ignore_editlist": "1"} if av_format == "mov" and has_fragments(content) else {}
    container = stack.enter_context(av.open(content, "r", format=av_format, options=options))
    tracks = len(container.streams.audio)
    if not tracks:
        raise CorpusError(f"{source.label}: contains no audio; give a recording.")
    if tracks > 1:
        raise CorpusError(
            f"{source.label}: contains {tracks} audio tracks, of which only one would be read; save each as its own "
            "file."
        )
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
    decoded = (
        np.ascontiguousarray(planar.to_ndarray().T, dtype=np.float32)
        for frame in container.decode(audio=0)
        for planar in resampler.resample(frame)
    )
    yield from _skipped(decoded, skip)


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
    except (soundfile.LibsndfileError, av.error.FFmpegError, OSError, EOFError, ValueError) as error:
        reason = getattr(error, "error_string", None) or getattr(error, "strerror", None) or str(error)
        raise CorpusError(f"{label}: cannot be decoded ({reason.rstrip('. ')}); convert it to WAV or FLAC.") from error
