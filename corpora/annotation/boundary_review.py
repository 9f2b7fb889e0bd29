"""Annotated speech bounds that a person should review, with the reasons.

With exact edges, speech ends where it is faded out, so only the beginnings are considered.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from corpora.annotation.boundary_uncertainty import SURE_MS
from corpora.manifest.manifest import Edges, Utterance

_EDGE_S = 0.010


def review_reasons(utterance: Utterance, edges: Edges) -> tuple[str, ...]:
    """The reasons to review an utterance's bounds, one sentence each; none if they are sure or were reviewed.

    Bounds that a person set have no confidence and are listed only if their uncertainty is unknown or too large.
    """
    reasons = list(uncertain(utterance, edges, SURE_MS))
    if utterance.reviewed or utterance.bounds_confidence_db is None:
        return tuple(reasons)
    edge = _EDGE_S * utterance.sample_rate_hz
    if utterance.speech_start_sample < edge:
        reasons.append("speech begins where the clip does: it may be cut off")
    if edges == "recorded" and utterance.samples - 1 - utterance.speech_end_sample < edge:
        reasons.append("speech ends where the clip does: it may be cut off")
    return tuple(reasons)


def review_advice(utterances: Iterable[Utterance], edges: Edges, folder: Path) -> Iterator[str]:
    """Yield a sentence that names the command if some utterances should be reviewed."""
    doubtful = sum(bool(review_reasons(utterance, edges)) for utterance in utterances)
    if doubtful:
        bounds = "speech bounds that may" if edges == "recorded" else "a start of speech that may"
        yield f"{doubtful} have {bounds} be off by more than {SURE_MS:g} ms: voiceprobe corpus review {folder}"


def uncertain(utterance: Utterance, edges: Edges, beyond_ms: float) -> Iterator[str]:
    """Yield a sentence for each bound with an uncertainty that is unknown or above `beyond_ms`.

    With exact edges, where speech ends in the recording does not matter.
    """
    stated = {"begins": utterance.speech_start_uncertainty_ms}
    if edges == "recorded":
        stated["ends"] = utterance.speech_end_uncertainty_ms
    if unknown := [verb for verb, half_width_ms in stated.items() if half_width_ms is None]:
        yield f"the uncertainty of where its speech {' and '.join(unknown)} is unknown"
    for verb, half_width_ms in stated.items():
        if half_width_ms is not None and half_width_ms > beyond_ms:
            yield f"where its speech {verb} is known only to ±{half_width_ms:g} ms, worse than ±{beyond_ms:g} ms"
