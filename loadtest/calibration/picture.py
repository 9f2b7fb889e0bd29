"""A calibration as a picture: injected against measured, and what the load does to error, pacing and cost."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

from loadtest.calibration.calibration import MS, VOICE_TO_VOICE_GOAL_NS, CalibrationStep, best_attempts
from loadtest.calibration.json_object import Calibration
from loadtest.calibration.process_counts import ranges_sentence
from loadtest.calibration.view import ceiling_sentence
from telemetry.charts.compared import against, with_intervals
from telemetry.charts.drawing import LIGHT, Picture
from telemetry.charts.static import image
from telemetry.model.formatting import declared_milliseconds

_SHOWN: Final = ("endpoint", "asr_final", "llm_first_token", "tts_first_chunk", "voice_to_voice")
_MOST_POINTS: Final = 600
_FLOOR_MS: Final = 1e-3
_TITLE_WIDTH: Final = 130
Figures = Mapping[str, Callable[[CalibrationStep], float | None]]


def draw(calibration: Calibration, file: Path) -> None:
    """Write the picture in the format that the file's suffix names (SVG, PNG, PDF). Raises ValueError for another."""
    steps = [step for step in best_attempts(calibration.steps) if step.turns]
    marked = None if calibration.ceiling is None else _place(calibration.ceiling)
    shown = calibration.ceiling or (steps[-1] if steps else None)
    error_goal, pacing_goal = VOICE_TO_VOICE_GOAL_NS / MS, 1.0
    cost: Figures = {"µs": lambda step: _scaled(step.usage.cpu_per_frame_ns, 1e-3)}
    shares: Figures = {
        "each of the generator's processes": lambda step: _scaled(step.usage.generator_cpu, 100),
        "endpoint": lambda step: _scaled(step.usage.endpoint_cpu, 100),
    }
    pictures = [
        _scatter(shown),
        _by_load("voice-to-voice error", "ms", steps, _errors("instrument"), marked=marked, goal=error_goal),
        _by_load("frame lateness seen by the endpoint", "ms", steps, _errors(None), marked=marked, goal=pacing_goal),
        _by_load("CPU of the generator for a frame", "µs", steps, cost, marked=marked),
        _by_load("share of a core", "%", steps, shares, marked=marked),
    ]
    ranges = ranges_sentence(calibration.process_ranges, failed=calibration.failed_load)
    about = f"{calibration.machine['cpu']}, {calibration.date}"
    title = [line for text in (ceiling_sentence(calibration), ranges or "", about) for line in wrap(text, _TITLE_WIDTH)]
    file.write_bytes(image(pictures, file.suffix[1:].lower(), title, columns=2))


def _place(step: CalibrationStep) -> str:
    """A load, and in how many processes."""
    return str(step.callers) if step.processes == 1 else f"{step.callers} in {step.processes} processes"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else max(value * factor, _FLOOR_MS)


def _errors(stage: str | None) -> Figures:
    """The statistics of a stage's error in ms; without a stage, those of the pacing."""

    def of(name: str) -> Callable[[CalibrationStep], float | None]:
        return lambda step: _scaled(getattr(step.errors[stage] if stage else step.pacing, f"{name}_ns"), 1 / MS)

    return {name: of(name) for name in ("p50", "p99", "max")}


def _by_load(
    what: str,
    unit: str,
    steps: Sequence[CalibrationStep],
    figures: Figures,
    *,
    marked: str | None,
    goal: float | None = None,
) -> Picture:
    rows = [
        {"name": name, "line": name, "place": _place(step), "value": value, "text": f"{name}: {value:,.4g} {unit}"}
        for name, read in figures.items()
        for step in steps
        if (value := read(step)) is not None
    ]
    limit = None if goal is None else (goal, f"goal {declared_milliseconds(goal * MS)}")
    spec = with_intervals(list(figures), [_place(step) for step in steps], unit, LIGHT, limit=limit, marked=marked)
    return Picture(rows, spec, f"{what}, by callers")


def _scatter(step: CalibrationStep | None) -> Picture:
    rows = [
        {"name": name.replace("_", " "), "x": each.injected_ns / MS, "y": each.measured_ns / MS}
        for name in _SHOWN
        for each in (step.samples[name][:_MOST_POINTS] if step is not None else ())
    ]
    names = [name.replace("_", " ") for name in _SHOWN]
    where = "" if step is None else f" at {step.callers} callers"
    return Picture(rows, against(names, "injected, ms", "measured, ms", LIGHT), f"each stage{where}")
