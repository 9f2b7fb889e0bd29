"""A run as Markdown for the summary of a CI job. Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from loadtest.reports import figures
from loadtest.reports.evidence import evidence_rows
from loadtest.reports.failures import REMARKS
from loadtest.reports.judged_objectives import Claim, JudgedObjective, missed_first
from loadtest.reports.measured_within import bounds_lines
from loadtest.reports.run_report import RunReport
from loadtest.reports.run_rows import happened_rows, run_rows
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import HEADLINE, shown_in
from telemetry.model.semconv import failure_label
from telemetry.store.answers import Summary

_SIGNS: Final[dict[Claim, str]] = {"met": "✅", "missed": "❌", "undecided": "❔", "not judged": "⚪"}
_STATISTICS: Final = ("p50", "p95", "p99", "max")
_STAGES: Final = shown_in("terminal", "terminal-always")
_LONGEST_CHARS: Final = 1000
# What changes how GitHub's Markdown shows the text around it; the colon and the dot of an address would make a link.
_SPECIAL: Final = re.compile(r"[\\`*_\[\]<>|#~&$]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def as_markdown(report: RunReport) -> str:
    """The verdict, the objectives, the stages, and how well they were measured."""
    code = report.run_outcome.code
    lines = [
        f"## voiceprobe: {code.name.lower().replace('_', ' ')} (exit code {int(code)})",
        "",
        f"**{cell(report.sentence)}**",
    ]
    if report.judged:
        rows = [
            (f"{_SIGNS[each.claim]} {each.claim}", cell(each.title), cell(_why(each)))
            for each in missed_first(report.judged)
        ]
        lines += ["", *table(("verdict", "objective", "why"), rows)]
    lines += ["", *table(("stage", *_STATISTICS, "n"), _stages(report.summary), right=True)]
    if bounds := bounds_lines(report.summary, _STAGES):
        lines += ["", *(f"- {cell(line)}" for line in bounds)]
    if report.summary.failures:
        rows = [
            (formatting.number(each.turns), cell(failure_label(each.kind, each.code)), cell(each.example or ""))
            for each in report.summary.failures
        ]
        lines += ["", "### Why turns failed", "", *table(("turns", "cause", "for example"), rows)]
    if report.summary.remarks:
        rows = [(formatting.number(each.turns), cell(each.remark)) for each in report.summary.remarks]
        lines += ["", f"### {REMARKS}", "", *table(("turns", "remark"), rows)]
    lines += _details("What happened", happened_rows(report.summary))
    lines += _details("How well this was measured", evidence_rows(report.run, report.summary))
    lines += _details("The run", run_rows(report.run, report.summary))
    return "\n".join(lines) + "\n"


def _why(judged: JudgedObjective) -> str:
    return "; ".join(part for part in (judged.line, judged.tail, judged.sampling_sentence) if part is not None)


def _stages(summary: Summary) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in _STAGES:
        stats = summary.metrics.get(name)
        if stats is None or not stats.n:
            continue
        label = cell(figures.stage_label(name, summary))
        values = (figures.of_the_answered(stats, which) for which in _STATISTICS)
        rows.append((f"**{label}**" if name == HEADLINE else label, *map(cell, values), figures.answered(stats)))
    return rows


def _details(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """A part that is folded up until somebody wants it."""
    shown = [(cell(name), cell(text)) for name, text in rows]
    return ["", f"<details><summary>{title}</summary>", "", *table(("", ""), shown), "", "</details>"]


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """A table of cells that are Markdown already; with `right` all columns but the first are aligned to the right."""
    rule = ["---", *("---:" if right else "---" for _ in heading[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (heading, rule, *rows)]


def cell(text: str) -> str:
    """A text as Markdown shows it, on one line: names of cohorts and routes and sentences of endpoints are other
    people's."""
    return _SPECIAL.sub(r"\\\g<0>", one_line(text, _LONGEST_CHARS))
