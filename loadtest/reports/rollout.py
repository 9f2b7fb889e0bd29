"""A rollout's verdict as JUnit, Markdown and lines for a terminal: all from the one verdict."""

from typing import Final
from xml.etree import ElementTree as ET

from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import DASH, declared_percent, number, turns
from telemetry.rollout.checks import CheckResult, SliceResult
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import RolloutPlan, moment

_STATUS: Final = {"worse": "worse", "within": "within", "open": "not known yet", "unknown": "cannot be compared"}
_HEADINGS: Final = ("check", "candidate", "control", "difference", "bounds", "margin", "")


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


def check_row(result: CheckResult) -> tuple[str, ...]:
    """A check as cells of a table."""
    check = result.check
    bounds = DASH
    if result.lower is not None and result.upper is not None:
        bounds = f"{check.format_difference(result.lower)} to {check.format_difference(result.upper)}"
    return (
        check.name,
        check.format(result.candidate),
        check.format(result.control),
        check.format_difference(result.difference),
        bounds,
        check.format_margin(),
        _STATUS[result.status],
    )


def slice_name(each: SliceResult) -> str:
    """Which turns a slice is about; the values of dimensions are other people's text."""
    return f"{each.dimension} {one_line(each.value)}"


def slice_text(each: SliceResult) -> str:
    """What is known of a slice, in words."""
    return "worse here" if each.is_worse else "not shown to be worse"


def heading() -> tuple[str, ...]:
    """The names of the columns of `check_row`."""
    return _HEADINGS


def _verdict_text(verdict: GateVerdict) -> str:
    return verdict.verdict.replace("_", " ")


def _row_text(result: CheckResult) -> str:
    if result.reason is not None:
        return result.reason
    needed = "" if not result.turns_needed else f"; about {number(result.turns_needed)} more turns"
    _, candidate, control, difference, bounds, margin, status = check_row(result)
    return f"{status}: {candidate} against {control}, {difference} ({bounds}), margin {margin}{needed}"


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
