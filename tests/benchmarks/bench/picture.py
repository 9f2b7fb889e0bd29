"""Cost and pacing of the senders by the number of callers, as pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from telemetry.model.formatting import declared_milliseconds
from tests.benchmarks.bench.cases import SENDERS
from tests.benchmarks.bench.compared import PACING_P99_MS, Row
from tests.benchmarks.bench.figures import Spread
from tests.benchmarks.bench.tables import NAMES

COLORS = {"control": "#555555", "ours": "#1f77b4", "naive": "#d62728"}


def draw(rows: Sequence[Row], folder: Path, machine: str) -> list[Path]:
    """One picture for each wire: a column for each mode, cost above pacing. The files that were written."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for wire in dict.fromkeys(row.case.wire for row in rows):
        modes = list(dict.fromkeys(row.case.mode for row in rows if row.case.wire == wire))
        figure, axes = plt.subplots(2, len(modes), figsize=(5.5 * len(modes), 7.5), squeeze=False, sharex="col")
        for column, mode in enumerate(modes):
            these = [row for row in rows if row.case.wire == wire and row.case.mode == mode]
            cost, pacing = axes[0][column], axes[1][column]
            for sender in SENDERS:
                mine = [row for row in these if row.sender == sender]
                draw_line(cost, sender, [(row.case.callers, row.cpu_us_per_frame) for row in mine])
                draw_line(pacing, sender, [(row.case.callers, row.lateness_p99_ms) for row in mine])
            target = declared_milliseconds(PACING_P99_MS * 1e6)
            pacing.axhline(PACING_P99_MS, color="#2ca02c", linestyle=":", label=f"target {target}")
            cost.set(title=f"{mode}, {wire}", ylabel="CPU µs per frame", yscale="log")
            pacing.set(xlabel="callers", ylabel="lateness p99, ms", yscale="log", xticks=sorted({*_sizes(these)}))
            plain_numbers(cost, pacing)
            if cost.get_legend_handles_labels()[0]:  # a sender without figures draws nothing
                cost.legend(fontsize=8)
            pacing.legend(fontsize=8)
        figure.suptitle(machine, fontsize=9)
        figure.tight_layout()
        files += save(figure, folder / f"senders-{wire}")
    return files


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a picture in both formats, and close it. The files."""
    from matplotlib import pyplot as plt

    files = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png")]
    for file in files:
        figure.savefig(file, dpi=110)
    plt.close(figure)
    return files


def plain_numbers(*axes: Any) -> None:
    """Numbers as people write them on logarithmic axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (each.yaxis for each in axes):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(_plain_number))
        axis.set_minor_formatter(NullFormatter())


def _plain_number(value: float, place: object) -> str:
    del place
    return f"{value:g}"


def _sizes(rows: Sequence[Row]) -> list[int]:
    return [row.case.callers for row in rows]


def draw_line(axes: Any, sender: str, values: Sequence[tuple[int, Spread | None]]) -> None:
    """A sender's line by the number of callers, with the range of its rounds; none without figures."""
    known = [(callers, found) for callers, found in values if found is not None]
    if not known:
        return
    sizes = [callers for callers, _ in known]
    middles = [found.middle for _, found in known]
    below = [found.middle - found.least for _, found in known]
    above = [found.most - found.middle for _, found in known]
    axes.errorbar(sizes, middles, yerr=[below, above], marker="o", capsize=3, color=COLORS[sender], label=NAMES[sender])
