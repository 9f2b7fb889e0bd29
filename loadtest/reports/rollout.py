"""A rollout's verdict as JUnit, Markdown and lines for a terminal: all from the one verdict."""

from typing import Final
from xml.etree import ElementTree as ET

from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import declared_percent, number, turns
from telemetry.rollout import progress, sentences
from telemetry.rollout.checks import CheckResult, SliceResult
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import RolloutPlan, moment
from telemetry.rollout.progress import CheckRow

_HEADINGS: Final = ("check", "beyond the margin", "candidate", "control", "difference", "bounds", "margin", "")


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


def as_markdown(plan: RolloutPlan, verdict: GateVerdict) -> str:
    """The verdict for the summary of a CI job."""
    lines = [f"## Rollout {plan.name}: {_verdict_text(verdict)}", "", _cell(verdict.sentence), ""]
    lines += [f"- {_cell(line)}" for line in context_lines(plan, verdict)]
    if verdict.checks:
        lines += ["", *_table([_HEADINGS, *(check_row(result) for result in verdict.checks)])]
    if verdict.slices:
        rows = [(slice_name(each), *check_row(each.result)[1:-1], slice_text(each)) for each in verdict.slices]
        lines += ["", *_table([("slice", *_HEADINGS[1:]), *rows])]
    if note := explanation(verdict):
        lines += ["", note]
    return "\n".join(lines) + "\n"


def context_lines(plan: RolloutPlan, verdict: GateVerdict) -> list[str]:
    """What the verdict is about, and what it waits for."""
    stage, after = verdict.stage, verdict.next_stage
    then = "the last one" if after is None else f"then {after.name}"
    found = [
        f"stage {stage.name} ({declared_percent(stage.share)} of callers, {then}), look {len(verdict.history.looks)}",
        f"{turns(verdict.candidate_turns)} of {plan.candidate}, {turns(verdict.control_turns)} of {plan.control}",
    ]
    if verdict.history.stage_since_unix_ns is not None:
        found[0] += f", since {moment(verdict.history.stage_since_unix_ns)}"
    if verdict.turns_needed:
        found.append(f"about {turns(verdict.turns_needed)} more of {plan.candidate} are needed")
    found += verdict.reasons[1:] if verdict.verdict != "promote" else ()
    return [*found, *(f"note: {note}" for note in verdict.notes)]


def explanation(verdict: GateVerdict) -> str | None:
    """What the shares of quantile checks mean; None where no check has one."""
    return progress.explanation_of([progress.check_row(each) for each in verdict.checks])


def check_row(result: CheckResult) -> tuple[str, ...]:
    """A check as cells of a table."""
    return row_cells(result.check.name, progress.check_row(result))


def row_cells(name: str, row: CheckRow) -> tuple[str, ...]:
    """A check or a slice of a verdict as cells of a table."""
    figures = (row.beyond, row.candidate, row.control, row.difference, row.bounds, row.margin)
    return (name, *figures, row.status_text)


def slice_name(each: SliceResult) -> str:
    """Which turns a slice is about; the values of dimensions are other people's text."""
    return f"{each.dimension} {one_line(each.value)}"


def slice_text(each: SliceResult) -> str:
    """What is known of a slice, in words."""
    return "worse here" if each.is_worse else "not shown to be worse"


def heading() -> tuple[str, ...]:
    """The names of the columns of `row_cells`."""
    return _HEADINGS


def _verdict_text(verdict: GateVerdict) -> str:
    return verdict.verdict.replace("_", " ")


def _row_text(result: CheckResult) -> str:
    if result.status == "unknown":
        return f"{result.reason}"
    needed = "" if not result.turns_needed else f"; about {number(result.turns_needed)} more turns"
    words = (sentences.above_control if result.status == "worse" else sentences.against_margin)(result)
    return f"{progress.check_row(result).status_text}: {words}, margin {result.check.format_margin()}{needed}"


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
