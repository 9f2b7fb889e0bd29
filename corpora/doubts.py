"""Which annotated bounds want a human look, and why."""

from corpora.manifest import LOW_CONFIDENCE_DB, Utterance

_EDGE_S = 0.010


def doubts(utterance: Utterance) -> tuple[str, ...]:
    """Why an utterance's bounds may be off by more than 10 ms; nothing where they are sure or were looked at.

    Bounds that a person set carry no confidence, and are not doubted.
    """
    if utterance.reviewed or utterance.bounds_confidence_db is None:
        return ()
    found: list[str] = []
    if utterance.bounds_confidence_db < LOW_CONFIDENCE_DB:
        found.append(f"speech is only {utterance.bounds_confidence_db:.0f} dB over the floor")
    edge = _EDGE_S * utterance.sample_rate_hz
    if utterance.speech_start_sample < edge:
        found.append("speech begins where the clip does: it may be cut off")
    if utterance.samples - 1 - utterance.speech_end_sample < edge:
        found.append("speech ends where the clip does: it may be cut off")
    return tuple(found)
