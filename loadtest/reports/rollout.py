"""A rollout's verdict as JUnit, Markdown, lines for a terminal, and a live view of it: all from the one verdict."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadtest.reports.markdown import cell, table
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import NS_PER_S, declared_percent, number, percent, turns
from telemetry.rollout import sentences
from telemetry.rollout.checks import CheckResult
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import Look, RolloutPlan, moment
from telemetry.rollout.progress import CheckRow, check_name, check_row, explanation_of, forecast, logged_row
from telemetry.rollout.verdict import CheckVerdict, RolloutVerdict

HEADINGS: Final = ("check", "beyond the margin", "candidate", "control", "difference", "bounds", "margin", "")
_STYLES: Final = {"promote": "bold green", "hold": "bold yellow", "roll_back": "bold red"}


def as_junit(plan: RolloutPlan, verdict: GateVerdict) -> bytes:
    """The verdict as a JUnit file: a test case for the verdict and one per check. What is worse has failed, what is
    not known yet is skipped."""
    suite = ET.Element("testsuite", name=f"rollout {plan.name}")
    message = "; ".join(verdict.reasons)
    _case(suite, plan, "verdict", {"roll_back": "failure", "hold": "skipped"}.get(verdict.verdict), message)
    for result in verdict.checks:
        outcome = {"worse": "failure", "open": "skipped", "unknown": "skipped"}.get(result.status)
        _case(suite, plan, result.check.name, outcome, _row_text(result))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(len(list(suite.iter(tag)))))
    suite.set("errors", "0")
    ET.indent(suite)
    return ET.tostring(suite, encoding="utf-8", xml_declaration=True) + b"\n"


def _case(suite: ET.Element, plan: RolloutPlan, name: str, outcome: str | None, message: str) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"rollout.{plan.name}", name=name)
    if outcome is not None:
        ET.SubElement(case, outcome, message=message)


def as_markdown(plan: RolloutPlan, verdict: RolloutVerdict, since_unix_ns: int | None) -> str:
    """The verdict for the summary of a CI job."""
    heading = f"## Rollout {plan.name}: {verdict.verdict.replace('_', ' ')}"
    lines = [heading, "", cell(verdict.sentence), ""]
    lines += [f"- {cell(line)}" for line in context_lines(plan, verdict, since_unix_ns)]
    rows = check_rows(verdict.checks, plan)
    if rows:
        cells = [row_cells(check.name, row) for check, row in zip(verdict.checks, rows, strict=True)]
        lines += ["", *table(HEADINGS, cells)]
    if verdict.slices:
        cells = [
            row_cells(slice_name(slice_verdict.dimension, slice_verdict.value), logged_row(slice_verdict, ""))
            for slice_verdict in verdict.slices
        ]
        words = (
            "worse here" if slice_verdict.is_worse else "not shown to be worse" for slice_verdict in verdict.slices
        )
        slice_rows = [(*row[:-1], word) for row, word in zip(cells, words, strict=True)]
        lines += ["", *table(("slice", *HEADINGS[1:]), slice_rows)]
    if note := explanation_of(rows):
        lines += ["", note]
    return "\n".join(lines) + "\n"


def context_lines(plan: RolloutPlan, verdict: RolloutVerdict, since_unix_ns: int | None) -> list[str]:
    """Return what the verdict is about, and what it waits for."""
    then = "the last one" if verdict.next_stage is None else f"then {verdict.next_stage}"
    lines = [f"stage {verdict.stage} ({declared_percent(verdict.share)} of callers, {then}), look {verdict.looks}"]
    if since_unix_ns is not None:
        lines[0] += f", since {moment(since_unix_ns)}"
    cohorts, needed = verdict.cohorts, verdict.needed_sentence
    if cohorts is not None:
        both = (cohorts.candidate, cohorts.control)
        lines.append(", ".join(f"{turns(cohort.turns)} of {cohort.name}" for cohort in both))
    lines += [] if needed is None else [needed]
    return [*lines, *verdict.other_reasons, *(f"note: {note}" for note in verdict.notes)]


def check_rows(checks: Sequence[CheckVerdict], plan: RolloutPlan) -> list[CheckRow]:
    """The checks of a verdict as people read them."""
    return [logged_row(check, check_name(check, plan)) for check in checks]


def row_cells(name: str, row: CheckRow) -> tuple[str, ...]:
    """A check or a slice of a verdict as cells of a table."""
    figures = (row.beyond, row.candidate, row.control, row.difference, row.bounds, row.margin)
    return (name, *figures, row.status_text)


def slice_name(dimension: str, value: str) -> str:
    """The name of a slice; the values of dimensions are other people's text."""
    return f"{dimension} {one_line(value)}"


