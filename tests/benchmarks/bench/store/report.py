"""The figures of a benchmark of stores as a table, for a terminal and for the README."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.bench.store.measuring import AnswerTimes, Ingested

NONE: Final = "–"
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """All figures of one store; `turns` are those that clients heard."""

    turns: int
    spans: int
    size_bytes: int
    start_s: float
    page: AnswerTimes
    lookup: AnswerTimes
    summary: AnswerTimes
    fresh: AnswerTimes
    fastest: Ingested
    paced: Ingested


_ROWS: Final[tuple[tuple[str, Callable[[StoreFigures], str]], ...]] = (
    ("spans/s stored, as fast as acknowledged", lambda f: f"{f.fastest.spans_per_s:,.0f}"),
    ("CPU per span, µs", lambda f: f"{f.fastest.cpu_us_per_span:.1f}"),
    ("acknowledged at that rate, p50, p99, ms", lambda f: _acknowledged(f.fastest)),
    ("spans/s stored, paced", lambda f: f"{f.paced.spans_per_s:,.0f}"),
    ("acknowledged when paced, p50, p99, ms", lambda f: _acknowledged(f.paced)),
    ("memory of the sidecar, MiB", lambda f: _mib(f.fastest.peak_rss_bytes)),
    ("visible after acknowledged, middle, worst, s", lambda f: f"{f.fresh.repeated_s:.2f}, {f.fresh.worst_s:.2f}"),
    ("page, first, repeated, s", lambda f: _twice(f.page)),
    ("memory of the process that asks for it, MiB", lambda f: _mib(f.page.peak_rss_bytes)),
    ("turn by trace id, ms", lambda f: f"{f.lookup.repeated_s * 1e3:.0f}"),
    ("memory of the process that asks for it, MiB", lambda f: _mib(f.lookup.peak_rss_bytes)),
    (
        "summary of the largest run, first, repeated, s",
        lambda f: _twice(f.summary),
    ),
    ("memory of the process that asks for it, MiB", lambda f: _mib(f.summary.peak_rss_bytes)),
    ("start of the sidecar until it acknowledges, s", lambda f: f"{f.start_s:.2f}"),
    ("size on the disk, MiB", lambda f: _mib(f.size_bytes)),
)


def print_figures(console: Console, found: Sequence[StoreFigures]) -> None:
    """The table of all stores, a column for each, and what was sent."""
    table = Table(title="Stores, by the turns in them", title_justify="left")
    table.add_column("")
    for figures in found:
        table.add_column(f"{figures.turns:,}", justify="right", no_wrap=True)
    for label, cell in _ROWS:
        table.add_row(label, *(cell(figures) for figures in found))
    console.print(table)
    for figures in found:
        refused = figures.fastest.refused + figures.paced.refused
        if refused:
            console.print(
                f"{figures.turns:,} turns: {refused:,} requests were refused and sent no more", soft_wrap=True
            )
    console.print(shape(found), soft_wrap=True)


def markdown(found: Sequence[StoreFigures], machine: str) -> str:
    """The README's table."""
    head = ("Turns in the store", *(f"{figures.turns:,}" for figures in found))
    lines = [f"Measured on {machine}.", "", _line(head), _line(["---"] + ["---:"] * len(found))]
    lines += [_line((label, *(cell(figures) for figures in found))) for label, cell in _ROWS]
    return "\n".join([*lines, "", shape(found)])


def shape(found: Sequence[StoreFigures]) -> str:
    """What a span of these figures is."""
    sent = found[0].fastest
    return (
        f"Sent were batches of 64 spans, of {sent.span_bytes:,.0f} bytes each, on 8 connections: 1 turn with "
        f"{sent.attributes:.0f} attributes, 3 stages, and 1 call for every 3 turns."
    )


def _twice(found: AnswerTimes) -> str:
    return f"{found.first_s:.2f}, {found.repeated_s:.2f}"


def _acknowledged(found: Ingested) -> str:
    waits = (found.ack_p50_s, found.ack_p99_s)
    return ", ".join(NONE if wait is None else f"{wait * 1e3:.0f}" for wait in waits)


def _mib(size: int | None) -> str:
    return NONE if size is None else f"{size / _MIB:,.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
