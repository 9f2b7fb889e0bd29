"""Reads one clip and reports how it differs from its line in the manifest.

A clip is read once, as a whole: the bytes that are hashed are the bytes that are decoded. Only lossless formats are
accepted, because lossy decoders do not agree on the samples.
"""

import hashlib
import io
import stat
from pathlib import Path, PurePosixPath

import numpy as np
import soundfile
from numpy.typing import NDArray

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import RATES_HZ, Utterance

MAX_CLIP_S = 600
_MAX_CLIP_BYTES = 256 * 1024 * 1024
_FORMATS = frozenset({"WAV", "WAVEX", "FLAC", "AIFF", "RF64", "W64"})

Samples = NDArray[np.float64]


def read_clip(folder: Path, utterance: Utterance) -> Samples:
    """Read an utterance's clip, shape (samples,), full scale ±1.0, after checking it against the manifest.

    Raises CorpusError with one sentence that names the file and the difference.
    """
    file = folder / utterance.path
    content = _content(folder, file, utterance)
    samples, rate_hz = decode(content, str(file), expected_samples=utterance.samples)
    if rate_hz != utterance.sample_rate_hz:
        raise CorpusError(
            f"{file}: has a rate of {rate_hz} Hz, but its manifest says {utterance.sample_rate_hz}; correct one."
        )
    if len(samples) != utterance.samples:
        raise CorpusError(
            f"{file}: contains {len(samples)} samples, but its manifest says {utterance.samples}; correct the manifest."
        )
    if hashlib.sha256(content).hexdigest() != utterance.sha256:
        raise CorpusError(
            f"{file}: is not the file its manifest describes (its sha256 differs); restore it or annotate it again."
        )
    if not np.any(samples[utterance.speech_start_sample : utterance.speech_end_sample + 1]):
        raise CorpusError(f"{file}: is silent between its speech bounds; annotate it again.")
    return samples


def decode(content: bytes, called: str, expected_samples: int | None = None) -> tuple[Samples, int]:
    """Decode the bytes of a mono clip; returns samples of shape (samples,) at full scale ±1.0, and their rate in Hz.

    Raises CorpusError in one sentence that begins with `called`.
    """
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as sound:
            if sound.format not in _FORMATS:
                raise CorpusError(
                    f"{called}: is {sound.format}, which is lossy or not supported; convert it to FLAC or WAV."
                )
            if sound.channels != 1:
                raise CorpusError(f"{called}: has {sound.channels} channels; convert it to mono.")
            if sound.samplerate not in RATES_HZ:
                raise CorpusError(
                    f"{called}: has a rate of {sound.samplerate} Hz; resample it to {RATES_HZ[0]} to {RATES_HZ[-1]} Hz."
                )
            if sound.frames > MAX_CLIP_S * sound.samplerate:
                raise CorpusError(f"{called}: is longer than {MAX_CLIP_S // 60} minutes; cut it into utterances.")
            declared, rate_hz = max(sound.frames, expected_samples or 0), sound.samplerate
            samples = np.asarray(sound.read(dtype="float64"), dtype=np.float64)
    except soundfile.LibsndfileError as error:
        reason = error.error_string.rstrip(". ")
        raise CorpusError(f"{called}: is not audio that can be read ({reason}); give it as FLAC or WAV.") from error
    if len(samples) < declared:
        raise CorpusError(f"{called}: is truncated: it contains {len(samples)} of {declared} samples; restore it.")
    if not len(samples):
        raise CorpusError(f"{called}: contains no samples; remove or restore it.")
    if not np.all(np.isfinite(samples)):
        raise CorpusError(f"{called}: contains samples that are not numbers (NaN or infinite); convert it again.")
    return samples, rate_hz


def _content(folder: Path, file: Path, utterance: Utterance) -> bytes:
    try:
        step = folder
        for part in PurePosixPath(utterance.path).parts:
            step /= part
            if step.is_symlink():
                raise CorpusError(
                    f"{file}: is a symbolic link or inside a linked folder; put the clip itself into the corpus."
                )
        about = file.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise CorpusError(f"{file}: is not a regular file; put the clip there.")
        if not about.st_size:
            raise CorpusError(f"{file}: is empty; restore it.")
        if about.st_size > _MAX_CLIP_BYTES:
            raise CorpusError(f"{file}: is larger than {_MAX_CLIP_BYTES >> 20} MB; cut it into utterances.")
        return file.read_bytes()
    except FileNotFoundError as error:
        raise CorpusError(f"{file}: is missing; restore it or remove its line from the manifest.") from error
    except OSError as error:
        raise CorpusError(f"{file}: cannot be read ({error.strerror}); check its permissions.") from error