def _row_text(result: CheckResult) -> str:
    if result.status == "unknown":
        return f"{result.reason}"
    needed = "" if not result.turns_needed else f"; about {number(result.turns_needed)} more turns"
    words = (sentences.above_control if result.status == "worse" else sentences.against_margin)(result)
    return f"{check_row(result).status_text}: {words}, margin {result.check.format_margin()}{needed}"


def rollout_view(
    plan: RolloutPlan, verdict: RolloutVerdict, looks: Sequence[Look], notes: tuple[str, ...] = ()
) -> RenderableType:
    """A verdict to be redrawn in place. `looks` are those that are known, `notes` sentences about what else happened,
    the newest last."""
    parts: list[RenderableType] = [
        stage_line(plan, verdict.stage),
        Text(verdict.sentence, style=_STYLES[verdict.verdict], overflow="fold"),
        *(Text(f"  {line}", overflow="fold") for line in lines_below(verdict, looks)),
    ]
    if verdict.checks:
        parts.append(check_table(verdict.checks, plan))
    parts += [Text(note, style="dim", overflow="fold") for note in notes]
    return Group(*parts)


def check_table(checks: Sequence[CheckVerdict], plan: RolloutPlan) -> RenderableType:
    """The checks of a verdict as a table, with what its shares mean below."""
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in HEADINGS:
        shown.add_column(name, overflow="fold")
    rows = check_rows(checks, plan)
    for check, row in zip(checks, rows, strict=True):
        shown.add_row(*map(Text, row_cells(check.name, row)))
    note = explanation_of(rows)
    return shown if note is None else Group(shown, Text(note, style="dim", overflow="fold"))


def stage_line(plan: RolloutPlan, at: str) -> Text:
    """The stages on a line, with the one where the rollout is."""
    line = Text(f"{plan.name}:  ", style="dim")
    names = [stage.name for stage in plan.stages]
    here = names.index(at)
    for position, stage in enumerate(plan.stages):
        if position:
            line.append(" ── ", style="dim")
        mark, style = ("●", "green") if position < here else ("◉", "bold") if position == here else ("○", "dim")
        line.append(f"{mark} {stage.name} {declared_percent(stage.share)}", style=style)
    return line


def lines_below(verdict: RolloutVerdict, looks: Sequence[Look]) -> list[str]:
    """Return what the verdict is about, what else it waits for, and when that will be there."""
    lines: list[str] = []
    cohorts, ratio, needed = verdict.cohorts, verdict.sample_ratio, needed_sentence(verdict, looks)
    if cohorts is not None:
        both = ", ".join(f"{turns(cohort.turns)} of {cohort.name}" for cohort in (cohorts.candidate, cohorts.control))
        lines.append(f"{both}, look {verdict.looks}")
        if ratio is not None:
            split, planned = percent(ratio.share), declared_percent(ratio.expected_share)
            unit = "calls" if verdict.units is None else f"{verdict.units.unit}s"
            lines[0] += f"; {split} of the {unit} are on {cohorts.candidate.name}, {planned} planned"
    lines += [] if needed is None else [needed]
    return [*lines, *verdict.other_reasons, *(f"note: {note}" for note in verdict.notes)]


def needed_sentence(verdict: RolloutVerdict, looks: Sequence[Look]) -> str | None:
    """Return how many more turns the verdict waits for, and when they will be there at the traffic of these looks; None
    where it waits for none."""
    sentence, expected = verdict.needed_sentence, forecast(looks, verdict.turns_needed)
    if sentence is None or expected is None:
        return sentence
    left_s = (expected.due_unix_ns - looks[-1].at_unix_ns) / NS_PER_S
    at = datetime.fromtimestamp(expected.due_unix_ns / NS_PER_S, UTC)
    form = "%H:%M:%S UTC" if left_s < 3600 * 12 else "%Y-%m-%d %H:%M UTC"
    return f"{sentence}: at {expected.turns_per_s:.2g} a second, in {_lasting(left_s)}, at {at.strftime(form)}"


def _lasting(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
