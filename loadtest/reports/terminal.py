"""The final summary on a terminal: the verdict first, then the stages, what happened, and how well it was measured."""

from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from loadtest.exit_codes import ExitCode
from loadtest.reports.judged_objectives import Claim, missed_first
from loadtest.reports.rows import evidence_rows, happened_rows, place_rows, run_rows
from loadtest.reports.run_report import RunReport
from loadtest.reports.tables import ReportTable, run_tables, stage_table

_SIGNS: Final[dict[Claim, tuple[str, str]]] = {
    "met": ("✔", "green"),
    "missed": ("✘", "red"),
    "undecided": ("?", "yellow"),
    "not judged": ("–", "yellow"),
}
_OF_STATE: Final = {"met": "green", "missed": "red", "undecided": "yellow", "not_judged": "red"}


def final_view(report: RunReport) -> RenderableType:
    """Everything a run prints at its end. Readable without color and from 80 columns on."""
    run, summary = report.run, report.summary
    stages = "as the caller heard them" if run.service is None else summary.client_service_delta.reported
    parts: list[RenderableType] = [
        Text(report.verdict.sentence, style=f"bold {_OF_STATE[report.verdict.state]}"),
        _heading("Verdict"),
        _verdicts(report),
        _heading(f"Stages, {stages}"),
        *_table(stage_table(summary)),
        _heading("What happened"),
        _pairs(happened_rows(summary)),
    ]
    for table in run_tables(run, summary):
        parts += [_heading(table.title), *_table(table)]
    parts += [_heading("How well this was measured"), _pairs(evidence_rows(run, summary))]
    parts += [_heading("Run"), _pairs([*run_rows(run, summary), *place_rows(run)])]
    return Group(*parts)


def _heading(text: str) -> RenderableType:
    return Padding(Rule(Text(text, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _table(table: ReportTable) -> list[RenderableType]:
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, name in enumerate(table.heading):
        is_text = place in table.texts
        shown.add_column(name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for place, row in enumerate(table.rows):
        # Text, not markup: endpoints, cohorts and phases have names and sentences that others gave.
        style = "bold" if place in table.strong else "dim" if place in table.faint else ""
        shown.add_row(*map(Text, row), style=style)
    below = [(line, "dim") for line in table.notes] + [(line, "yellow") for line in table.warnings]
    return [shown, *(Text(line, style=style, overflow="fold") for line, style in below)]


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=14)
    table.add_column(overflow="fold")
    for name, text in rows:
        # Text, not markup: routes, cohorts and the like have names that others gave.
        table.add_row(name, Text(text))
    return table


def _verdicts(report: RunReport) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for objective in missed_first(report.judged):
        sign, style = _SIGNS[objective.claim]
        table.add_row(Text(f"{sign} {objective.claim}", style=f"bold {style}"), Text(objective.title, style="bold"))
        lines = (
            (objective.line, ""),
            (objective.tail, "" if objective.claim == "met" else "yellow"),
            (objective.counts_sentence, "dim"),
            (objective.sampling_sentence, "dim"),
        )
        for line, style in lines:
            if line is not None:
                table.add_row("", Text(line, style=style))
    code, reason = report.run_outcome.code, report.run_outcome.reason
    style = {ExitCode.OK: "green", ExitCode.UNDECIDED: "yellow"}.get(code, "red")
    word = code.name.lower().replace("_", " ")
    table.add_row(Text(f"exit {int(code)}", style=f"bold {style}"), Text(f"{word}: {reason}"))
    return table
