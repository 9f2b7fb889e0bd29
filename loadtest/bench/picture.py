"""Cost and pacing of the senders by the number of callers, as pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.bench.cases import SENDERS
from loadtest.bench.compared import PACING_P99_MS, Row
from loadtest.bench.figures import Spread
from loadtest.bench.tables import NAMES
from telemetry.model.formatting import declared_milliseconds

COLORS = {"control": "#555555", "ours": "#1f77b4", "naive": "#d62728"}


def draw(rows: Sequence[Row], folder: Path, machine: str) -> list[Path]:
    """One picture for each wire: a column for each mode, cost above pacing. The files that were written."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for wire in dict.fromkeys(row.case.wire for row in rows):
        modes = list(dict.fromkeys(row.case.mode for row in rows if row.case.wire == wire))
        figure, axes = plt.subplots(2, len(modes), figsize=(5.5 * len(modes), 7.5), squeeze=False, sharex="col")
        for column, mode in enumerate(modes):
            these = [row for row in rows if row.case.wire == wire and row.case.mode == mode]
            cost, pacing = axes[0][column], axes[1][column]
            _lines(cost, these, lambda row: row.cpu_us_per_frame)
            _lines(pacing, these, lambda row: row.lateness_p99_ms)
            target = declared_milliseconds(PACING_P99_MS * 1e6)
            pacing.axhline(PACING_P99_MS, color="#2ca02c", linestyle=":", label=f"target {target}")
            cost.set(title=f"{mode}, {wire}", ylabel="CPU µs per frame", yscale="log")
            pacing.set(xlabel="callers", ylabel="lateness p99, ms", yscale="log", xticks=sorted({*_sizes(these)}))
            for axis in (cost.yaxis, pacing.yaxis):
                axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.set_major_formatter(FuncFormatter(_plain_number))
                axis.set_minor_formatter(NullFormatter())
            if cost.get_legend_handles_labels()[0]:  # a sender without figures draws nothing
                cost.legend(fontsize=8)
            pacing.legend(fontsize=8)
        figure.suptitle(machine, fontsize=9)
        figure.tight_layout()
        for suffix in ("svg", "png"):
            file = folder / f"senders-{wire}.{suffix}"
            figure.savefig(file, dpi=110)
            files.append(file)
        plt.close(figure)
    return files


def _plain_number(value: float, place: object) -> str:
    del place
    return f"{value:g}"


def _sizes(rows: Sequence[Row]) -> list[int]:
    return [row.case.callers for row in rows]


def _lines(axes: object, rows: Sequence[Row], value: Callable[[Row], Spread | None]) -> None:
    """A line for each sender, with the range of its rounds."""
    for sender in SENDERS:
        known = [(row.case.callers, found) for row in rows if row.sender == sender and (found := value(row))]
        if not known:
            continue
        sizes = [callers for callers, _ in known]
        middles = [found.middle for _, found in known]
        below = [found.middle - found.least for _, found in known]
        above = [found.most - found.middle for _, found in known]
        axes.errorbar(  # type: ignore[attr-defined]  # matplotlib's axes
            sizes, middles, yerr=[below, above], marker="o", capsize=3, color=COLORS[sender], label=NAMES[sender]
        )
