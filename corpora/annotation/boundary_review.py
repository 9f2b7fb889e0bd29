"""Which annotated bounds want a human look, and why."""

from collections.abc import Iterator

from corpora.annotation.boundary_uncertainty import SURE_MS
from corpora.manifest.manifest import Utterance

_EDGE_S = 0.010


def review_reasons(utterance: Utterance) -> tuple[str, ...]:
    """Why an utterance's bounds want a look; nothing where they are sure or were looked at.

    Bounds that a person set carry no confidence, and are doubted only where nobody said how far they may be off.
    """
    found = list(uncertain(utterance, SURE_MS))
    if utterance.reviewed or utterance.bounds_confidence_db is None:
        return tuple(found)
    edge = _EDGE_S * utterance.sample_rate_hz
    if utterance.speech_start_sample < edge:
        found.append("speech begins where the clip does: it may be cut off")
    if utterance.samples - 1 - utterance.speech_end_sample < edge:
        found.append("speech ends where the clip does: it may be cut off")
    return tuple(found)


def uncertain(utterance: Utterance, beyond_ms: float) -> Iterator[str]:
    """What is not known of where an utterance's speech begins and ends, or only to worse than `beyond_ms`, a sentence
    each."""
    stated = {
        "begins": utterance.speech_start_uncertainty_ms,
        "ends": utterance.speech_end_uncertainty_ms,
    }
    if unknown := [does for does, half_width_ms in stated.items() if half_width_ms is None]:
        yield f"how far the annotation of where its speech {' and '.join(unknown)} may be off is not known"
    for does, half_width_ms in stated.items():
        if half_width_ms is not None and half_width_ms > beyond_ms:
            yield f"where its speech {does} is known only to ±{half_width_ms:g} ms, more than {beyond_ms:g}"
