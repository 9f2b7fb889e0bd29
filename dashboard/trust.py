"""Whether a page's figures can be trusted, as one chip: valid · telemetry complete · calibrated ± x ms. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard import descriptions
from dashboard.objective_status import SYMBOLS, State
from telemetry.model.formatting import count, number
from telemetry.store.answers import RunRecord, Summary, TelemetryLoss

# A state, and what is in it.
Part = tuple[State, str]


@dataclass(frozen=True, slots=True)
class Trust:
    """`state` is "met" when nothing weakens the figures, "missed" when something does, else "unknown"."""

    state: State
    label: str


def trust(run: RunRecord, summary: Summary) -> Trust:
    """The chip of a run's figures: each part says what is wrong with it, or that nothing is."""
    return trust_of(
        [_validity(run, summary), telemetry_part(summary.loss), *([] if run.service else [_calibration(run)])]
    )


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
    return invalid_part(summary.turns.invalid, summary.turns.total)


def invalid_part(invalid: int, total: int) -> Part:
    """That turns are valid, or how many of them are not."""
    return ("unknown", f"{number(invalid)} of {count(total, 'turn')} invalid") if invalid else ("met", "valid")


def telemetry_part(loss: TelemetryLoss | None) -> Part:
    """Whether telemetry is complete; None is a loss that nobody knows."""
    good = None if loss is None else descriptions.describe_loss(loss)[1]
    if loss is None or good is None:
        return "unknown", "telemetry loss not known"
    return ("met", "telemetry complete") if good else ("missed", f"{count(loss.missing, 'turn')} lost")


def _calibration(run: RunRecord) -> Part:
    bound = run.calibrated_to_ms
    return ("met", f"calibrated ± {bound} ms") if bound else ("unknown", "not calibrated")
