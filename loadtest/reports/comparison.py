"""A comparison of runs as JSON, Markdown and lines for a terminal: all from the one comparison. Pure."""

import math
from collections.abc import Sequence
from typing import Any, Final

from loadtest.exit_codes import ExitCode
from loadtest.reports.markdown import cell, table
from telemetry.comparison.differences import MARK_LEVEL, FigureDifference
from telemetry.comparison.runs import ComparedRun
from telemetry.comparison.sentences import (
    HEADINGS,
    INTERVAL,
    MARKS,
    context_lines,
    figure_row,
    footnotes,
    grouped,
    title_of,
)
from telemetry.comparison.verdict import ComparisonState, RunComparison, worst
from telemetry.model.formatting import DASH, NS_PER_S
from telemetry.model.intervals import CONFIDENCE

SCHEMA_VERSION: Final = 1
EXIT_CODES: Final[dict[ComparisonState, ExitCode]] = {
    "worse": ExitCode.OBJECTIVE_MISSED,
    "within": ExitCode.OK,
    "undecided": ExitCode.UNDECIDED,
}
NARROW_HEADINGS: Final = ("", "baseline", "this run", "difference (95 % interval)", "")


def exit_code(comparisons: Sequence[RunComparison]) -> ExitCode:
    """Return how the command ends: by the worst of the comparisons."""
    return EXIT_CODES[worst([each.state for each in comparisons])]


def comparison_object(comparisons: Sequence[RunComparison]) -> dict[str, Any]:
    """All of it as a JSON object. Durations are in seconds, shares are ratios; null is not known."""
    first = comparisons[0]
    margin, is_duration = first.margin, first.margin.figure.unit == "ns"
    return {
        "schema_version": SCHEMA_VERSION,
        "state": worst([each.state for each in comparisons]),
        "exit_code": int(exit_code(comparisons)),
        "margin": {
            "metric": margin.metric,
            "statistic": margin.statistic,
            "unit": "s" if is_duration else "ratio",
            "value": margin.value / NS_PER_S if is_duration else margin.value,
        },
        "interval": {"confidence": CONFIDENCE, "method": INTERVAL},
        "marks": {"error_level": MARK_LEVEL, "method": MARKS},
        "baseline": _run_object(first.baseline),
        "comparisons": [_comparison_object(each) for each in comparisons],
    }


def _run_object(run: ComparedRun) -> dict[str, Any]:
    return {
        "run": run.run_id,
        "name": run.name or None,
        "asked": dict(run.asked),
        "turns": run.turns.turns,
        "eligible": run.turns.eligible_turns,
        "calls": run.turns.calls,
        "telemetry_lost": run.telemetry_lost,
        "generator_limit": run.generator_limit,
        "left_out": run.left_out,
        "under_way": run.is_under_way,
    }


def _comparison_object(each: RunComparison) -> dict[str, Any]:
    return {
        "run": _run_object(each.candidate),
        "state": each.state,
        "sentence": each.sentence,
        "differs_in": [
            {"name": asked.name, "baseline": asked.baseline, "run": asked.candidate} for asked in each.asked
        ],
        "paired": {
            "by_utterance": each.paired.is_paired,
            "utterances": each.paired.utterances,
            "share_of_turns": each.paired.share,
            "reason": each.paired.reason,
        },
        "notes": list(each.notes),
        "marked_over": each.marked_over,
        "figures": [_figure_object(found) for found in each.differences],
    }


def _figure_object(found: FigureDifference) -> dict[str, Any]:
    is_duration = found.figure.unit == "ns"

    def scaled(value: float | None) -> float | None:
        if value is None or math.isinf(value):
            return None
        return value / NS_PER_S if is_duration else value

    return {
        "name": found.figure.name,
        "label": found.figure.label,
        "unit": "s" if is_duration else "ratio",
        "baseline": scaled(found.baseline),
        "run": scaled(found.candidate),
        "difference": scaled(found.value),
        "lower": scaled(found.lower),
        "upper": scaled(found.upper),
        "unbounded": found.unbounded,
        "standard_error": scaled(found.standard_error),
        "p_value": found.p_value,
        "turns": {"baseline": found.turns[0], "run": found.turns[1]},
        "paired": found.is_paired,
        "is_shown": found.is_shown,
        "worse": found.is_worse,
        "reason": found.reason,
    }


def narrow_row(found: FigureDifference) -> tuple[str, ...]:
    """The same under NARROW_HEADINGS, for 80 columns."""
    label, baseline, candidate, difference, interval, status = figure_row(found)
    without_unit = interval.removesuffix(difference.partition(" ")[2]).rstrip()
    return label, baseline, candidate, difference if interval == DASH else f"{difference} ({without_unit})", status


def comparison_markdown(comparisons: Sequence[RunComparison]) -> str:
    """All of it for the summary of a CI job."""
    lines: list[str] = []
    for each in comparisons:
        lines += [f"## {cell(title_of(each))}", ""]
        lines += [f"- {cell(line)}" for line in context_lines(each)]
        lines += ["", f"**{cell(each.sentence)}**", ""]
        lines += table(HEADINGS, [figure_row(found) for _, group in grouped(each) for found in group])
        lines += ["", *(f"- {cell(line)}" for line in footnotes(each)), ""]
    lines.append(f"{INTERVAL}. {MARKS}.")
    return "\n".join(lines) + "\n"
