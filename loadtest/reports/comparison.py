"""A comparison of runs as JSON, Markdown and lines for a terminal: all from the one comparison. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from loadtest.exit_codes import ExitCode
from loadtest.reports.markdown import cell
from telemetry.comparison.differences import FigureDifference
from telemetry.comparison.figures import FigureGroup
from telemetry.comparison.runs import ComparedRun, difference_sentence
from telemetry.comparison.verdict import ComparisonState, RunComparison, worst
from telemetry.model.formatting import DASH, NS_PER_S, percent, turns
from telemetry.model.intervals import CONFIDENCE

SCHEMA_VERSION: Final = 1
EXIT_CODES: Final[dict[ComparisonState, ExitCode]] = {
    "worse": ExitCode.OBJECTIVE_MISSED,
    "within": ExitCode.OK,
    "undecided": ExitCode.UNDECIDED,
}
GROUPS: Final[dict[FigureGroup, str]] = {
    "latency": "Latency",
    "turns": "How turns ended",
    "answers": "Answers",
}
NARROW_HEADINGS: Final = ("", "baseline", "this run", "difference (95 % interval)", "")
HEADINGS: Final = ("figure", "baseline", "this run", "difference", "95 % interval", "")
# What a reason without an interval says, as a word; and what the words mean.
_REASONS: Final = {
    "of at least": "too few",
    "do not vary": "constant",
    "not answered": "unanswered",
    "no turn": "not reported",
}
_MEANINGS: Final = {
    "not shown": "the interval holds 0: no difference is shown",
    "too few": "an interval needs 20 calls, and of turns 10 for a p50, 100 for a p95, 500 for a p99",
    "constant": "the values do not vary: nothing can be said of their error",
    "unanswered": "so many turns were not answered that there is no such percentile",
}
INTERVAL: Final = (
    "Student's t interval of the difference; the variance is clustered by call, and paired by utterance where both "
    "runs heard the same audio"
)


def exit_code(comparisons: Sequence[RunComparison]) -> ExitCode:
    """How the command ends: by the worst of the comparisons."""
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
        "figures": [_figure_object(found) for found in each.differences],
    }


def _figure_object(found: FigureDifference) -> dict[str, Any]:
    is_duration = found.figure.unit == "ns"

    def scaled(value: float | None) -> float | None:
        return value / NS_PER_S if is_duration and value is not None else value

    return {
        "name": found.figure.name,
        "label": found.figure.label,
        "unit": "s" if is_duration else "ratio",
        "baseline": scaled(found.baseline),
        "run": scaled(found.candidate),
        "difference": scaled(found.value),
        "lower": scaled(found.lower),
        "upper": scaled(found.upper),
        "standard_error": scaled(found.standard_error),
        "turns": {"baseline": found.turns[0], "run": found.turns[1]},
        "paired": found.is_paired,
        "worse": found.is_worse,
        "reason": found.reason,
    }


def context_lines(each: RunComparison) -> list[str]:
    """What is to be known before any number: who is compared, in what the runs differ, and what weakens the figures."""
    lines = [
        f"{each.candidate.label} ({_size(each.candidate)}) against {each.baseline.label} ({_size(each.baseline)})",
    ]
    if (differing := difference_sentence(each.asked)) is not None:
        lines.append(differing)
    lines += [f"note: {note}" for note in each.notes]
    return [*lines, pairing_sentence(each)]


def pairing_sentence(each: RunComparison) -> str:
    """What the intervals of the latencies rest on."""
    if each.paired.is_paired:
        return (
            f"paired by utterance: {each.paired.utterances:,} were heard by both runs, in "
            f"{percent(each.paired.share)} of the turns or more"
        )
    return f"by call, not paired by utterance: {each.paired.reason}"


def _size(run: ComparedRun) -> str:
    return f"{turns(run.turns.eligible_turns)} of {run.turns.calls:,} calls"


def figure_row(found: FigureDifference) -> tuple[str, ...]:
    """A figure as cells of a table, under HEADINGS."""
    figure = found.figure
    return (
        figure.label,
        figure.format(found.baseline),
        figure.format(found.candidate),
        figure.format_difference(found.value),
        interval_text(found),
        status_text(found),
    )


def narrow_row(found: FigureDifference) -> tuple[str, ...]:
    """The same under NARROW_HEADINGS, for 80 columns."""
    label, baseline, candidate, difference, interval, status = figure_row(found)
    without_unit = interval.removesuffix(difference.partition(" ")[2]).rstrip()
    return label, baseline, candidate, difference if interval == DASH else f"{difference} ({without_unit})", status


def grouped(each: RunComparison) -> list[tuple[str, list[FigureDifference]]]:
    """The figures that anything is known of under the titles of their groups; the decisive one always."""
    known = [found for found in each.differences if found is each.decisive or found.baseline is not None]
    groups = [(title, [f for f in known if f.figure.group == group]) for group, title in GROUPS.items()]
    return [(title, found) for title, found in groups if found]


def footnotes(each: RunComparison) -> list[str]:
    """What the words of the last column mean, of those that occur."""
    words = {status_text(found): found for _, group in grouped(each) for found in group}
    found = [f"{word}: {_MEANINGS[word]}" for word in _MEANINGS if word in words]
    return [*found, f"the margin: {each.margin.sentence}"]


def interval_text(found: FigureDifference) -> str:
    """The bounds of a difference; a dash where there are none."""
    if found.lower is None or found.upper is None:
        return DASH
    low, high = (found.figure.format_difference(bound) for bound in (found.lower, found.upper))
    return f"{low.partition(' ')[0]} to {high}"


def status_text(found: FigureDifference) -> str:
    """What the interval shows, in a word or two."""
    if found.lower is None:
        reason = found.reason or ""
        return next((word for begin, word in _REASONS.items() if begin in reason), "not known")
    if not found.is_shown:
        return "not shown"
    return {True: "worse", False: "better", None: "differs"}[found.is_worse]


def comparison_markdown(comparisons: Sequence[RunComparison]) -> str:
    """All of it for the summary of a CI job."""
    lines: list[str] = []
    for each in comparisons:
        lines += [f"## {cell(title_of(each))}", ""]
        lines += [f"- {cell(line)}" for line in context_lines(each)]
        lines += ["", f"**{cell(each.sentence)}**", ""]
        lines += [_line(HEADINGS), _line(("---",) * len(HEADINGS))]
        lines += [_line(figure_row(found)) for _, group in grouped(each) for found in group]
        lines += ["", *(f"- {cell(line)}" for line in footnotes(each)), ""]
    lines.append(f"{INTERVAL}.")
    return "\n".join(lines) + "\n"


def title_of(each: RunComparison) -> str:
    """The heading of one comparison."""
    return f"{each.candidate.label} against {each.baseline.label}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(cell, cells))} |"
