"""A calibration on a terminal (the ceiling first, then loads, stages, delays and faults) and as a picture."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from loadtest.calibration.calibration import (
    ENOUGH_TURNS,
    MS,
    RULE,
    STAGES,
    STAMPS_GOAL_NS,
    VOICE_TO_VOICE_GOAL_NS,
    CalibrationStep,
    ErrorStats,
    FaultCell,
    best_attempts,
    by_delay,
    ranges_sentence,
)
from loadtest.calibration.json_object import Calibration
from loadtest.reports.calibration_citing import rounded_up_ms
from telemetry.charts.compared import against, with_intervals
from telemetry.charts.drawing import LIGHT, Picture
from telemetry.charts.static import image
from telemetry.model import formatting
from telemetry.model.formatting import declared_milliseconds
from telemetry.model.generator_health import invalid_text
from telemetry.model.stats import percentile

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
        {"name": name.replace("_", " "), "x": sample.injected_ns / MS, "y": sample.measured_ns / MS}
        for name in _SHOWN
        for sample in (step.samples[name][:_MOST_POINTS] if step is not None else ())
    ]
    names = [name.replace("_", " ") for name in _SHOWN]
    where = "" if step is None else f" at {step.callers} callers"
    return Picture(rows, against(names, "injected, ms", "measured, ms", LIGHT), f"each stage{where}")


_STYLES = {"trustworthy": "green", "not trustworthy": "red", "endpoint-limited": "yellow", "too few turns": "dim"}


def _error(value_ns: float | None) -> str:
    """An error in a column of milliseconds."""
    return formatting.fine_milliseconds(value_ns, unit=False)


def ceiling_sentence(calibration: Calibration) -> str:
    """The result in one sentence."""
    ceiling = calibration.ceiling
    if ceiling is None or ceiling.error_ns is None:
        judged = any(step.verdict not in ("too few turns", "endpoint-limited") for step in calibration.steps)
        return "no load was trustworthy" if judged else "no load could be judged"
    bound = f"±{formatting.declared_milliseconds(rounded_up_ms(ceiling.error_ns / 1e9) * formatting.NS_PER_MS)}"
    sentence = f"trustworthy up to {ceiling.callers} callers, voice-to-voice within {bound} there"
    return sentence if calibration.ceiling_reached else f"{sentence}; no larger load was shown to fail"


def calibration_view(calibration: Calibration) -> RenderableType:
    """Everything a calibration prints at its end."""
    ceiling = calibration.ceiling
    shown = ceiling or max(calibration.steps, key=lambda step: step.turns, default=None)
    parts: list[RenderableType] = [
        _heading("Ceiling"),
        Text(ceiling_sentence(calibration), style="bold green" if ceiling is not None else "bold red"),
        *_processes(calibration),
        Text(f"rule: {RULE}", style="dim"),
        _heading("Load by load (errors are measured - true, in ms)"),
        _loads(calibration.steps),
        Text(""),
        _intervals(calibration.steps),
        Text(""),
        _costs(calibration.steps),
        *_failures(calibration.steps),
    ]
    if shown is not None and shown.turns:
        parts += [
            _heading(f"Stage by stage at {shown.callers} callers (ms; error: its signed median)"),
            _stages(shown),
            Text(_stamps_sentence(shown), style="dim"),
            Text(_annotation_sentence(shown), style="dim"),
            _heading(f"Voice-to-voice by injected delay at {shown.callers} callers (ms)"),
            _delays(shown),
        ]
    if calibration.faults:
        parts += [_heading("Misbehavior on purpose (errors in ms)"), _faults(calibration.faults)]
        parts.append(Text(_faults_sentence(calibration.faults), style="dim"))
    machine = calibration.machine
    parts += [
        _heading("Machine"),
        Text(
            f"{machine['cpu']} · {machine['cores']} cores · {machine['kernel']} · Python {machine['python']} · "
            f"{machine['priority']} priority · engine {machine['engine']} · generator and endpoint share it"
        ),
    ]
    return Group(*parts)


def _processes(calibration: Calibration) -> list[Text]:
    sentence = ranges_sentence(calibration.process_ranges, failed=calibration.failed_load)
    return [Text(sentence)] if sentence else []


def _heading(text: str) -> RenderableType:
    return Padding(Rule(Text(text, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _p99(stats: ErrorStats) -> str:
    """The p99, or the largest marked as such if there are too few for a p99."""
    if stats.n == 0:
        return formatting.DASH
    return _error(stats.p99_ns) if stats.p99_ns is not None else f"≤ {_error(stats.max_ns)}"


def _loads(steps: Sequence[CalibrationStep]) -> Table:
    table = _table("callers", "processes", "turns", "invalid", "v2v p50", "p99", "max")
    table.add_column("verdict", no_wrap=True)
    for step in steps:
        error = step.errors["instrument"]
        table.add_row(
            _named(step),
            formatting.number(step.processes),
            formatting.number(step.turns),
            formatting.number(step.invalid),
            _error(error.p50_ns),
            _p99(error),
            _error(error.max_ns),
            Text(step.verdict, style=_STYLES[step.verdict]),
        )
    return table


def _intervals(steps: Sequence[CalibrationStep]) -> Table:
    """Return how many of the intervals that turns state for their voice-to-voice contain the truth, and how wide they
    are."""
    table = _table("callers", "intervals", "with the truth", "width median", "p99", "max")
    for step in steps:
        intervals = step.intervals
        table.add_row(
            _named(step),
            formatting.number(intervals.n),
            formatting.share(intervals.within, intervals.n),
            _error(intervals.width.median_ns),
            _p99(intervals.width),
            _error(intervals.width.max_ns),
        )
    return table


def _costs(steps: Sequence[CalibrationStep]) -> Table:
    table = _table("callers", "stamps p99", "pacing p50", "p99", "CPU µs/frame", "generator", "endpoint")
    for step in steps:
        usage = step.usage
        table.add_row(
            _named(step),
            _p99(step.stamps),
            _error(step.pacing.p50_ns),
            _p99(step.pacing),
            formatting.microseconds(usage.cpu_per_frame_ns),
            f"{'' if step.processes == 1 else f'{step.processes} × '}{formatting.percent(usage.generator_cpu)}",
            formatting.percent(usage.endpoint_cpu),
        )
    return table


def _named(step: CalibrationStep) -> str:
    return f"{step.callers}{'' if step.attempt == 1 else ' again'}"


def _failures(steps: Iterable[CalibrationStep]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for step in steps:
        if step.invalid:
            why = invalid_text(step.not_as_recorded, step.invalid - step.not_as_recorded, step.invalid_by_reason)
            lines.append(Text(f"{step.callers} callers, invalid turns: {why}", style="dim", overflow="fold"))
        if step.verdict == "too few turns":
            text = f"{step.callers} callers: {formatting.turns(step.turns)}, and {ENOUGH_TURNS} are needed to judge"
        elif step.failed:
            text = f"{step.callers} callers, {step.verdict}: {'; '.join(step.failed)}"
        elif step.goals_missed:
            text = f"{step.callers} callers: {'; '.join(step.goals_missed)}"
        else:
            continue
        lines.append(Text(text, style="dim", overflow="fold"))
    return lines


def _stages(step: CalibrationStep) -> Table:
    table = _table("stage", "injected", "measured", "error", "p50", "p95", "p99", "max", "n")
    for name in STAGES:
        stats, samples = step.errors[name], step.samples[name]
        table.add_row(
            name.replace("_", " "),
            _error(percentile([sample.injected_ns for sample in samples], 0.5)),
            _error(percentile([sample.measured_ns for sample in samples], 0.5)),
            _error(stats.median_ns),
            *(_error(value) for value in (stats.p50_ns, stats.p95_ns, stats.p99_ns, stats.max_ns)),
            formatting.number(stats.n),
            style="bold" if name == "voice_to_voice" else "",
        )
    return table


def _stamps_sentence(step: CalibrationStep) -> str:
    bound = step.stamps.bound_ns
    if bound is None:
        return "no event stamp could be held against the truth"
    within = "within" if bound <= STAMPS_GOAL_NS else "not within"
    goal = formatting.declared_milliseconds(STAMPS_GOAL_NS)
    return f"event stamps: p99 {formatting.fine_milliseconds(bound)}, {within} the goal of {goal}"


def _annotation_sentence(step: CalibrationStep) -> str:
    """Return how true the annotation is that the callers rely on and the endpoint does not know."""
    stats = step.errors["annotation"]
    if stats.max_ns is None:
        return "annotation: no turn to hold against the truth"
    within = "within" if not step.annotation_beyond else "beyond"
    largest = formatting.fine_milliseconds(stats.max_ns)
    return f"annotation: end of speech off by up to {largest}, {within} what the clips state"


def _delays(step: CalibrationStep) -> Table:
    table = _table("planned", "error", "p50", "p95", "p99", "max", "n")
    for planned_ns, stats in by_delay(step).items():
        values = (stats.median_ns, stats.p50_ns, stats.p95_ns, stats.p99_ns, stats.max_ns)
        table.add_row(
            formatting.declared_milliseconds(planned_ns, unit=False),
            *(_error(value) for value in values),
            formatting.number(stats.n),
        )
    return table


def _faults(cells: Iterable[FaultCell]) -> Table:
    table = _table("what the endpoint does", "turns", "bad", "v2v p50", "max", "underrun")
    for cell in cells:
        error, underrun = cell.errors["instrument"], cell.errors["underrun_total"]
        bad = cell.invalid if error.n else cell.unanswered
        table.add_row(
            cell.about,
            *(formatting.number(count) for count in (cell.turns, bad)),
            *(_error(value) for value in (error.p50_ns, error.max_ns, underrun.max_ns)),
        )
    return table


def _faults_sentence(cells: Sequence[FaultCell]) -> str:
    """Return whether the intervals held whatever the endpoint did."""
    turns = sum(cell.intervals.n for cell in cells)
    within = sum(cell.intervals.within for cell in cells)
    return f"intervals: the true voice-to-voice of {within} of {formatting.turns(turns)} is within the stated one"
