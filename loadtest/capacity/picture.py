"""The curve of a capacity search as a picture: voice-to-voice over callers, the objective, and the capacity."""

from pathlib import Path
from textwrap import fill
from typing import Any, Final

from loadtest.capacity.report import Capacity
from telemetry.objectives.objective import Objective

TITLE_WIDTH: Final = 90


def draw(found: Capacity, objectives: list[Objective], folder: Path) -> list[Path]:
    """Write capacity.svg and capacity.png into a folder; the files. Nothing where no step has a figure."""
    steps = sorted((step for step in found.steps if step.voice_to_voice_ns), key=lambda step: step.callers)
    if not steps:
        return []
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (latency, good) = plt.subplots(2, 1, sharex=True, figsize=(9, 6.5), height_ratios=(3, 1))
    for name, color in (("p50", "#4c78a8"), ("p95", "#e45756"), ("p99", "#b279a2")):
        points = [(step.callers, value / 1e6) for step in steps if (value := getattr(step, f"{name}_ns")) is not None]
        if points:
            latency.plot(*zip(*points, strict=True), marker="o", color=color, label=name)
    for step in steps:
        if (interval := step.p95_interval_ns) is not None:
            latency.vlines(step.callers, interval[0] / 1e6, interval[1] / 1e6, color="#e45756", alpha=0.35, linewidth=6)
    for objective in objectives:
        if objective.metric == "voice_to_voice" and objective.threshold is not None:
            latency.axhline(objective.threshold / 1e6, color="gray", linestyle="--", linewidth=1)
            latency.annotate(
                objective.sentence, (steps[0].callers, objective.threshold / 1e6), va="bottom", fontsize=8, color="gray"
            )
    _mark(latency, found)
    latency.set_ylabel("voice to voice, ms")
    latency.set_ylim(bottom=0)
    latency.set_title(fill(found.sentence, TITLE_WIDTH), fontsize=11)
    latency.legend(loc="upper left", frameon=False)
    shares = [(step.callers, 100 * step.ok_share) for step in steps if step.ok_share is not None]
    good.plot(*zip(*shares, strict=True), marker="o", color="#54a24b")
    good.set_ylabel("ok turns, %")
    good.set_ylim(0, 105)
    good.set_xlabel("concurrent callers")
    for axes in (latency, good):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "capacity.svg", folder / "capacity.png"]
    for file in files:
        figure.savefig(file, dpi=120)
    plt.close(figure)
    return files


def _mark(axes: Any, found: Capacity) -> None:
    if found.met is not None and found.missed is not None:
        axes.axvspan(found.met, found.missed, color="gold", alpha=0.3, label="the capacity lies here")
    elif found.met is not None:
        axes.axvline(found.met, color="gold", label="served at least")
