"""Sentences of a comparison of runs: first how the runs differ, then the figures. Pure."""

import math
from collections.abc import Sequence
from typing import Any, Final

from telemetry.comparison.differences import MARK_LEVEL, FigureDifference
from telemetry.comparison.figures import FigureGroup
from telemetry.comparison.runs import ComparedRun, difference_sentence
from telemetry.comparison.verdict import RunComparison, are_unanswered
from telemetry.model.formatting import NS_PER_S, count, declared_percent, percent, turns

GROUPS: Final[dict[FigureGroup, str]] = {
    "latency": "Latency",
    "turns": "How turns ended",
    "answers": "Answers",
}
HEADINGS: Final = ("figure", "baseline", "this run", "difference", "95 % interval", "")
# What a reason without an interval says, as a word; and what the words mean.
_REASONS: Final = {
    "needs ": "too few",
    "are too few": "too few",
    "do not vary": "constant",
    "not answered": "unanswered",
    "no turn": "not reported",
}
NOT_CLAIMED: Final = "not claimed"
POSSIBLE: Final = "possible"
_SHOWN: Final = {True: "worse", False: "better", None: "differs"}
_MEANINGS: Final = {
    NOT_CLAIMED: "one of the runs was not measured well enough: no difference of the service is claimed",
    "not shown": "the interval holds 0: no difference is shown",
    "too few": "an interval needs 20 calls, and of turns 10 for a p50, 100 for a p95, 500 for a p99; more where turns "
    "of a call are alike",
    "missing values": "turns without a value, of which one run has more than the other, could turn it as longer waits",
    "constant": "the values do not vary: nothing can be said of their error",
    "unanswered": "so many turns were not answered that there is no such percentile",
}
_UNANSWERED_NOTE: Final = (
    "voice to voice: a turn that was not answered counts as longer than any wait, so these percentiles are above those "
    "of the answered turns alone"
)
_UNBOUNDED_NOTE: Final = (
    "or more, or less: nothing bounds the difference on the other side, because too few turns lie beyond the "
    "percentile, or because those that do were not answered"
)
INTERVAL: Final = (
    "The interval of each figure by itself: of a percentile from the ranks of its values, of a share by Student's t; "
    "clustered by call, and paired by utterance where both runs heard the same audio"
)
MARKS: Final = (
    "A figure is marked worse, better or differs after Holm's correction over all figures that have an interval: "
    f"of runs that do not differ, at most {declared_percent(MARK_LEVEL)} have any mark"
)


def title_of(comparison: RunComparison) -> str:
    """The heading of one comparison."""
    return f"{comparison.candidate.label} against {comparison.baseline.label}"


def context_lines(comparison: RunComparison) -> list[str]:
    """The preamble: the runs that are compared, how they differ, and what weakens the figures."""
    lines = [
        f"{comparison.candidate.label} ({_size(comparison.candidate)}) against "
        f"{comparison.baseline.label} ({_size(comparison.baseline)})",
    ]
    if (differing := difference_sentence(comparison.asked)) is not None:
        lines.append(differing)
    lines += [f"note: {note}" for note in comparison.notes]
    return [*lines, pairing_sentence(comparison)]


def pairing_sentence(comparison: RunComparison) -> str:
    """The basis of the intervals of the latencies."""
    if comparison.paired.is_paired:
        return (
            f"paired by utterance: {comparison.paired.utterances:,} were heard by both runs, in "
            f"{percent(comparison.paired.share)} of the turns or more"
        )
    return f"by call, not paired by utterance: {comparison.paired.reason}"


def _size(run: ComparedRun) -> str:
    return f"{turns(run.turns.eligible_turns)} of {run.turns.calls:,} calls"


def figure_row(difference: FigureDifference) -> tuple[str, ...]:
    """A figure as cells of a table, under HEADINGS."""
    figure = difference.figure
    return (
        figure.label,
        figure.format(difference.baseline),
        figure.format(difference.candidate),
        figure.format_difference(difference.value),
        interval_text(difference),
        status_text(difference),
    )


def forest_rows(differences: Sequence[tuple[FigureDifference, str]]) -> list[dict[str, Any]]:
    """The differences with an interval as rows of a forest plot, each with its group, in s or as shares. A side without
    a bound extends as far as the widest interval."""
    bounds = [
        abs(bound)
        for difference, _ in differences
        for bound in (difference.lower, difference.upper, difference.value)
        if bound is not None
    ]
    reach = max(filter(math.isfinite, bounds), default=0.0)
    verdicts = {True: "worse", False: "better", None: "no difference shown"}
    return [
        {
            "name": difference.figure.label,
            "group": group,
            "lower": max(difference.lower, -reach) / (scale := NS_PER_S if difference.figure.unit == "ns" else 1),
            "upper": min(difference.upper, reach) / scale,
            "estimate": (difference.value or 0.0) / scale,
            "verdict": verdicts[difference.is_worse],
            "text": f"{difference.figure.label}: {figure_row(difference)[3]} ({figure_row(difference)[4]})",
        }
        for difference, group in differences
        if difference.lower is not None and difference.upper is not None
    ]


def grouped(comparison: RunComparison) -> list[tuple[str, list[FigureDifference]]]:
    """The known figures under the titles of their groups; the decisive one always."""
    known = [
        difference
        for difference in comparison.differences
        if difference is comparison.decisive or difference.baseline is not None
    ]
    groups = [(title, [f for f in known if f.figure.group == group]) for group, title in GROUPS.items()]
    return [(title, differences) for title, differences in groups if differences]


def footnotes(comparison: RunComparison) -> list[str]:
    """Explain the words of the last columns that occur, and the margin."""
    rows = [row for _, group in grouped(comparison) for row in group]
    words = {status_text(row) for row in rows}
    over = f"after Holm's correction over {count(comparison.marked_over, 'figure')}"
    notes: list[str] = []
    if marks := [word for word in _SHOWN.values() if word in words]:
        notes.append(f"{', '.join(marks)}: shown {over}")
    if POSSIBLE in words:
        notes.append(
            f"{POSSIBLE}: the interval leaves out 0, as that of one figure in twenty does by chance; a difference is "
            f"not shown {over}"
        )
    notes += [f"{word}: {_MEANINGS[word]}" for word in _MEANINGS if word in words]
    if any(row.unbounded for row in rows):
        notes.append(_UNBOUNDED_NOTE)
    compared = (comparison.baseline.turns, comparison.candidate.turns)
    if any(are_unanswered(of).any() for of in compared):
        notes.append(_UNANSWERED_NOTE)
    return [*notes, f"the margin: {comparison.margin.sentence}; this figure is judged alone, by its own interval"]


def interval_text(difference: FigureDifference) -> str:
    """The bounds of a difference, with one unit for both; a dash if there are none."""
    low, to, high = difference.bounds.partition(" to ")
    return f"{low.partition(' ')[0]} to {high}" if to else low


def status_text(difference: FigureDifference) -> str:
    """The claim on a figure, in a word or two."""
    if not difference.is_claimed:
        return NOT_CLAIMED
    if difference.lower is None:
        reason = difference.reason or ""
        return next((word for begin, word in _REASONS.items() if begin in reason), "not known")
    if difference.hinges_on_missing:
        return "missing values"
    if difference.is_shown:
        return _SHOWN[difference.is_worse]
    return POSSIBLE if difference.leaves_out_zero else "not shown"
