"""A comparison of runs as one HTML file: the verdict, then each group of figures as a forest plot and a table."""

from collections.abc import Sequence
from typing import Final

from loadtest.reports.html.elements import document, prose, section, table
from telemetry.charts.drawing import Picture
from telemetry.charts.forest import forest
from telemetry.charts.static import PAGE, both_sizes
from telemetry.comparison.differences import FigureDifference
from telemetry.comparison.sentences import (
    GROUPS,
    HEADINGS,
    INTERVAL,
    MARKS,
    context_lines,
    figure_row,
    footnotes,
    forest_rows,
    grouped,
    title_of,
)
from telemetry.comparison.verdict import RunComparison
from telemetry.model.formatting import NS_PER_S, declared_milliseconds

_WORDS: Final = {"worse": "Regression", "within": "Within the margin", "undecided": "Undecided"}
_SYMBOLS: Final = {"worse": "✕", "within": "✓", "undecided": "?"}
_CLASSES: Final = {"worse": "missed", "within": "met", "undecided": "undecided"}


def comparison_html(comparisons: Sequence[RunComparison]) -> str:
    """The whole file."""
    first = comparisons[0]
    heading = f"Runs compared with {first.baseline.label}"
    how = (
        f"{INTERVAL}. It holds the true difference with 95 % confidence. {MARKS}. "
        "A turn that nobody answered is slower than any other. "
        f"The margin: {first.margin.sentence}; it is the dashed line. "
        "The figure that it is about is judged alone, by its own interval."
    )
    return document(heading, [f"<h1>{prose(heading)}</h1>", *map(_comparison, comparisons)], how)


def _comparison(comparison: RunComparison) -> str:
    context, notes = (
        f"<ul>{''.join(f'<li>{prose(line)}</li>' for line in lines)}</ul>"
        for lines in (context_lines(comparison), footnotes(comparison))
    )
    verdict = (
        f'<div class="verdict {_CLASSES[comparison.state]}"><p class="badge">'
        f"{_SYMBOLS[comparison.state]} {_WORDS[comparison.state]}</p>"
        f"<p>{prose(comparison.statement)}</p></div>"
    )
    groups = [_group(title, differences, comparison) for title, differences in grouped(comparison)]
    return section(title_of(comparison), [context, verdict, *groups, notes])


def _group(title: str, differences: Sequence[FigureDifference], of: RunComparison) -> str:
    is_latency = title == GROUPS["latency"]
    margin = of.margin.value / NS_PER_S if is_latency else None
    drawn = ""
    if rows := forest_rows([(difference, "") for difference in differences]):
        words = declared_milliseconds(of.margin.value)
        spec = forest(rows, PAGE, "s" if is_latency else "share", margin=margin, margin_text=words)
        drawn = both_sizes(Picture(rows, spec, f"{title}: differences from the baseline with their 95 % intervals"))
    listed = table(title, (*HEADINGS[:-1], "shown"), map(figure_row, differences))
    return f"<h3>{prose(title)}</h3>{drawn}{listed}"
