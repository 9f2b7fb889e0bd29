"""The final summary on a terminal: the verdict first, then the stages, what happened, and how well it was measured."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from loadtest.exit_codes import ExitCode
from loadtest.protocols.address import public_target
from loadtest.reports import figures, model_servers
from loadtest.reports.behavior import behavior_rows
from loadtest.reports.failures import failure_table, retry_line
from loadtest.reports.phases import has_phases, load_line, phase_table, ramp_line, starts_sentence
from loadtest.reports.run_info import RunInfo
from loadtest.reports.run_outcome import RunOutcome, generator_loss
from loadtest.reports.stated_error import bounds_sentence, error_line
from loadtest.reports.summary import fallback_rate
from loadtest.reports.wer_by_condition import wer_table
from telemetry.model import formatting
from telemetry.model.generator_health import NOT_REPORTED, SUMMARY_FIGURES
from telemetry.model.metrics import HEADLINE, shown_in
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import CacheStats, Generator, MetricStats, ShareByName, Summary
from telemetry.store.beside import Beside

# Rows that are shown even when nothing was measured, so that a figure that is missing is seen to be missing.
_ALWAYS: Final = frozenset(shown_in("terminal-always"))
_STAGES: Final = shown_in("terminal", "terminal-always")
_STATISTICS: Final = ("p50", "p95", "p99", "max")
_MET: Final = {True: ("✔", "met", "green"), False: ("✘", "missed", "red"), None: ("?", "undecided", "yellow")}


def final_view(
    *, run: RunInfo, summary: Summary, verdicts: Sequence[Verdict], run_outcome: RunOutcome
) -> RenderableType:
    """Everything a run prints at its end. Readable without color and from 80 columns on."""
    parts: list[RenderableType] = [
        _heading("Verdict"),
        _verdicts(verdicts, run_outcome),
        _heading("Stages, " + ("as the caller heard them" if run.service is None else _reported(summary))),
        _stages(summary),
        *_withheld(summary),
        _heading("What happened"),
        _pairs(_happened(summary)),
    ]
    if summary.failures:
        parts += [_heading("Why turns failed"), failure_table(summary)]
    if len(summary.cohorts) > 1:
        parts += [_heading("Cohorts"), _cohorts(summary)]
    if len(summary.wer_by_condition) > 1:
        parts += [_heading("What the endpoint understood"), wer_table(summary.wer_by_condition)]
    if has_phases(summary):
        parts += [_heading("Phases"), phase_table(summary)]
    if run.model_servers:
        parts += [_heading(model_servers.TITLE), model_servers.model_server_table(run.model_servers)]
    parts += [_heading("How well this was measured"), _pairs(_evidence(run, summary))]
    parts += [_heading("Run"), _pairs(_run(run, summary))]
    return Group(*parts)


def _reported(summary: Summary) -> str:
    return summary.client_service_delta.reported


def _heading(text: str) -> RenderableType:
    return Padding(Rule(Text(text, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=14)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, text)
    return table


def _verdicts(verdicts: Sequence[Verdict], run_outcome: RunOutcome) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=11)
    table.add_column(overflow="fold")
    for verdict in verdicts:
        sign, word, style = _MET[verdict.met]
        table.add_row(Text(f"{sign} {word}", style=f"bold {style}"), Text(verdict.sentence))
        if counts := _good_and_budget(verdict):
            table.add_row("", Text(counts, style="dim"))
    style = {ExitCode.OK: "green", ExitCode.UNDECIDED: "yellow"}.get(run_outcome.code, "red")
    word = run_outcome.code.name.lower().replace("_", " ")
    table.add_row(Text(f"exit {int(run_outcome.code)}", style=f"bold {style}"), Text(f"{word}: {run_outcome.reason}"))
    return table


def _good_and_budget(verdict: Verdict) -> str:
    """What the sentence of a verdict leaves out; nothing where the sentence is all there is to say."""
    if verdict.budget_left is None:
        return ""
    budget = (
        f"error budget left {formatting.percent(verdict.budget_left)}"
        if verdict.budget_left >= 0
        else "error budget overspent"
    )
    return (
        f"{formatting.number(verdict.good)} of {formatting.number(verdict.eligible)} {verdict.counts} good · {budget}"
    )


def _stages(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("stage", no_wrap=True)
    for name in (*_STATISTICS, "n"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in _STAGES:
        stats = summary.metrics.get(name)
        if stats is None or (stats.n == 0 and name not in _ALWAYS):
            continue
        table.add_row(figures.label(name), *_cells(stats), style="bold" if name == HEADLINE else "")
    return table


def _cells(stats: MetricStats) -> list[str]:
    if stats.n == 0:
        word = figures.NOT_OBSERVABLE if stats.withheld else "not measured"
        return [word, formatting.DASH, formatting.DASH, formatting.DASH, figures.answered(stats)]
    return [*(figures.of_the_answered(stats, which) for which in _STATISTICS), figures.answered(stats)]


def _withheld(summary: Summary) -> list[RenderableType]:
    stats = [summary.metrics[name] for name in _STAGES if name in summary.metrics]
    rows = [(figures.label(each.name), each.withheld) for each in stats if each.n == 0 and each.withheld]
    lines: list[RenderableType] = []
    if (stated := error_line(summary.metrics[HEADLINE])) is not None:
        lines.append(Text(stated, style="dim", overflow="fold"))
    lines += [Text(f"not observable: {name}: {reason}", style="dim", overflow="fold") for name, reason in rows]
    lines += _unanswered(summary, stats)
    if any(0 < each.n < 100 for each in stats):
        lines.append(Text("too few: a p95 needs 20 values, a p99 needs 100", style="dim"))
    return lines


def _unanswered(summary: Summary, stats: list[MetricStats]) -> list[RenderableType]:
    """That percentiles are not of all turns, where some went unanswered."""
    if not any(each.n and each.unanswered for each in stats):
        return []
    heard = summary.metrics[HEADLINE]
    lines: list[RenderableType] = [Text(figures.ANSWERED_NOTE, style="yellow", overflow="fold")]
    if heard.unanswered:
        turns = f"{formatting.number(heard.unanswered)} of {formatting.turns(summary.turns.eligible)}"
        lines.append(Text(f"{turns} went unanswered: the objectives count them as bad", style="yellow"))
    return lines


def _happened(summary: Summary) -> list[tuple[str, str]]:
    turns = summary.turns
    outcomes = ", ".join(
        f"{formatting.number(count)} {OUTCOME_LABELS[name]}" for name, count in turns.by_outcome.items() if count
    )
    rows = [("turns", f"{formatting.number(turns.total)} ({outcomes})" if outcomes else formatting.number(turns.total))]
    if turns.cut:
        rows.append(("cut", f"{formatting.turns(turns.cut)} before the end, by {_counts(turns.cut_by)}"))
    rows += behavior_rows(summary)
    if (retries := retry_line(summary)) is not None:
        rows.append(("retries", retries))
    if (ramp := ramp_line(summary)) is not None:
        rows.append(("ramps", ramp))
    rows.append(("cache", cache_line(summary.cache)))
    rows.append(("fallback", fallback_line(summary.fallback)))
    rows += beside_rows(summary.beside)
    if summary.routes.counts:
        rows.append(("routes", _counts(summary.routes.counts)))
    return rows


def cache_line(cache: CacheStats) -> str:
    """Hit rate and hits by tier, or that none was reported."""
    if not cache.reported:
        return "not reported by the endpoint"
    tiers = f" ({_counts(cache.hits_by_tier)})" if cache.hits_by_tier else ""
    return f"{formatting.percent(cache.hit_rate)} hits of {formatting.turns(cache.reported)} that reported{tiers}"


def fallback_line(fallback: ShareByName) -> str:
    """How often a fallback answered, by kind, or that none was reported."""
    if not fallback.reported:
        return "not reported by the endpoint"
    kinds = f" ({_counts(fallback.counts)})" if fallback.counts else ""
    return (
        f"{formatting.percent(fallback_rate(fallback))} of {formatting.turns(fallback.reported)} that reported{kinds}"
    )


def beside_rows(beside: Beside) -> list[tuple[str, str]]:
    """What arrived beside the conversations; no row where there was nothing."""
    rows: list[tuple[str, str]] = []
    if beside.unknown:
        names = f" ({', '.join(beside.unknown_names)})" if beside.unknown_names else ""
        rows.append(("unknown", f"{formatting.number(beside.unknown)} events that the protocol does not know{names}"))
    if beside.duplicates:
        rows.append(("duplicates", f"{formatting.number(beside.duplicates)} events came twice; each was heard once"))
    if beside.turns_with_service_latency:
        text = f"on {formatting.turns(beside.turns_with_service_latency)} the service stated latencies of its own"
        rows.append(("metadata", text))
    return rows


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {formatting.number(count)}" for name, count in counts.items())


def _cohorts(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("cohort", overflow="fold")
    for name in ("turns", "v2v p50", "v2v p95", "cache hits", "fallback"):
        table.add_column(name, justify="right", no_wrap=True)
    for cohort in summary.cohorts:
        heard = cohort.metrics.get(HEADLINE)
        table.add_row(
            cohort.cohort,
            formatting.number(cohort.turns.total),
            formatting.DASH if heard is None else figures.of_the_answered(heard, "p50"),
            formatting.DASH if heard is None else figures.of_the_answered(heard, "p95"),
            formatting.percent(cohort.cache.hit_rate),
            formatting.percent(fallback_rate(cohort.fallback)),
        )
    return table


def _evidence(run: RunInfo, summary: Summary) -> list[tuple[str, str]]:
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
    figures = [figure for figure in SUMMARY_FIGURES if figure.terminal_row == row]
    return ", ".join(
        figure.describe(value, is_estimate=figure.name in health.approximate)
        for figure in figures
        if (value := health[figure.name]) or not figure.hidden_when_zero
    )


def _processes(run: RunInfo) -> str:
    ended = generator_loss(run) or f"all {run.processes} ended as they should"
    turns = [each.turns for each in run.shares]
    used = [each.cpu_ratio for each in run.shares if each.cpu_ratio is not None]
    each = [f"{_range(turns, formatting.number)} turns each"] if turns else []
    each += [f"{_range(used, formatting.percent)} of a core"] if used else []
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
    if turns.invalid_by_reason:
        text += f" ({_counts(turns.invalid_by_reason)})"
    return f"{text}: generator-limited" if summary.turns.is_generator_limited else text


def _not_read(summary: Summary) -> str:
    turns, blocked = summary.turns, formatting.milliseconds(summary.generator["send_blocked_worst_ns"])
    return (
        f"the endpoint did not read in {formatting.number(turns.endpoint_did_not_read)} of"
        f" {formatting.turns(turns.eligible)} (for up to {blocked}): they count, timed from when the caller spoke"
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
        f"{client_service_delta.note}"
    )


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
    if summary.skipped_segments:
        text += f", {formatting.number(summary.skipped_segments)} unreadable store files left out"
    return text


def _run(run: RunInfo, summary: Summary) -> list[tuple[str, str]]:
    if run.service is not None:
        day = f"{run.service.service} · {run.service.day.isoformat()} (UTC) · {_reported(summary)}"
        return [("service", day), ("run", run.run_id), *([("store", run.store)] if run.store else [])]
    altered = [f"noise {run.profile.noise}"] if run.profile.noise else []
    altered += [f"{run.profile.snr_db:g} dB SNR"] if run.profile.snr_db is not None else []
    altered += [f"{run.profile.length} utterances"] if run.profile.length else []
    altered += [f"channel {run.profile.channel}"] if run.profile.channel else []
    corpus = f"{run.corpus.name}: {run.corpus.kind} speech, {run.corpus.utterances} utterances"
    if run.corpus.licenses:
        corpus += f" ({', '.join(run.corpus.licenses)})"
    rows = [
        (
            "run",
            f"{run.run_id} · {run.protocol} · {load_line(run)} · seed {'not known' if run.seed is None else run.seed}",
        ),
        ("target", public_target(run.target)),
        ("corpus", " · ".join([corpus, *altered])),
    ]
    rows += [("store", run.store)] if run.store else []
    rows += [("dashboard", run.dashboard_url)] if run.dashboard_url else []
    return rows
