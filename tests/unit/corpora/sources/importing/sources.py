"""Helpers that write recordings made from the bundled clips, and import them."""

from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from corpora.manifest.errors import SourceError
from corpora.manifest.library import BUNDLED, Corpus, available, open_corpus
from corpora.manifest.manifest import read_manifest
from corpora.sources.importing.items import Settings
from corpora.sources.importing.layouts import layout_of
from corpora.sources.importing.pipeline import Outcome, import_corpus, opened_source

RATE_HZ = 16_000
Samples = NDArray[np.float64]
SOUNDFILE_KINDS: dict[str, tuple[str, str | None]] = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", None),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "aiff": ("AIFF", "PCM_16"),
}


@cache
def bundled() -> Corpus:
    folder = next(info.path for info in available() if info.name == BUNDLED)
    manifest = read_manifest(folder)
    return Corpus(manifest.name, folder, manifest.kind, manifest.utterances)


def speech(number: int = 0) -> Samples:
    """A short bundled clip at 16 kHz; each number gives a different one."""
    corpus = bundled()
    return corpus.read(corpus.select(length="short")[number])


def put(file: Path, samples: Samples, rate_hz: int = RATE_HZ, text: str | None = None) -> Path:
    """Write a recording in the format of its suffix, and its text next to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kind = file.suffix.removeprefix(".")
    if kind in SOUNDFILE_KINDS:
        form, subtype = SOUNDFILE_KINDS[kind]
        soundfile.write(file, samples, rate_hz, format=form, subtype=subtype)
    elif kind == "m4a":
        _put_av(file, samples, rate_hz, "ipod", "aac", "fltp")
    elif kind == "g722":
        _put_av(file, samples, rate_hz, "g722", "g722", "s16")
    else:
        file.write_bytes(np.rint(samples * 32_767).astype("<i2").tobytes())
    if text is not None:
        file.with_suffix(".txt").write_text(f"{text}\n")
    return file


def _put_av(file: Path, samples: Samples, rate_hz: int, form: str, codec: str, fmt: str) -> None:
    data = samples.astype(np.float32) if fmt == "fltp" else np.rint(samples * 32_767).astype(np.int16)
    with av.open(str(file), "w", format=form) as container:
        stream: Any = container.add_stream(codec, rate=rate_hz, layout="mono")
        frame = av.AudioFrame.from_ndarray(data[None], format=fmt, layout="mono")
        frame.sample_rate = rate_hz
        for part in (frame, None):
            for packet in stream.encode(part):
                container.mux(packet)


def import_source(
    source: Path, into: Path, form: str | None = None, *, skip_bad: bool = False, append: bool = False, **changes: Any
) -> Outcome:
    """Import a source in this process."""
    fields: dict[str, Any] = {"license": "CC0-1.0", "consent": "asked by a test", "label": source.name}
    settings = Settings(**(fields | changes))
    with opened_source(source, into.parent) as tree:
        layout = layout_of(tree, form, settings.caller_channel is not None)
        return import_corpus(tree, layout, into, settings, skip_bad=skip_bad, append=append)


def faults_of(source: Path, **changes: Any) -> tuple[str, ...]:
    """Import a source that cannot be imported, and into which nothing is written; returns its faults."""
    with pytest.raises(SourceError) as caught:
        import_source(source, source.parent / "out", **changes)
    assert not (source.parent / "out").exists()
    assert not any("\n" in fault for fault in caught.value.faults)
    return caught.value.faults


def opened(outcome: Outcome) -> Corpus:
    return open_corpus(outcome.folder)


def texts(outcome: Outcome) -> dict[str, str | None]:
    return {utterance.id: utterance.text for utterance in opened(outcome).utterances}
