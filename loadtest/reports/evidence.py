"""Evidence of how well a run was measured, as rows of a name and a sentence: the same in every report. Pure."""

from collections.abc import Callable, Sequence

from loadtest.reports import figures
from loadtest.reports.measured_within import bounds_sentence
from loadtest.reports.phases import starts_sentence
from loadtest.reports.run_info import RunInfo
from loadtest.reports.run_outcome import generator_loss
from telemetry.model import formatting
from telemetry.model.formatting import NOT_REPORTED
from telemetry.model.generator_health import SUMMARY_FIGURES, invalid_text
from telemetry.store.answers import Generator, Summary


def evidence_rows(run: RunInfo, summary: Summary) -> list[tuple[str, str]]:
    """Return what of the instrument and of the telemetry is known; of what only a service reported, how both sides
    differ."""
    health = summary.generator
    pacing = f"{_health(health, 'pacing')} (pacer: {health.pacer or NOT_REPORTED})"
    receive = f"stamped by: {health.receive_stamp or NOT_REPORTED}, {_health(health, 'receiving')}"
    if run.service is not None:
        return [("service delta", _client_service_delta(run, summary))]
    rows = [("processes", _processes(run))] if run.processes > 1 or run.lost or run.killed_by else []
    return [
        *rows,
        ("invalid", _invalid(summary)),
        *([("not read", _not_read(summary))] if summary.turns.endpoint_did_not_read else []),
        *([("starts", starts_sentence(summary))] if summary.starts is not None else []),
        ("pacing", pacing),
        ("receiving", receive),
        ("speech bounds", bounds_sentence(summary)),
        *([("calibration", run.calibration.sentence)] if run.calibration is not None else []),
        ("sockets", _health(health, "sockets")),
        ("process", _health(health, "process")),
        ("service delta", _client_service_delta(run, summary)),
        ("telemetry", _telemetry(run, summary)),
    ]


def _health(health: Generator, row: str) -> str:
    """The figures of the generator's health that one row shows."""
    return ", ".join(
        health.describe(figure)
        for figure in SUMMARY_FIGURES
        if figure.terminal_row == row and (health[figure.name] or not figure.hidden_when_zero)
    )


def _processes(run: RunInfo) -> str:
    ended = generator_loss(run) or f"all {run.processes} ended as they should"
    turns = [each.turns for each in run.shares]
    used = [each.cpu_ratio for each in run.shares if each.cpu_ratio is not None]
    each = [f"{_range(turns, formatting.number)} turns each"] if turns else []
    each += [f"≤ {_range(used, formatting.percent)} of a core in 3 of 4 s"] if used else []
    return "; ".join([ended, *([", ".join(each)] if each else [])])


def _range(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """From the least to the most, or one value where both look alike."""
    least, most = shown(min(values)), shown(max(values))
    return least if least == most else f"{least} to {most}"


def _invalid(summary: Summary) -> str:
    turns = summary.turns
    if not turns.total:
        return "no turn was measured"
    text = f"{formatting.number(turns.invalid)} of {formatting.turns(turns.total)}"
    if turns.invalid:
        text += f": {invalid_text(turns.not_as_recorded, turns.faults, turns.invalid_by_reason)}"
    return text


def _not_read(summary: Summary) -> str:
    turns, blocked = summary.turns, formatting.milliseconds(summary.generator["send_blocked_worst_ns"])
    timed = "timed from when the caller spoke"
    counted = f"{timed}; those that were cut do not count" if turns.cut else f"they count, {timed}"
    return (
        f"the endpoint did not read in {formatting.number(turns.endpoint_did_not_read)} of"
        f" {formatting.turns(turns.valid)} (for up to {blocked}): {counted}"
    )


def _client_service_delta(run: RunInfo, summary: Summary) -> str:
    client_service_delta = summary.client_service_delta
    if not client_service_delta.joined:
        other = "the service reported" if run.service is None else "callers heard"
        return f"not known: {other} none of these turns"
    is_estimate = client_service_delta.approximate
    p99 = (
        figures.TOO_FEW
        if client_service_delta.difference_p99_ns is None
        else formatting.estimate_if(is_estimate, formatting.milliseconds(client_service_delta.difference_p99_ns))
    )
    p50 = formatting.estimate_if(is_estimate, formatting.milliseconds(client_service_delta.difference_p50_ns))
    return (
        f"client against service on {formatting.turns(client_service_delta.joined)}: p50 {p50}, p99 {p99},"
        f" largest {formatting.milliseconds(client_service_delta.difference_abs_max_ns)}"
        f"{client_service_delta.note}{_not_reported(client_service_delta.client_only)}"
    )


def _not_reported(turns: int) -> str:
    return f"; the service had not reported {formatting.turns(turns)} that callers heard" if turns else ""


def _telemetry(run: RunInfo, summary: Summary) -> str:
    loss = summary.loss
    emitted = "an unknown number" if loss.emitted is None else formatting.number(loss.emitted)
    text = f"{formatting.number(loss.received)} of {emitted} received"
    if loss.missing:
        text += f", {formatting.number(loss.missing)} lost"
    if (kept := run.spooled) is not None:
        if kept.spans:
            text += f", {figures.turns_and_spans(kept.turns, kept.spans)} delivered from the spool after the run"
        if kept.waiting_spans:
            text += f", {figures.turns_and_spans(kept.waiting_turns, kept.waiting_spans)} waiting in the spool"
    return text
