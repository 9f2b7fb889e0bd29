"""The final summary on a terminal: the verdict first, then the stages, what happened, and how well it was measured."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from loadtest.exit_codes import ExitCode
from loadtest.reports import figures, model_servers
from loadtest.reports.evidence import evidence_rows
from loadtest.reports.failures import REMARKS, failure_table, remark_table
from loadtest.reports.judged_objectives import Claim, JudgedObjective, judged_objectives, missed_first
from loadtest.reports.measured_within import bounds_lines, bounds_of
from loadtest.reports.phases import has_phases, phase_table
from loadtest.reports.run_info import RunInfo
from loadtest.reports.run_outcome import RunOutcome
from loadtest.reports.run_rows import happened_rows, place_rows, run_rows
from loadtest.reports.summary import fallback_rate
from loadtest.reports.wer_by_condition import wer_table
from telemetry.model import formatting
from telemetry.model.metrics import HEADLINE, shown_in
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import MetricStats, Summary

# Rows that are shown even when nothing was measured, so that a figure that is missing is seen to be missing.
_ALWAYS: Final = frozenset(shown_in("terminal-always"))
_STAGES: Final = shown_in("terminal", "terminal-always")
_STATISTICS: Final = ("p50", "p95", "p99", "max")
_SIGNS: Final[dict[Claim, tuple[str, str]]] = {
    "met": ("✔", "green"),
    "missed": ("✘", "red"),
    "undecided": ("?", "yellow"),
    "not judged": ("–", "yellow"),
}

_OF_STATE: Final = {"met": "green", "missed": "red", "undecided": "yellow", "not_judged": "red"}


def final_view(
    *,
    run: RunInfo,
    summary: Summary,
    verdicts: Sequence[Verdict],
    run_outcome: RunOutcome,
    verdict: RunVerdict,
    objectives: Sequence[Objective] = (),
) -> RenderableType:
    """Everything a run prints at its end. Readable without color and from 80 columns on. `objectives` are those that
    the verdicts are on."""
    parts: list[RenderableType] = [
        Text(verdict.sentence, style=f"bold {_OF_STATE[verdict.state]}"),
        _heading("Verdict"),
        _verdicts(judged_objectives(objectives, verdicts, summary), run_outcome),
        _heading("Stages, " + ("as the caller heard them" if run.service is None else _reported(summary))),
        _stages(summary),
        *_withheld(summary),
        _heading("What happened"),
        _pairs(happened_rows(summary)),
    ]
    if summary.failures:
        parts += [_heading("Why turns failed"), failure_table(summary)]
    if summary.remarks:
        parts += [_heading(REMARKS), remark_table(summary)]
    if len(summary.cohorts) > 1:
        heard = [(each.cohort, each.metrics.get(HEADLINE)) for each in summary.cohorts]
        parts += [_heading("Cohorts"), _cohorts(summary), *_dim(bounds_of(heard))]
    if len(summary.wer_by_condition) > 1:
        parts += [_heading("What the endpoint understood"), wer_table(summary.wer_by_condition)]
    if has_phases(summary):
        phases = [(each.phase, each.metrics.get(HEADLINE)) for each in summary.phases]
        parts += [_heading("Phases"), phase_table(summary), *_dim(bounds_of(phases))]
    if run.model_servers:
        parts += [_heading(model_servers.TITLE), model_servers.model_server_table(run.model_servers)]
    parts += [_heading("How well this was measured"), _pairs(evidence_rows(run, summary))]
    parts += [_heading("Run"), _pairs([*run_rows(run, summary), *place_rows(run)])]
    return Group(*parts)


def _dim(lines: Iterable[str]) -> list[RenderableType]:
    # Text, not markup: cohorts and phases have names that others gave.
    return [Text(line, style="dim", overflow="fold") for line in lines]


def _reported(summary: Summary) -> str:
    return summary.client_service_delta.reported


def _heading(text: str) -> RenderableType:
    return Padding(Rule(Text(text, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=14)
    table.add_column(overflow="fold")
    for name, text in rows:
        # Text, not markup: routes, cohorts and the like have names that others gave.
        table.add_row(name, Text(text))
    return table


def _verdicts(judged: Sequence[JudgedObjective], run_outcome: RunOutcome) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for each in missed_first(judged):
        sign, style = _SIGNS[each.claim]
        table.add_row(Text(f"{sign} {each.claim}", style=f"bold {style}"), Text(each.title, style="bold"))
        table.add_row("", Text(each.line))
        if each.tail is not None:
            table.add_row("", Text(each.tail, style="" if each.claim == "met" else "yellow"))
        if each.counts_sentence is not None:
            table.add_row("", Text(each.counts_sentence, style="dim"))
        if each.sampling_sentence is not None:
            table.add_row("", Text(each.sampling_sentence, style="dim"))
    style = {ExitCode.OK: "green", ExitCode.UNDECIDED: "yellow"}.get(run_outcome.code, "red")
    word = run_outcome.code.name.lower().replace("_", " ")
    table.add_row(Text(f"exit {int(run_outcome.code)}", style=f"bold {style}"), Text(f"{word}: {run_outcome.reason}"))
    return table


def _stages(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("stage", no_wrap=True)
    for name in (*_STATISTICS, "n"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in _STAGES:
        stats = summary.metrics.get(name)
        if stats is None or (stats.n == 0 and name not in _ALWAYS):
            continue
        table.add_row(figures.stage_label(name, summary), *_cells(stats), style="bold" if name == HEADLINE else "")
    return table


def _cells(stats: MetricStats) -> list[str]:
    if stats.n == 0:
        word = figures.NOT_OBSERVABLE if stats.withheld else "not measured"
        return [word, formatting.DASH, formatting.DASH, formatting.DASH, figures.answered(stats)]
    return [*(figures.of_the_answered(stats, which) for which in _STATISTICS), figures.answered(stats)]


def _withheld(summary: Summary) -> list[RenderableType]:
    stats = [summary.metrics[name] for name in _STAGES if name in summary.metrics]
    rows = [(figures.label(each.name), each.withheld) for each in stats if each.n == 0 and each.withheld]
    lines: list[RenderableType] = _dim(bounds_lines(summary, _STAGES))
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


def _cohorts(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("cohort", overflow="fold")
    for name in ("turns", "v2v p50", "v2v p95", "cache hits", "fallback"):
        table.add_column(name, justify="right", no_wrap=True)
    for cohort in summary.cohorts:
        heard = cohort.metrics.get(HEADLINE)
        table.add_row(
            Text(cohort.cohort),
            formatting.number(cohort.turns.total),
            formatting.DASH if heard is None else figures.of_the_answered(heard, "p50"),
            formatting.DASH if heard is None else figures.of_the_answered(heard, "p95"),
            formatting.percent(cohort.cache.hit_rate),
            formatting.percent(fallback_rate(cohort.fallback)),
        )
    return table
