"""The result of a capacity search: the table of its steps, the sentence, the JSON object and the picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from loadtest.exit_codes import ExitCode
from loadtest.reports.json_of import json_of
from loadtest.reports.tables import TOO_FEW
from telemetry.model import formatting
from telemetry.model.formatting import in_milliseconds
from telemetry.model.intervals import quantile_interval, wilson_interval
from telemetry.model.stats import shown_percentile
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict

StepStatus = Literal["met", "missed", "generator-limited", "refused", "unreachable", "too few", "undecided"]
Stopped = Literal["generator", "interrupted", "unreachable"]
SCHEMA_VERSION: Final = 2
BAR_WIDTH: Final = 10
WIDE_COLUMNS: Final = 100
BEND_MIN_RUNGS: Final = 4
BEND_MIN_DISTANCE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """One number of callers, measured. `voice_to_voice_ns` are the raw values of its valid turns after the ramp.

    `sure` is False where the share of good turns is so near a target that its interval (Wilson, 95 %) holds both
    answers after the longest measurement allowed: the step is then judged by the share itself, and says so.
    """

    callers: int
    processes: int = 1  # that shared them
    run_ids: tuple[str, ...]
    turns: int
    invalid: int
    ok_share: float | None
    voice_to_voice_ns: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    status: StepStatus
    sure: bool
    measured_s: float
    reason: str | None = None

    @property
    def p50_ns(self) -> float | None:
        """Median voice-to-voice."""
        return shown_percentile(self.voice_to_voice_ns, "p50")

    @property
    def p95_ns(self) -> float | None:
        """p95 voice-to-voice, None from fewer than 20 turns."""
        return shown_percentile(self.voice_to_voice_ns, "p95")

    @property
    def p99_ns(self) -> float | None:
        """p99 voice-to-voice, None from fewer than 100 turns."""
        return shown_percentile(self.voice_to_voice_ns, "p99")

    @property
    def p95_interval_ns(self) -> tuple[float, float] | None:
        """The 95 % interval of the true p95, whatever the distribution; None where n is too few."""
        return quantile_interval(self.voice_to_voice_ns, 0.95)

    @property
    def met(self) -> bool | None:
        """Whether the endpoint served so many callers; None where the step says nothing of the endpoint."""
        return {"met": True, "missed": False, "refused": False}.get(self.status)


def step_status(verdicts: Sequence[Verdict]) -> tuple[StepStatus, bool]:
    """The status by the objectives, and whether it is sure.

    An objective that this wire cannot show is left out, and so is one that counts calls while there are too few of
    them: a step lasts as long as its turns need. One with too few turns leaves the step "too few", and one that open
    turns could turn "undecided" (the generator's own: "generator-limited"), unless another is missed: a miss is one,
    whatever else is undecided. A miss is sure when the whole interval of one objective lies below its target; a pass
    when each interval lies above its target, or not one turn was bad.
    """
    shown = [verdict for verdict in verdicts if not _is_left_out(verdict)]
    undecided = [verdict for verdict in shown if verdict.met is None]
    if not shown or (undecided and all(verdict.met is not False for verdict in shown)):
        if any(verdict.is_generator_limited for verdict in undecided):
            return "generator-limited", False
        lacks_turns = not shown or any(verdict.decided < verdict.minimum_turns for verdict in undecided)
        return ("too few" if lacks_turns else "undecided"), False
    shown = [verdict for verdict in shown if verdict.met is not None]
    intervals = [(verdict, wilson_interval(verdict.good, verdict.decided)) for verdict in shown]
    if any(interval is not None and interval[1] < verdict.target for verdict, interval in intervals):
        return "missed", True
    above = all(
        verdict.good == verdict.decided or (interval is not None and interval[0] >= verdict.target)
        for verdict, interval in intervals
    )
    return ("met" if all(verdict.met for verdict in shown) else "missed"), above


def undecided_reason(verdicts: Sequence[Verdict]) -> str | None:
    """Return why the first undecided objective that counts turns is, the generator's own open turns before all else."""
    undecided = [verdict for verdict in verdicts if verdict.met is None and not _is_left_out(verdict)]
    undecided.sort(key=lambda verdict: not verdict.is_generator_limited)
    return undecided[0].reason if undecided else None


def _is_left_out(verdict: Verdict) -> bool:
    if verdict.met is None and verdict.counts == "calls":
        return True
    return not verdict.is_observable


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The outcome of a search. `met` callers are served within the objectives, `missed` are not; None is not known. The
    steps are in the order in which they were measured."""

    target: str
    steps: tuple[LoadStep, ...]
    met: int | None
    missed: int | None
    stopped: Stopped | None = None
    reason: str | None = None
    calibration: str | None = None  # how well this machine measures at the highest step
    advice: str | None = None  # what its calibration has against so many callers in so many processes

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of the command."""
        if self.stopped == "interrupted":
            return ExitCode.INTERRUPTED
        if self.stopped == "generator":
            return ExitCode.GENERATOR_LIMITED
        if self.stopped == "unreachable":
            return ExitCode.UNREACHABLE
        if self.met is not None:
            return ExitCode.OK
        return ExitCode.OBJECTIVE_MISSED if self.missed is not None else ExitCode.UNDECIDED

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        served = f"the endpoint serves at least {_callers(self.met)}" if self.met is not None else "no step was met"
        if self.stopped == "interrupted":
            return f"interrupted: {served}, as far as it was measured"
        if self.stopped == "generator":
            return f"the generator was the limit, not the endpoint: {served} ({self.reason})"
        if self.stopped == "unreachable":
            return self._unreachable(served)
        if self.met is None:
            why = f" ({self.reason})" if self.reason else ""
            if self.missed is None:
                return f"undecided: no number of callers could be judged{why}"
            return f"the objectives are not met with {_callers(self.missed)}{why}"
        unsettled = f" ({self.reason})" if self.reason else ""
        if self.missed is None:
            return served + (unsettled or ", the most that were asked for")
        return f"the endpoint serves {_callers(self.met)} within its objectives, and {self.missed} no more{unsettled}"

    def _unreachable(self, served: str) -> str:
        if not self.steps:
            return self.reason or "the endpoint cannot be reached"
        last = _callers(self.steps[-1].callers)
        why = f" ({self.reason})" if self.reason else ""
        return f"the endpoint could not be reached after the step of {last}: {served}, as far as it was measured{why}"

    @property
    def bend_callers(self) -> int | None:
        """The bend of the p95: the step farthest below the straight line from the first to the last.

        That is the bend by greatest distance from the chord, on axes scaled to 1; None with fewer than four steps, or
        where the curve has no bend (a distance under 0.1).
        """
        points = sorted((step.callers, step.p95_ns) for step in self.steps if step.p95_ns is not None)
        if len(points) < BEND_MIN_RUNGS or points[-1][1] <= points[0][1]:
            return None
        (first, low), (last, high) = points[0], points[-1]
        distances = [((at - first) / (last - first) - (p95 - low) / (high - low), at) for at, p95 in points]
        distance, at = max(distances)
        return at if distance >= BEND_MIN_DISTANCE else None


def _callers(count: int | None) -> str:
    return formatting.count(count or 0, "caller")


@dataclass(frozen=True, slots=True)
class StepsTable:
    """The steps by callers, each with how well it was measured, and below them what an objective or a reason says of
    one. A terminal of 100 columns or more also has a bar for the p95; from 80 columns on nothing is cut or folded."""

    steps: Sequence[LoadStep]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich with the width there is."""
        steps = sorted(self.steps, key=lambda step: step.callers)
        yield _table(steps, is_wide=options.max_width >= WIDE_COLUMNS)
        for step in steps:
            if details := _details(step):
                yield Text(f"{_callers(step.callers)}: {details}", style=_style(step))


def _table(steps: Sequence[LoadStep], *, is_wide: bool) -> Table:
    table = Table(box=None, padding=(0, 2 if is_wide else 1, 0, 0), pad_edge=False, header_style="dim")
    for name in ("callers", "turns", "p50 ms", "p95 ms", "p95 interval ms", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("", no_wrap=True)
    table.add_column("objectives", no_wrap=True)
    highest = max((step.p95_ns for step in steps if step.p95_ns is not None), default=0.0)
    for step in steps:
        interval = step.p95_interval_ns
        table.add_row(
            formatting.number(step.callers),
            formatting.number(step.turns),
            _figure(step.p50_ns),
            _figure(step.p95_ns),
            formatting.DASH if interval is None else _interval(*interval),
            _figure(step.p99_ns),
            *([_bar(step.p95_ns, highest)] if is_wide else []),
            Text(step.status, style=_style(step)),
        )
    return table


def _interval(low_ns: float, high_ns: float) -> str:
    return f"{_figure(low_ns)} … {_figure(high_ns)}"


def _figure(value_ns: float | None) -> str:
    return TOO_FEW if value_ns is None else formatting.milliseconds(value_ns, unit=False)


def _bar(value_ns: float | None, highest_ns: float) -> str:
    return "" if value_ns is None or highest_ns <= 0 else "█" * max(1, round(BAR_WIDTH * value_ns / highest_ns))


def _style(step: LoadStep) -> str:
    return {"met": "green", "missed": "red", "refused": "red", "unreachable": "red"}.get(step.status, "yellow")


def _details(step: LoadStep) -> str:
    """Return what there is to say of a step beyond its status: one phrase, or nothing."""
    missed = [verdict.name for verdict in step.verdicts if verdict.met is False]
    words = f"missed {', '.join(missed)}" if step.status == "missed" and missed else ""
    if step.status == "undecided":
        words = undecided_reason(step.verdicts) or ""
    if step.reason is not None:
        return f"{words} ({step.reason})" if words else step.reason
    if not step.sure and step.met is not None:
        close = "close: the interval holds both answers"
        return f"{words} ({close})" if words else close
    return words


def capacity_view(result: Capacity) -> RenderableType:
    """Everything the command prints at its end."""
    style = "bold green" if result.exit_code is ExitCode.OK else "bold yellow"
    lines: list[RenderableType] = [StepsTable(result.steps), Text(), Text(result.sentence, style=style)]
    if result.bend_callers is not None:
        lines.append(Text(f"the curve of the p95 bends at {_callers(result.bend_callers)}", style="dim"))
    if result.calibration is not None:
        lines.append(Text(result.calibration, style="dim"))
    return Group(*lines)


def capacity_object(result: Capacity) -> dict[str, Any]:
    """The search as one JSON-ready object; durations are seconds, null is not known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "target": result.target,
        "callers_met": result.met,
        "callers_missed": result.missed,
        "callers_bend": result.bend_callers,
        "stopped_by": result.stopped,
        "sentence": result.sentence,
        "calibration": result.calibration,
        "advice": result.advice,
        "exit_code": int(result.exit_code),
        "steps": [_step_object(step) for step in sorted(result.steps, key=lambda step: step.callers)],
    }


