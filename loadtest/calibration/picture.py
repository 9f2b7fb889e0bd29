"""A calibration as a picture: injected against measured, and what the load does to error, pacing and cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from loadtest.calibration.calibration import MS, VOICE_TO_VOICE_GOAL_NS, CalibrationStep, ErrorStats, best_attempts
from loadtest.calibration.json_object import Calibration
from loadtest.calibration.process_counts import ranges_sentence
from loadtest.calibration.view import ceiling_sentence
from telemetry.model.formatting import declared_milliseconds

_SHOWN: Final = ("endpoint", "asr_final", "llm_first_token", "tts_first_chunk", "voice_to_voice")
_COLORS: Final = ("#8c6bb1", "#238b8d", "#e08214", "#b2182b", "#2166ac")
_MOST_POINTS: Final = 600
_FLOOR_MS: Final = 1e-3


def draw(calibration: Calibration, file: Path) -> None:
    """Write the picture in the format that the file's suffix names (SVG, PNG, PDF). Raises ValueError for another."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    steps = [step for step in best_attempts(calibration.steps) if step.turns]
    figure: Any
    axes: Any
    figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
    try:
        shown = calibration.ceiling or (steps[-1] if steps else None)
        _scatter(axes[0][0], shown)
        _by_load(
            axes[0][1],
            "voice-to-voice error, ms",
            steps,
            [step.errors["instrument"] for step in steps],
            VOICE_TO_VOICE_GOAL_NS / MS,
        )
        _by_load(axes[1][0], "frame lateness seen by the endpoint, ms", steps, [step.pacing for step in steps], 1.0)
        _cost(axes[1][1], steps)
        if calibration.ceiling is not None:
            for axis in (axes[0][1], axes[1][0], axes[1][1]):
                axis.axvline(calibration.ceiling.callers, color="#1a9850", linestyle="--", linewidth=1)
        figure.suptitle(
            "\n".join([*_sentences(calibration), f"{calibration.machine['cpu']}, {calibration.date}"]), fontsize=11
        )
        figure.savefig(file)
    finally:
        plt.close(figure)


def _sentences(calibration: Calibration) -> list[str]:
    ranges = ranges_sentence(calibration.process_ranges, failed=calibration.failed_load)
    return [ceiling_sentence(calibration), *([ranges] if ranges else [])]


def _tick(step: CalibrationStep) -> str:
    """A load, and below it in how many processes."""
    return str(step.callers) if step.processes == 1 else f"{step.callers}\n{step.processes} processes"


def _scatter(axis: Any, step: CalibrationStep | None) -> None:
    axis.set_xlabel("injected, ms")
    axis.set_ylabel("measured, ms")
    if step is None:
        return
    axis.set_title(f"each stage at {step.callers} callers", fontsize=10)
    for name, color in zip(_SHOWN, _COLORS, strict=True):
        samples = step.samples[name][:_MOST_POINTS]
        axis.plot(
            [each.injected_ns / MS for each in samples],
            [each.measured_ns / MS for each in samples],
            linestyle="none",
            marker=".",
            markersize=4,
            alpha=0.6,
            color=color,
            label=name.replace("_", " "),
        )
    low, high = axis.get_xlim()
    axis.plot([low, high], [low, high], color="#666666", linewidth=0.7, zorder=0)
    axis.legend(fontsize=8)


def _by_load(
    axis: Any, what: str, steps: Sequence[CalibrationStep], stats: Sequence[ErrorStats], goal_ms: float
) -> None:
    axis.set_title(what, fontsize=10)
    callers = [step.callers for step in steps]
    for name, color in (("p50_ns", _COLORS[1]), ("p99_ns", _COLORS[3]), ("max_ns", "#999999")):
        points = [
            (load, max(value / MS, _FLOOR_MS))
            for load, each in zip(callers, stats, strict=True)
            if (value := getattr(each, name)) is not None
        ]
        axis.plot([x for x, _ in points], [y for _, y in points], marker="o", color=color, label=name[:3])
    axis.axhline(
        goal_ms, color="#333333", linewidth=0.8, linestyle=":", label=f"goal {declared_milliseconds(goal_ms * MS)}"
    )
    axis.set_yscale("log")
    _scales(axis, steps)
    axis.legend(fontsize=8)


def _cost(axis: Any, steps: Sequence[CalibrationStep]) -> None:
    axis.set_title("CPU: µs a frame, and share of a core", fontsize=10)
    known = [step for step in steps if step.usage.cpu_per_frame_ns is not None]
    per_frame = [(step.usage.cpu_per_frame_ns or 0.0) / 1e3 for step in known]
    axis.plot([step.callers for step in known], per_frame, marker="o", color=_COLORS[4], label="generator, µs a frame")
    axis.set_yscale("log")
    _scales(axis, steps)
    shares = axis.twinx()
    for name, color, label in (
        ("generator_cpu", _COLORS[3], "each of its processes, % of a core"),
        ("endpoint_cpu", _COLORS[2], "endpoint, % of a core"),
    ):
        points = [(r.callers, 100 * value) for r in steps if (value := getattr(r.usage, name)) is not None]
        shares.plot([x for x, _ in points], [y for _, y in points], marker=".", linestyle=":", color=color, label=label)
    shares.set_ylim(0, 110)
    axis.legend(fontsize=8, loc="upper left")
    shares.legend(fontsize=8, loc="upper right")


def _scales(axis: Any, steps: Sequence[CalibrationStep]) -> None:
    axis.set_xlabel("callers")
    axis.set_xscale("log")
    loads = [step.callers for step in steps]
    axis.set_xticks(loads, [_tick(step) for step in steps])
    axis.minorticks_off()
    axis.grid(visible=True, linewidth=0.3)
