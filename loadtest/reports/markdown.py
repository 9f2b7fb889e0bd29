"""A run as Markdown for the summary of a CI job. Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from loadtest.reports.judged_objectives import Claim, JudgedObjective, missed_first
from loadtest.reports.rows import evidence_rows, happened_rows, run_rows
from loadtest.reports.run_report import RunReport
from loadtest.reports.tables import STAGES, ReportTable, bounds_lines, failure_table, remark_table, stage_table
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import DASH

_SIGNS: Final[dict[Claim, str]] = {"met": "✅", "missed": "❌", "undecided": "❔", "not judged": "⚪"}
_LONGEST_CHARS: Final = 1000
# What changes how GitHub's Markdown shows the text around it; the colon and the dot of an address would make a link.
_SPECIAL: Final = re.compile(r"[\\`*_\[\]<>|#~&$]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def as_markdown(report: RunReport) -> str:
    """The verdict, the objectives, the stages, and how well they were measured."""
    code, summary = report.run_outcome.code, report.summary
    title = f"## voiceprobe: {code.name.lower().replace('_', ' ')} (exit code {int(code)})"
    lines = [title, "", f"**{cell(report.sentence)}**"]
    if report.judged:
        rows = [
            (f"{_SIGNS[objective.claim]} {objective.claim}", objective.title, _why(objective))
            for objective in missed_first(report.judged)
        ]
        lines += ["", *table(("verdict", "objective", "why"), rows)]
    lines += ["", *_stages(stage_table(summary))]
    if bounds := bounds_lines(summary, STAGES):
        lines += ["", *(f"- {cell(line)}" for line in bounds)]
    for below in (failure_table(summary), remark_table(summary)):
        if below.rows:
            cells = [["" if text == DASH else text for text in row] for row in below.rows]
            lines += ["", f"### {below.title}", "", *table(below.heading, cells)]
    lines += _details("What happened", happened_rows(summary))
    lines += _details("How well this was measured", evidence_rows(report.run, summary))
    lines += _details("The run", run_rows(report.run, summary))
    return "\n".join(lines) + "\n"


def _why(judged: JudgedObjective) -> str:
    return "; ".join(part for part in (judged.line, judged.tail, judged.sampling_sentence) if part is not None)


def _stages(stages: ReportTable) -> list[str]:
    """The stages that were measured, the headline in bold, the figures aligned to the right."""
    heading, _, *rows = table(stages.heading, stages.rows)
    for place in stages.strong:
        rows[place] = rows[place].replace("| ", "| **", 1).replace(" |", "** |", 1)
    measured = [row for row, cells in zip(rows, stages.rows, strict=True) if not cells[-1].startswith("0")]
    return [heading, f"| --- |{' ---: |' * (len(stages.heading) - 1)}", *measured]


def _details(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """A part that is folded up until somebody wants it."""
    return ["", f"<details><summary>{title}</summary>", "", *table(("", ""), list(rows)), "", "</details>"]


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of texts."""
    shown = [heading, ["---"] * len(heading), *(map(cell, row) for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in shown]


def cell(text: str) -> str:
    """A text as Markdown shows it, on one line: names of cohorts and routes and sentences of endpoints are other
    people's."""
    return _SPECIAL.sub(r"\\\g<0>", one_line(text, _LONGEST_CHARS))
