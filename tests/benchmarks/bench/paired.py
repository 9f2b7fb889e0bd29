"""Paired measurement: every case in rounds, in which its senders take turns, so that what the machine does meanwhile
meets all; medians and paired ratios over the rounds; and the one way to print a table."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from loadtest.run.json_file import write_json
from tests.benchmarks.bench import processes

NONE: Final = "–"
_LOG_WIDTH: Final = 150
Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One sender at one case in one round. Without figures, `failed` says why."""

    case: str
    sender: str
    round: int
    figures: Figures
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, with the least and the most of them."""

    middle: float
    least: float
    most: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """Over the rounds that have a value; None when none has."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


def ratio(trials: Sequence[Trial], case: str, senders: tuple[str, str], figure: str) -> Spread | None:
    """Return the ratio of a figure of the first sender to the second's, each within a round."""
    over, under = (
        {trial.round: trial.figures.get(figure) for trial in trials if (trial.case, trial.sender) == (case, sender)}
        for sender in senders
    )
    pairs = [(over[number], under[number]) for number in over.keys() & under.keys()]
    return spread(a / b for a, b in pairs if a is not None and b)


def rounds(
    cases: Mapping[str, Sequence[str]],
    count: int,
    measure: Callable[[str, str], Figures],
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Measure the senders of each case by turns, round by round; one that fails leaves its sentence."""
    trials: list[Trial] = []
    for case, senders in cases.items():
        for number in range(count):
            for sender in senders:
                try:
                    trials.append(Trial(case, sender, number, measure(case, sender)))
                except processes.PartFailedError as error:
                    trials.append(Trial(case, sender, number, {}, str(error)))
                on_trial(trials[-1])
    return trials


def shown(value: Spread | None, form: str, *, with_range: bool = False) -> str:
    """The median, with the range of the rounds where it is asked for and they differ; a dash for what is not known."""
    if value is None:
        return NONE
    middle, least, most = (form.format(figure) for figure in (value.middle, value.least, value.most))
    return middle if not with_range or least == most else f"{middle} ({least}–{most})"


class Report:
    """Where a benchmark prints: tables for people, or with `markdown` to standard output for documents."""

    def __init__(self, json_file: Path | None, *, markdown: bool) -> None:
        self._json_file, self._markdown = json_file, markdown
        self.console = Console(stderr=markdown, width=None if sys.stdout.isatty() else _LOG_WIDTH)
        self.machine = processes.machine_info()
        self.say(f"{processes.machine_sentence(self.machine)}, load {self.machine['load_before']}")

    def say(self, sentence: str) -> None:
        """Print one sentence."""
        self.console.print(sentence, soft_wrap=True, markup=False)

    def progress(self) -> Progress:
        """A bar that goes when its work is done."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self.console, transient=True)

    def table(self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table whose first column is names."""
        table = Table(title=title, title_justify="left")
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="right" if number else "left", no_wrap=number == 0)
        for row in rows:
            table.add_row(*row)
        self.console.print(table)
        if self._markdown:
            lines = [f"Measured on {processes.machine_sentence(self.machine)}. {title}:", ""]
            lines += [
                f"| {' | '.join(cells)} |" for cells in (headings, ["---", *["---:"] * (len(headings) - 1)], *rows)
            ]
            sys.stdout.write("\n".join(lines) + "\n\n")

    def write(self, **results: Any) -> None:
        """Write all figures as one JSON object, where that was asked for. Raises OutputError."""
        if self._json_file is not None:
            write_json(self._json_file, {"machine": self.machine, **results})
