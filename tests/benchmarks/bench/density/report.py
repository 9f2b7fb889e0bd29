"""What the rounds say of each wire: medians with their ranges, paired ratios, and a table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.bench.density.windows import SENT, WindowCost
from tests.benchmarks.bench.density.wires import RAW
from tests.benchmarks.bench.figures import Spread, spread
from tests.benchmarks.bench.tables import NONE, shown

MOST_TIMES_RAW: Final = 1.6
TITLE: Final = "CPU time per frame by wire: medians of the rounds, with their range"
HEADINGS: Final = ("wire", "bytes", "µs per frame sent", "× raw", "", "µs per chunk received")


@dataclass(frozen=True, slots=True)
class WireCost:
    """One wire over all rounds. None is what is not measured."""

    wire: str
    frame_bytes: int | None
    sent_us: Spread | None
    times_raw: Spread | None  # None for the raw wire itself
    received_us: Spread | None
    held_up: int  # frames that the sink did not take at once: it was the limit itself

    @property
    def verdict(self) -> str:
        """Whether the wire keeps to the most that it may cost; empty for the raw wire."""
        if self.times_raw is None:
            return ""
        return f"≤ {MOST_TIMES_RAW:g}" if self.times_raw.middle <= MOST_TIMES_RAW else f"above {MOST_TIMES_RAW:g}"


def costs(rounds: Sequence[Sequence[WindowCost]], spoken: Mapping[str, Sequence[int]]) -> list[WireCost]:
    """Return the costs from the windows of each round and the moments at which the sink sent chunks.

    A wire's window is compared with the raw wire's just before and just after it.
    """
    names = list(dict.fromkeys(window.wire for windows in rounds for window in windows))
    ratios: dict[str, list[float | None]] = {name: [] for name in names}
    sent: dict[str, list[float | None]] = {name: [] for name in names}
    received: dict[str, list[float | None]] = {name: [] for name in names}
    sizes: dict[str, int] = {}
    held_up = Counter[str]()
    for windows in rounds:
        figures = [_cost_us(window, spoken) for window in windows]
        for at, (window, figure) in enumerate(zip(windows, figures, strict=True)):
            name = window.wire
            if window.direction != SENT:
                received[name].append(figure)
                continue
            sent[name].append(figure)
            sizes[name] = window.frame_bytes
            held_up[name] += window.held_up
            if name != RAW:
                ratios[name].append(_ratio(figure, figures[at - 1], figures[at + 1]))
    return [
        WireCost(name, sizes.get(name), spread(sent[name]), spread(ratios[name]), spread(received[name]), held_up[name])
        for name in names
    ]


def _ratio(figure: float | None, before: float | None, after: float | None) -> float | None:
    if figure is None or before is None or after is None:
        return None
    return 2 * figure / (before + after)


def _cost_us(window: WindowCost, spoken: Mapping[str, Sequence[int]]) -> float | None:
    """Return the CPU time per frame or chunk of one window, in µs; None where there was none."""
    count = window.frames
    if window.direction != SENT:
        moments = spoken.get(window.wire, ())
        count = sum(window.began_perf_ns <= moment < window.ended_perf_ns for moment in moments)
    return window.cpu_ns / 1e3 / count if count else None


def _cells(cost: WireCost) -> tuple[str, ...]:
    return (
        cost.wire,
        NONE if cost.frame_bytes is None else f"{cost.frame_bytes:,}",
        shown(cost.sent_us, "{:.2f}", with_range=True),
        shown(cost.times_raw, "{:.2f}", with_range=True),
        cost.verdict,
        shown(cost.received_us, "{:.1f}", with_range=True),
    )


def print_costs(console: Console, found: Sequence[WireCost]) -> None:
    """Print the table."""
    table = Table(title=TITLE, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("wire", "") else "right", no_wrap=True)
    for cost in found:
        table.add_row(*_cells(cost))
    console.print(table)
    for cost in found:
        if cost.held_up:
            sentence = (
                f"{cost.wire}: {cost.held_up:,} frames had to wait for the sink, which costs more; use fewer callers"
            )
            console.print(sentence, soft_wrap=True)


def markdown(found: Sequence[WireCost], where: str) -> str:
    """Return the same as Markdown."""
    lines = [TITLE + ".", "", "| " + " | ".join(HEADINGS) + " |", "|---|---:|---:|---:|---|---:|"]
    lines += ["| " + " | ".join(_cells(cost)) + " |" for cost in found]
    return "\n".join([*lines, "", where])
