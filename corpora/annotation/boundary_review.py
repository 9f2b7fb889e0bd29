"""Which annotated speech bounds a person should review, and why."""

from collections.abc import Iterator

from corpora.annotation.boundary_uncertainty import SURE_MS
from corpora.manifest.manifest import Utterance

_EDGE_S = 0.010


def review_reasons(utterance: Utterance) -> tuple[str, ...]:
    """The reasons to review an utterance's bounds, one sentence each; none if they are sure or were reviewed.

    Bounds that a person set have no confidence and are listed only if their uncertainty is unknown or too large.
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
    """Yield a sentence for each of an utterance's bounds with an uncertainty that is unknown or above `beyond_ms`."""
    stated = {
        "begins": utterance.speech_start_uncertainty_ms,
        "ends": utterance.speech_end_uncertainty_ms,
    }
    if unknown := [verb for verb, half_width_ms in stated.items() if half_width_ms is None]:
        yield f"the uncertainty of where its speech {' and '.join(unknown)} is unknown"
    for verb, half_width_ms in stated.items():
        if half_width_ms is not None and half_width_ms > beyond_ms:
            yield f"where its speech {verb} is known only to ±{half_width_ms:g} ms, worse than ±{beyond_ms:g} ms"
