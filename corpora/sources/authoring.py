"""Writing of a corpus folder: annotated and hashed FLAC clips and their manifest, atomically."""

import hashlib
import io
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from corpora.annotation.boundary_uncertainty import stated_ms
from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import DEFAULT_EDGES, CorpusKind, Edges, PiiKind, Utterance, write_manifest


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """An utterance before annotation; `pcm` is mono int16 of shape (samples,)."""

    id: str
    text: str | None
    speaker: str
    language: str
    domain: str
    license: str
    source: str
    pcm: NDArray[np.int16]
    rate_hz: int
    consent: str | None = None
    pii_kinds: tuple[PiiKind, ...] = ()
    processing: str | None = None


def write_corpus(
    folder: Path,
    name: str,
    kind: CorpusKind,
    drafts: Iterable[Draft],
    keep: Iterable[Path] = (),
    *,
    edges: Edges = DEFAULT_EDGES,
) -> int:
    """Annotate the drafts and write them to `folder`; returns the number of utterances.

    The folder is built under a temporary name and then replaces an existing one, so it is never incomplete. The files
    in `keep` are copied into it. Raises CorpusError if a draft contains no speech or the folder cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
            new_folder = Path(scratch) / "fresh"
            (new_folder / "clips").mkdir(parents=True)
            utterances = [write_clip(new_folder, draft) for draft in drafts]
            write_manifest(new_folder, name, kind, utterances, edges=edges)
            for file in keep:
                shutil.copyfile(file, new_folder / file.name)
            if folder.exists():
                folder.rename(Path(scratch) / "old")
            new_folder.rename(folder)
    except OSError as error:
        raise CorpusError(
            f"{folder}: the corpus cannot be written ({error.strerror}); check space and permissions."
        ) from error
    return len(utterances)


def write_clip(folder: Path, draft: Draft) -> Utterance:
    """Annotate a draft and write its clip to `clips` of a folder. Raises CorpusError if it contains no speech."""
    try:
        bounds = find_speech_bounds(draft.pcm / 32_768.0, draft.rate_hz)
    except CorpusError as error:
        raise CorpusError(f"{draft.id}: {error}") from error
    path = f"clips/{draft.id}.flac"
    encoded = io.BytesIO()
    soundfile.write(encoded, draft.pcm, draft.rate_hz, format="FLAC", subtype="PCM_16")
    content = encoded.getvalue()
    (folder / path).write_bytes(content)
    return Utterance(
        id=draft.id,
        path=path,
        text=draft.text,
        speaker=draft.speaker,
        language=draft.language,
        domain=draft.domain,
        license=draft.license,
        source=draft.source,
        sha256=hashlib.sha256(content).hexdigest(),
        sample_rate_hz=draft.rate_hz,
        samples=len(draft.pcm),
        speech_start_sample=bounds.start_sample,
        speech_end_sample=bounds.end_sample,
        consent=draft.consent,
        bounds_confidence_db=bounds.confidence_db,
        speech_start_uncertainty_ms=stated_ms(bounds.start_uncertainty_s),
        speech_end_uncertainty_ms=stated_ms(bounds.end_uncertainty_s),
        pii_kinds=draft.pii_kinds,
        processing=draft.processing,
    )
