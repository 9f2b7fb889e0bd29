"""`voiceprobe corpus say`: synthesizes texts into a corpus."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr

from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.clips import Samples
from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.manifest import DEFAULT_EDGES, RATES_HZ, Edges
from corpora.output_paths import unwritable_folder
from corpora.sources.authoring import Draft, write_corpus
from corpora.sources.synthesis.texts import Text
from corpora.sources.synthesis.voices import SpeechEngine

PAD_S = 0.2


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """The texts to synthesize, and what they have in common."""

    texts: list[Text]
    voice: str
    license: str
    rate_hz: int
    into: Path
    force: bool = False
    edges: Edges = DEFAULT_EDGES


def synthesize(
    request: SynthesisRequest, engine: SpeechEngine, progress: Callable[[int, int], None] | None = None
) -> int:
    """Synthesize all texts and write the corpus atomically; returns the number of utterances.

    Raises CorpusError, or ManifestError with each text that could not be synthesized.
    """
    if request.into.exists() and not request.force:
        raise CorpusError(f"{request.into}: already exists; choose another folder, or replace it with --force.")
    if fault := unwritable_folder(request.into):
        raise CorpusError(f"--into: {fault}.")
    if request.rate_hz not in RATES_HZ:
        raise CorpusError(f"--rate {request.rate_hz}: must be from {RATES_HZ[0]} to {RATES_HZ[-1]} Hz.")
    with engine:
        drafts = _drafts(request, engine, progress)
        return write_corpus(request.into, request.into.resolve().name, "generated", drafts, edges=request.edges)


def _drafts(
    request: SynthesisRequest, engine: SpeechEngine, progress: Callable[[int, int], None] | None
) -> Iterator[Draft]:
    faults: list[str] = []
    for done, text in enumerate(request.texts, start=1):
        try:
            draft = _draft(text, request, engine)
        except CorpusError as error:
            faults.append(f"{text.id}: {error}")
        else:
            if not faults:
                yield draft
        if progress is not None:
            progress(done, len(request.texts))
    if faults:
        raise ManifestError(request.into, faults)


def _draft(text: Text, request: SynthesisRequest, engine: SpeechEngine) -> Draft:
    voice = text.voice or request.voice
    speech, rate_hz = engine.synthesize(text.text, voice)
    samples = np.asarray(soxr.resample(speech, rate_hz, request.rate_hz, quality="VHQ"), dtype=np.float64)
    pad = np.zeros(round(PAD_S * request.rate_hz))
    samples = np.concatenate((pad, _within_scale(samples), pad))
    find_speech_bounds(samples, request.rate_hz)  # checked here, so that all texts without speech are reported
    return Draft(
        id=text.id,
        text=text.text,
        speaker=f"{engine.source(voice)}".replace(" voice ", "-"),
        language=text.language,
        domain=text.domain,
        license=request.license,
        source=engine.source(voice),
        pcm=np.rint(samples * 32_767.0).astype(np.int16),
        rate_hz=request.rate_hz,
    )


def _within_scale(samples: Samples) -> Samples:
    """Scale samples down if resampling made them exceed full scale."""
    peak = float(np.max(np.abs(samples), initial=0.0))
    return samples / peak * 0.99 if peak > 0.99 else samples