def _step_object(step: LoadStep) -> dict[str, Any]:
    stated = ("callers", "processes", "run_ids", "measured_s", "turns", "invalid", "ok_share")
    figures = json_of(step, "p50_ns", "p95_ns", "p95_interval_ns", "p99_ns")
    verdict_fields = ("name", "met", "good", "bad", "open", "eligible", "target")
    return {
        **json_of(step, *stated),
        "voice_to_voice": {"n": len(step.voice_to_voice_ns), **figures},
        **json_of(step, "status", "sure", "reason"),
        "objectives": [json_of(verdict, *verdict_fields) for verdict in step.verdicts],
    }


TITLE_WIDTH: Final = 100
_RUN: Final = "search for capacity"


def draw(result: Capacity, objectives: list[Objective], folder: Path) -> list[Path]:
    """Write capacity.svg and capacity.png into a folder; the files. Nothing where no step has a figure."""
    steps = sorted((step for step in result.steps if step.voice_to_voice_ns), key=lambda step: step.callers)
    if not steps:
        return []
    from telemetry.charts.compared import load, with_intervals
    from telemetry.charts.drawing import LIGHT, Picture
    from telemetry.charts.static import image

    thresholds = [
        objective.threshold for objective in objectives if objective.metric == "voice_to_voice" and objective.threshold
    ]
    objective_ms = in_milliseconds(thresholds[0]) if thresholds else None
    rows = [
        {
            "run": _RUN,
            "calls": step.callers,
            **{
                name: None if (value := getattr(step, f"{name}_ns")) is None else in_milliseconds(value)
                for name in ("p50", "p95", "p99")
            },
            **dict(zip(("lower", "upper"), map(in_milliseconds, step.p95_interval_ns or ()), strict=False)),
        }
        for step in steps
    ]
    shares = [
        {"name": "ok turns", "line": "ok", "place": str(step.callers), "value": 100 * step.ok_share}
        for step in steps
        if step.ok_share is not None
    ]
    spec = load([_RUN], LIGHT, objective_ms, result.met, result.missed)
    good = with_intervals(["ok turns"], [str(step.callers) for step in steps], "%", LIGHT, is_log=False)
    pictures = [
        Picture(rows, spec, "voice to voice by concurrent callers: p50, p95 and p99 from below, p95 with its interval"),
        Picture(shares, {**good, "height": 90}, "ok turns by concurrent callers"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "capacity.svg", folder / "capacity.png"]
    for file in files:
        file.write_bytes(image(pictures, file.suffix[1:], wrap(result.sentence, TITLE_WIDTH)))
    return files
