"""Errors of the annotation of the calibration speech, as its callers send it."""

from dataclasses import dataclass
from pathlib import Path

from corpora.manifest.library import open_corpus
from corpora.rendering.render import Profile, render
from loadtest.targets.ground_truth.speech import RATE_HZ, utterance_pcm


@dataclass(frozen=True, slots=True)
class AnnotationError:
    """The time by which a clip's annotation, later than the true bounds, puts the beginning and end of speech."""

    start_ns: int
    end_ns: int


def annotation_errors(folder: Path) -> dict[str, AnnotationError]:
    """Return the annotation error of each utterance in a calibration corpus, by id, of the clip as it is rendered: one
    with an exact end has none there. Raises CorpusError."""
    corpus = open_corpus(folder)
    errors: dict[str, AnnotationError] = {}
    for number, utterance in enumerate(corpus.utterances):
        _, first, last = utterance_pcm(number)
        rendered = render(corpus, utterance, Profile(), RATE_HZ)
        later = (rendered.speech_start_sample - first, rendered.speech_end_sample - last)
        errors[utterance.id] = AnnotationError(*(samples * 1_000_000_000 // RATE_HZ for samples in later))
    return errors
