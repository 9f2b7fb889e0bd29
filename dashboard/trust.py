"""Whether a page's figures can be trusted, as one chip: valid · telemetry complete · calibrated ± x ms. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard import descriptions
from dashboard.objective_status import SYMBOLS, State
from telemetry.model.formatting import count, number
from telemetry.store.answers import RunRecord, Summary

# A state, and what is in it.
Part = tuple[State, str]


@dataclass(frozen=True, slots=True)
class Trust:
    """`state` is "met" when nothing weakens the figures, "missed" when something does, else "unknown"."""

    state: State
    label: str


def trust(run: RunRecord, summary: Summary) -> Trust:
    """The chip of a run's figures: each part says what is wrong with it, or that nothing is."""
    return trust_of([_validity(run, summary), _telemetry(summary), *([] if run.service else [_calibration(run)])])


def trust_of(parts: Sequence[Part]) -> Trust:
    """The chip that says all of some parts, each a state and what it is about."""
    states = {state for state, _ in parts}
    state: State = "missed" if "missed" in states else "unknown" if "unknown" in states else "met"
    return Trust(state, f"{SYMBOLS[state]} {' · '.join(text for _, text in parts)}")


def _validity(run: RunRecord, summary: Summary) -> Part:
    if summary.limit is not None:
        return "missed", "generator-limited"
    if run.service is not None:
        return "unknown", "reported, not heard"
    if not summary.turns.total:
        return "unknown", "no turns"
    if summary.turns.invalid:
        return "unknown", f"{number(summary.turns.invalid)} of {count(summary.turns.total, 'turn')} invalid"
    return "met", "valid"


def _telemetry(summary: Summary) -> Part:
    _, good = descriptions.describe_loss(summary.loss)
    if good is None:
        return "unknown", "telemetry loss not known"
    return ("met", "telemetry complete") if good else ("missed", f"{count(summary.loss.missing, 'turn')} lost")


def _calibration(run: RunRecord) -> Part:
    bound = run.declared.get("calibrated_to_ms")
    return ("met", f"calibrated ± {bound} ms") if bound else ("unknown", "not calibrated")
