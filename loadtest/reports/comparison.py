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
    return EXIT_CODES[worst([comparison.state for comparison in comparisons])]


def comparison_object(comparisons: Sequence[RunComparison]) -> dict[str, Any]:
    """All of it as a JSON object. Durations are in seconds, shares are ratios; null is not known."""
    first = comparisons[0]
    margin, is_duration = first.margin, first.margin.figure.unit == "ns"
    return {
        "schema_version": SCHEMA_VERSION,
        "state": worst([comparison.state for comparison in comparisons]),
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
        "comparisons": [_comparison_object(comparison) for comparison in comparisons],
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


def _comparison_object(comparison: RunComparison) -> dict[str, Any]:
    return {
        "run": _run_object(comparison.candidate),
        "state": comparison.state,
        "sentence": comparison.sentence,
        "differs_in": [
            {"name": asked.name, "baseline": asked.baseline, "run": asked.candidate} for asked in comparison.asked
        ],
        "paired": {
            "by_utterance": comparison.paired.is_paired,
            "utterances": comparison.paired.utterances,
            "share_of_turns": comparison.paired.share,
            "reason": comparison.paired.reason,
        },
        "notes": list(comparison.notes),
        "marked_over": comparison.marked_over,
        "figures": [_figure_object(difference) for difference in comparison.differences],
    }


def _figure_object(difference: FigureDifference) -> dict[str, Any]:
    is_duration = difference.figure.unit == "ns"

    def scaled(value: float | None) -> float | None:
        if value is None or math.isinf(value):
            return None
        return value / NS_PER_S if is_duration else value

    return {
        "name": difference.figure.name,
        "label": difference.figure.label,
        "unit": "s" if is_duration else "ratio",
        "baseline": scaled(difference.baseline),
        "run": scaled(difference.candidate),
        "difference": scaled(difference.value),
        "lower": scaled(difference.lower),
        "upper": scaled(difference.upper),
        "unbounded": difference.unbounded,
        "standard_error": scaled(difference.standard_error),
        "p_value": difference.p_value,
        "turns": {"baseline": difference.turns[0], "run": difference.turns[1]},
        "paired": difference.is_paired,
        "is_shown": difference.is_shown,
        "worse": difference.is_worse,
        "reason": difference.reason,
    }


def narrow_row(compared: FigureDifference) -> tuple[str, ...]:
    """The same under NARROW_HEADINGS, for 80 columns."""
    label, baseline, candidate, difference, interval, status = figure_row(compared)
    without_unit = interval.removesuffix(difference.partition(" ")[2]).rstrip()
    return label, baseline, candidate, difference if interval == DASH else f"{difference} ({without_unit})", status


def comparison_markdown(comparisons: Sequence[RunComparison]) -> str:
    """All of it for the summary of a CI job."""
    lines: list[str] = []
    for comparison in comparisons:
        lines += [f"## {cell(title_of(comparison))}", ""]
        lines += [f"- {cell(line)}" for line in context_lines(comparison)]
        lines += ["", f"**{cell(comparison.sentence)}**", ""]
        lines += table(HEADINGS, [figure_row(difference) for _, group in grouped(comparison) for difference in group])
        lines += ["", *(f"- {cell(line)}" for line in footnotes(comparison)), ""]
    lines.append(f"{INTERVAL}. {MARKS}.")
    return "\n".join(lines) + "\n"
