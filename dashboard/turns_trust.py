"""How far figures over the turns of many runs can be trusted, as one chip and as the details that it opens. Pure."""

from dashboard import descriptions
from dashboard.header import fact, lines_of_details
from dashboard.trust import Part, Trust, invalid_part, telemetry_part, trust_of
from telemetry.model.formatting import count, number, share
from telemetry.model.service_runs import REPORTED
from telemetry.store.questions.burn_rates import MeasuredTurns


def turns_trust(measured: MeasuredTurns) -> Trust:
    """The chip of a page with turns: each part says what is wrong with them, or that nothing is."""
    parts = [_validity(measured), telemetry_part(measured.evidence.loss)]
    if measured.source == "client":
        parts.append(_calibration(measured))
    return trust_of(parts)


def turns_details(measured: MeasuredTurns) -> str:
    """How well the figures were measured, as HTML."""
    evidence, counted = measured.evidence, measured.counted
    runs = fact("runs", f"{count(evidence.runs, 'run')} with {count(counted.total, 'turn')} in 28 days")
    telemetry = fact("telemetry", _describe_loss(measured), telemetry_part(measured.evidence.loss)[0])
    if measured.source == "service":
        return lines_of_details([runs, fact("turns", REPORTED, "unknown"), telemetry])
    found = [runs, fact("turns", _describe_invalid(measured), "unknown" if counted.invalid else "met")]
    if measured.limited.runs:
        found.append(fact("generator", _describe_limited(measured), _validity(measured)[0]))
    return lines_of_details([*found, telemetry, fact("calibration", _describe_calibration(measured))])


def _validity(measured: MeasuredTurns) -> Part:
    counted, limited = measured.counted, measured.limited
    if measured.source == "service":
        return "unknown", "reported, not heard"
    if not counted.total:
        return "unknown", "no turns"
    if limited.runs and limited.turns == counted.valid:
        return "missed", "generator-limited"
    if limited.turns:
        return "unknown", f"{number(limited.turns)} of {count(counted.valid, 'turn')} of generator-limited runs"
    return invalid_part(counted.invalid, counted.total)


def _calibration(measured: MeasuredTurns) -> Part:
    evidence = measured.evidence
    if not evidence.calibrated:
        return "unknown", "not calibrated"
    if evidence.calibrated < evidence.runs:
        return "unknown", f"{number(evidence.calibrated)} of {count(evidence.runs, 'run')} calibrated"
    return "met", f"calibrated ± {evidence.calibrated_to_ms} ms"


def _describe_invalid(measured: MeasuredTurns) -> str:
    counted = measured.counted
    if not counted.invalid:
        return "none invalid"
    return f"{number(counted.invalid)} invalid ({share(counted.invalid, counted.total)}), which no figure counts"


def _describe_limited(measured: MeasuredTurns) -> str:
    limited = measured.limited
    of = f"{number(limited.turns)} of {count(measured.counted.valid, 'valid turn')}"
    return f"{of} are of {count(limited.runs, 'generator-limited run')}"


def _describe_loss(measured: MeasuredTurns) -> str:
    evidence = measured.evidence
    if evidence.loss is None:
        return "not known"
    text, good = descriptions.describe_loss(evidence.loss)
    several = "no gap seen (not every run has said how many turns it sent)"
    return several if good is None and evidence.runs > 1 else text


def _describe_calibration(measured: MeasuredTurns) -> str:
    evidence = measured.evidence
    if not evidence.calibrated:
        return "not calibrated"
    widest = f"to ± {evidence.calibrated_to_ms} ms"
    if evidence.runs == 1:
        return f"calibrated {widest}"
    return f"{number(evidence.calibrated)} of {count(evidence.runs, 'run')} calibrated, {widest} or better"
