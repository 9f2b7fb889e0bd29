"""A rollout's verdict as JUnit, Markdown and lines for a terminal: all from the one verdict."""

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import declared_percent, number, turns
from telemetry.rollout import sentences
from telemetry.rollout.checks import CheckResult
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import RolloutPlan, moment
from telemetry.rollout.progress import CheckRow, check_name, check_row, explanation_of, logged_row
from telemetry.rollout.verdict import CheckVerdict, RolloutVerdict

HEADINGS: Final = ("check", "beyond the margin", "candidate", "control", "difference", "bounds", "margin", "")


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
    lines = [heading, "", _cell(verdict.sentence), ""]
    lines += [f"- {_cell(line)}" for line in context_lines(plan, verdict, since_unix_ns)]
    rows = check_rows(verdict.checks, plan)
    if rows:
        cells = [row_cells(check.name, row) for check, row in zip(verdict.checks, rows, strict=True)]
        lines += ["", *_table([HEADINGS, *cells])]
    if verdict.slices:
        cells = [row_cells(slice_name(each.dimension, each.value), logged_row(each, "")) for each in verdict.slices]
        words = ("worse here" if each.is_worse else "not shown to be worse" for each in verdict.slices)
        of_slices = [(*each[:-1], word) for each, word in zip(cells, words, strict=True)]
        lines += ["", *_table([("slice", *HEADINGS[1:]), *of_slices])]
    if note := explanation_of(rows):
        lines += ["", note]
    return "\n".join(lines) + "\n"


def context_lines(plan: RolloutPlan, verdict: RolloutVerdict, since_unix_ns: int | None) -> list[str]:
    """Return what the verdict is about, and what it waits for."""
    then = "the last one" if verdict.next_stage is None else f"then {verdict.next_stage}"
    found = [f"stage {verdict.stage} ({declared_percent(verdict.share)} of callers, {then}), look {verdict.looks}"]
    if since_unix_ns is not None:
        found[0] += f", since {moment(since_unix_ns)}"
    cohorts, needed = verdict.cohorts, verdict.needed_sentence
    if cohorts is not None:
        both = (cohorts.candidate, cohorts.control)
        found.append(", ".join(f"{turns(each.turns)} of {each.name}" for each in both))
    found += [] if needed is None else [needed]
    return [*found, *verdict.other_reasons, *(f"note: {note}" for note in verdict.notes)]


def check_rows(checks: Sequence[CheckVerdict], plan: RolloutPlan) -> list[CheckRow]:
    """The checks of a verdict as people read them."""
    return [logged_row(each, check_name(each, plan)) for each in checks]


def row_cells(name: str, row: CheckRow) -> tuple[str, ...]:
    """A check or a slice of a verdict as cells of a table."""
    figures = (row.beyond, row.candidate, row.control, row.difference, row.bounds, row.margin)
    return (name, *figures, row.status_text)


def slice_name(dimension: str, value: str) -> str:
    """Which turns a slice is about; the values of dimensions are other people's text."""
    return f"{dimension} {one_line(value)}"


def _row_text(result: CheckResult) -> str:
    if result.status == "unknown":
        return f"{result.reason}"
    needed = "" if not result.turns_needed else f"; about {number(result.turns_needed)} more turns"
    words = (sentences.above_control if result.status == "worse" else sentences.against_margin)(result)
    return f"{check_row(result).status_text}: {words}, margin {result.check.format_margin()}{needed}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    first, *others = rows
    return [_line(first), _line(("---",) * len(first)), *map(_line, others)]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """A text as Markdown shows it: names of cohorts and routes are other people's."""
    for character in "\\`*_[]<>|#":
        text = text.replace(character, f"\\{character}")
    return text
