"""The user's own sounds in a profile: noise and impulse responses, each a file or a folder of them.

They are written as `file:` and a path. The rendering depends on the contents of the files, not on their names, so their
hash is part of the profile.
"""

import hashlib
import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from corpora.manifest.containers import SegmentFile, find_segments
from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles.grid import Samples, round_samples

FILE_PREFIX: Final = "file:"
MAX_FILES: Final = 1000
MAX_SECONDS: Final = 3600.0
_BLOCK_FRAMES: Final = 1 << 16
_SUFFIXES: Final = frozenset({".wav", ".flac", ".aif", ".aiff", ".ogg", ".opus", ".mp3", ".w64", ".rf64"})


def display_name(name: str) -> str:
    """The name of a noise or room in labels; for a file, its name without folder and suffix."""
    return Path(name.removeprefix(FILE_PREFIX)).stem if name.startswith(FILE_PREFIX) else name


def sound_files(name: str) -> tuple[Path, ...]:
    """The sound files of `file:PATH`: the file, or all in the folder, sorted by name. Raises CorpusError."""
    path = Path(name.removeprefix(FILE_PREFIX)).expanduser()
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise CorpusError(f"{path}: is neither a sound file nor a folder of them; check the path after {FILE_PREFIX}.")
    files = sorted(entry for entry in path.iterdir() if entry.suffix.lower() in _SUFFIXES and entry.is_file())
    if not files:
        raise CorpusError(f"{path}: contains no sound files; put WAV, FLAC, OGG or MP3 files into it.")
    if len(files) > MAX_FILES:
        raise CorpusError(f"{path}: contains {len(files)} sound files; use at most {MAX_FILES}.")
    return tuple(files)


def fingerprint(name: str) -> str:
    """A hash of the contents of the sound files. Raises CorpusError if one of them cannot be decoded."""
    digest = hashlib.sha256()
    for file in sound_files(name):
        try:
            status = file.stat()
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({error.strerror}); check its permissions.") from error
        digest.update(_fingerprint_of(file, status.st_size, status.st_mtime_ns).encode())
    return digest.hexdigest()


@lru_cache(maxsize=MAX_FILES)
def _fingerprint_of(file: Path, size: int, mtime_ns: int) -> str:
    del size, mtime_ns  # part of the cache key, so that a changed file is read again
    with _opened(file) as sound:
        if not sound.frames:
            raise CorpusError(f"{file}: contains no samples; use another sound file.")
        if sound.frames > MAX_SECONDS * sound.samplerate:
            raise CorpusError(f"{file}: is longer than {MAX_SECONDS / 60:g} minutes; shorten it.")
        # Decode the whole file: only that shows whether it is truncated, and here it is found before a run starts.
        _check_whole(file, sound.frames, sum(map(len, _blocks(sound))))
        return hashlib.sha256(file.read_bytes()).hexdigest()


def _blocks(sound: soundfile.SoundFile) -> Iterator[NDArray[np.float64]]:
    while len(block := np.asarray(sound.read(_BLOCK_FRAMES, "float64", always_2d=True), dtype=np.float64)):
        yield block


def _decoded(file: Path) -> tuple[NDArray[np.float64], int]:
    """All samples of a file, shape (samples, channels), and their rate. Raises CorpusError."""
    with _opened(file) as sound:
        declared, rate_hz = sound.frames, sound.samplerate
        blocks = list(_blocks(sound))
    _check_whole(file, declared, sum(map(len, blocks)))
    samples = np.concatenate(blocks)
    if not np.all(np.isfinite(samples)):
        raise CorpusError(f"{file}: contains samples that are not numbers (NaN or infinite); convert it again.")
    return samples, rate_hz


def _check_whole(file: Path, declared: int, decoded: int) -> None:
    if decoded < declared:
        raise CorpusError(f"{file}: is truncated: it has {decoded} of {declared} samples; restore it.")


@contextmanager
def _opened(file: Path) -> Generator[soundfile.SoundFile]:
    """Open a sound file. Raises CorpusError, also for errors while it is read."""
    try:
        with file.open("rb") as content:
            segments = find_segments(content)
            if len(segments) > 1:
                raise CorpusError(f"{file}: contains {len(segments)} recordings; save each as its own file.")
            if segments[0].missing is not None:
                raise CorpusError(f"{file}: is truncated or damaged: {segments[0].missing}; restore it.")
            with soundfile.SoundFile(cast("BinaryIO", SegmentFile(content, segments[0]))) as sound:
                yield sound
    except soundfile.LibsndfileError as error:
        reason = error.error_string.rstrip(". ")
        raise CorpusError(
            f"{file}: cannot be decoded to its end ({reason}); restore it, or convert it to WAV or FLAC."
        ) from error
    except OSError as error:
        raise CorpusError(f"{file}: cannot be read ({error.strerror}); check its permissions.") from error


def read_sound(file: Path, rate_hz: int) -> Samples:
    """Read the first channel of a sound file at a sample rate; shape (samples,). Raises CorpusError."""
    sound, from_hz = _decoded(file)
    return round_samples(np.asarray(soxr.resample(sound[:, 0], from_hz, rate_hz, quality="VHQ"), dtype=np.float64))


def read_sounds(name: str, rate_hz: int) -> Samples:
    """Read all sound files of `file:PATH`, joined and mixed to mono at a rate; shape (samples,), read-only."""
    files = sound_files(name)
    return _read_sounds(files, tuple(file.stat().st_mtime_ns for file in files), rate_hz)


@lru_cache(maxsize=4)
def _read_sounds(files: Sequence[Path], mtimes_ns: Sequence[int], rate_hz: int) -> Samples:
    del mtimes_ns
    pieces: list[Samples] = []
    seconds = 0.0
    for file in files:
        sound, from_hz = _decoded(file)
        mono = sound[:, 0] if sound.shape[1] == 1 else np.mean(sound, axis=1)
        seconds += len(mono) / from_hz
        if seconds > MAX_SECONDS:
            raise CorpusError(f"{file.parent}: contains more than {MAX_SECONDS / 60:g} minutes of sound; use less.")
        pieces.append(round_samples(np.asarray(soxr.resample(mono, from_hz, rate_hz, quality="VHQ"), dtype=np.float64)))
    samples = np.concatenate(pieces)
    if not math.isfinite(float(np.max(np.abs(samples)))) or not np.any(samples):
        raise CorpusError(f"{files[0]}: is silent; use a file that is not.")
    samples.flags.writeable = False
    return samples
